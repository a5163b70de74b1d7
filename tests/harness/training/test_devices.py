"""What a GPU would see, on fake tensors: everything lies there, and it is asked as seldom as can be."""

from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from harness.config.schedule import Optimiser, Stage
from harness.data.batches import Batch
from harness.data.dataset import Sample
from harness.data.vocabulary import Vocabulary
from harness.training.distributed import Collective
from harness.training.losses import BatchGradient
from harness.training.objectives import Objective
from harness.training.optimisers import make_optimiser
from harness.training.stage import make_objective
from harness.utils.precision import autocast
from tests.fake_cuda import Watch, fake_cuda, fake_visual, on_fake_cuda
from tests.zoo.test_laws import BOS, CHANNELS, EOS, look
from zoo import Captioner, Visual, create_model, model_card
from zoo.decoding import beam_search, greedy
from zoo.recurrent import RecurrentCaptioner

CUDA = torch.device("cuda")
SAMPLES = [Sample(number, f"{number}.png", "train", ("red ball",)) for number in range(3)]
VOCABULARY = Vocabulary(["ball", "blue", "red"])
WORDS = 2
SELF_CRITICAL = {"objective": "self_critical", "self_critical": {"max_len": WORDS, "samples": 2}}


def parts(name: str, changes: dict[str, Any]) -> tuple[Captioner, Objective, Batch]:
    """A model on the GPU, an objective, and a batch that is still here; within `fake_cuda`."""
    with unset_fake_temporarily():
        model = create_model(name, vocab_size=len(VOCABULARY), visual_dim=CHANNELS, **model_card(name).tiny)
    return with_objective(on_fake_cuda(model.train()), changes)


def with_objective(model: Captioner, changes: dict[str, Any]) -> tuple[Captioner, Objective, Batch]:
    stage = {"name": "s", "epochs": 1, "batch_size": 3, "learning_rate": {"peak": 0.1}}
    objective = make_objective(Stage.model_validate(stage | changes), model, SAMPLES, VOCABULARY)
    if isinstance(objective, nn.Module):
        on_fake_cuda(objective)
    with unset_fake_temporarily():
        seen = look(model, dtype=torch.float32)
    tokens = torch.empty(2 * len(SAMPLES), WORDS + 1, dtype=torch.long, device="cpu")
    return model, objective, Batch(fake_visual(seen, "cpu"), tokens, tuple(range(len(SAMPLES))))


def trained(model: Captioner, objective: Objective, batch: Batch, precision: str = "bf16") -> Watch:
    """What a step asks the GPU for."""
    gradient = BatchGradient(
        model, CUDA, precision=precision, collective=Collective(), on_split=pytest.fail, replays=False
    )
    weights = list(model.parameters())
    with Watch() as watch:
        losses, _ = gradient(objective, weights, batch, 0, 1)
        norm = torch.nn.utils.clip_grad_norm_(weights, 1.0)
    assert {each.device.type for each in (norm, *losses, *(w.grad for w in weights if w.grad is not None))} == {"cuda"}
    assert losses[0].dtype == torch.float32
    return watch


def test_no_architecture_waits_for_a_gpu(architecture: str) -> None:
    with fake_cuda():
        model, words, batch = parts(architecture, {})
        watch = trained(model, words, batch, "fp32")
        assert (watch.reads, watch.copies) == (0, 0)
        family = "/" not in architecture  # variants step through words as their family does, which the beams show
        if family:
            # Of a self-critical step, once a word whether all captions have ended; then words and lengths are fetched.
            watch = trained(*with_objective(model, SELF_CRITICAL), "bf16")
            assert (watch.reads, watch.copies) == (WORDS, 2)
        visual = fake_visual(batch.visual)
        with torch.no_grad(), autocast(CUDA, "bf16"), Watch() as search:
            memory = model.eval().encode(visual)
            if family:
                greedy(model, memory, max_len=1, bos=BOS, eos=EOS)
            found = beam_search(model, memory, beam_size=2, max_len=WORDS, bos=BOS, eos=EOS)
        assert (search.reads, search.copies) == (WORDS - 1 + family, 0)
        assert found.tokens.is_cuda
        assert found.log_probs.dtype == torch.float32


@pytest.mark.parametrize("name", ["cgru", "updown"])
@pytest.mark.parametrize(
    ("changes", "reads", "copies"),
    [
        ({"label_smoothing": 0.1}, 0, 0),
        ({"scheduled_sampling": {"every": 1, "step": 0.5, "most": 1.0}}, 0, 0),
        ({"objective": "self_critical", "self_critical": {"max_len": WORDS, "average": "tokens"}}, WORDS, 2),
        ({"objective": "self_critical", "self_critical": {"max_len": WORDS, "baseline": "greedy"}}, 2 * WORDS, 4),
        (
            {
                "objective": "self_critical",
                "self_critical": {"max_len": WORDS, "gradient": "prefixes", "sampling_dropout": True},
            },
            WORDS,
            2,
        ),
        ({"objective": "reinforce", "reinforce": {"max_len": WORDS}}, WORDS, 2),
    ],
)
def test_objectives_wait_for_words_alone(name: str, changes: dict[str, Any], reads: int, copies: int) -> None:
    with fake_cuda():
        watch = trained(*parts(name, changes))
    assert (watch.reads, watch.copies) == (reads, copies)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (lambda x: x * x.sum().item(), (1, 0)),
        (lambda x: x * len(x.tolist()), (1, 0)),
        (lambda x: x * torch.tensor([2.0], device="cuda"), (0, 1)),
        (lambda x: x * torch.ones(1, device="cpu"), "same device"),
    ],
)
def test_each_fault_shows(fault: Any, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = RecurrentCaptioner.decode
    monkeypatch.setattr(RecurrentCaptioner, "decode", lambda *given: fault(decode(*given)))
    with fake_cuda():
        if isinstance(found, str):
            with pytest.raises(RuntimeError, match=found):
                trained(*parts("show_tell", {}))
        else:
            watch = trained(*parts("show_tell", {}))
            assert (watch.reads, watch.copies) == found


def test_what_is_stored_short_is_widened_on_the_gpu() -> None:
    class Copies(Watch):
        """What is copied to the GPU."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten._to_copy.default and not args[0].is_cuda:
                copied.append((args[0].dtype, kwargs.get("dtype") or args[0].dtype))
            return super().__torch_dispatch__(func, types, args, kwargs)

    copied: list[tuple[torch.dtype, torch.dtype]] = []
    stored = Visual(
        features=torch.empty(2, 3, 4, dtype=torch.half),
        mask=torch.empty(2, 3, dtype=torch.bool),
        pixels=torch.empty(2, 3, 5, 5, dtype=torch.uint8),
        levels=torch.empty(2, 3, 256),
    )
    with fake_cuda():
        here = fake_visual(stored, "cpu")
        with Copies() as watch:
            seen = here.to(CUDA)
    assert copied == [(dtype, dtype) for dtype in [torch.half, torch.bool, torch.uint8, torch.float]]
    assert (watch.reads, watch.copies) == (0, 0)
    assert seen.pixels is not None
    assert seen.features is not None
    assert (seen.pixels.shape, seen.pixels.dtype, seen.features.dtype) == ((2, 3, 5, 5), torch.float, torch.float)


@pytest.mark.parametrize("name", ["adam", "adamw", "muon", "radam_liu"])
def test_optimisers_wait_for_nothing(name: str) -> None:
    with fake_cuda():
        model, objective, batch = parts("transformer_base", {})
        trained(model, objective, batch)
        optimiser = make_optimiser(model, Optimiser.model_validate({"name": name}))
        for _ in range(2):  # the first one makes the moments
            with Watch() as watch:
                optimiser.step()
    assert (watch.reads, watch.copies) == (0, 0)
    assert watch.kernels < 100


@pytest.mark.parametrize("kind", ["self_critical", "reinforce"])
def test_captions_are_fetched_before_the_pass_with_gradients(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, copied = Watch(), []
    decode = RecurrentCaptioner.decode_with_states
    monkeypatch.setattr(
        RecurrentCaptioner, "decode_with_states", lambda *given: copied.append(watch.copies) or decode(*given)
    )
    settings = {"max_len": WORDS} | ({"baseline": "greedy"} if kind == "self_critical" else {})
    with fake_cuda():
        model, objective, batch = parts("cgru", {"objective": kind, kind: settings})
        with watch:
            objective(model, batch.to(CUDA))
    assert copied[-1] == watch.copies >= 2
