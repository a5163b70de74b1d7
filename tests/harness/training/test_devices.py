"""What a training step asks a GPU for, told by torch's device "meta": everything lies there, and is seldom read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

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
from tests.fake_cuda import Watch as KernelWatch
from tests.fake_cuda import fake_cuda, on_fake_cuda
from tests.zoo.test_laws import BOS, CHANNELS, EOS, look
from zoo import Captioner, Visual, create_model, model_card
from zoo.decoding import beam_search, greedy
from zoo.recurrent import RecurrentCaptioner

CPU, META = torch.device("cpu"), torch.device("meta")
ANSWER = 3
SAMPLES = [Sample(number, f"{number}.png", "train", ("red ball",)) for number in range(3)]
VOCABULARY = Vocabulary(["ball", "blue", "red"])
WORDS = 2
SELF_CRITICAL = {"objective": "self_critical", "self_critical": {"max_len": WORDS, "samples": 2}}


class Watch(TorchDispatchMode):
    """Counts what a GPU would be waited for: numbers that are read of it, and copies from and to it.

    The device "meta" has shapes and types and no numbers, so that what is read is answered with no, or with a three.
    Like a GPU's, its tensors refuse to meet those of the processor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.copies = 0
        self.copied: list[tuple[torch.dtype, torch.dtype]] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if name == "_local_scalar_dense" and args[0].is_meta:
            self.reads += 1
            return False if args[0].dtype == torch.bool else ANSWER
        if name == "_to_copy":
            there = torch.device(kwargs.get("device") or args[0].device)
            if there.type != args[0].device.type:
                self.copies += not kwargs.get("non_blocking")
                self.copied.append((args[0].dtype, kwargs.get("dtype") or args[0].dtype))
            if args[0].is_meta and there.type == "cpu":
                return torch.full(args[0].shape, ANSWER, dtype=kwargs.get("dtype") or args[0].dtype, device="cpu")
        return func(*args, **kwargs)


@contextmanager
def watched() -> Iterator[Watch]:
    """Within, `tolist` is one read, and a constant that is made on the device is a copy that is waited for."""
    watch = Watch()
    make, listed = torch.tensor, Tensor.tolist

    def tensor(data: Any, **words: Any) -> Tensor:
        made = make(data, **words)
        watch.copies += made.is_meta and made.numel() > 0
        return made

    def tolist(tensor: Tensor) -> Any:
        if not tensor.is_meta:
            return listed(tensor)
        watch.reads += 1
        return listed(torch.full(tensor.shape, ANSWER, dtype=tensor.dtype, device="cpu"))

    with patch("torch.tensor", tensor), patch.object(Tensor, "tolist", tolist), watch:
        yield watch


def parts(name: str, changes: dict[str, Any], device: torch.device = META) -> tuple[Captioner, Objective, Batch]:
    """A model on the device, an objective, and a batch that is still on the processor."""
    model = create_model(name, vocab_size=len(VOCABULARY), visual_dim=CHANNELS, **model_card(name).tiny)
    return with_objective(model.train(), changes, device)


def with_objective(
    model: Captioner, changes: dict[str, Any], device: torch.device = META
) -> tuple[Captioner, Objective, Batch]:
    stage = {"name": "s", "epochs": 1, "batch_size": 3, "learning_rate": {"peak": 0.1}}
    objective = make_objective(Stage.model_validate(stage | changes), model, SAMPLES, VOCABULARY)
    if isinstance(objective, nn.Module):
        objective.to(device)
    tokens = torch.full((2 * len(SAMPLES), WORDS + 1), ANSWER)
    return model.to(device), objective, Batch(look(model, dtype=torch.float32), tokens, tuple(range(len(SAMPLES))))


def trained(model: Captioner, objective: Objective, batch: Batch) -> Watch:
    """What a step asks the device for."""
    gradient = BatchGradient(model, META, precision="fp32", collective=Collective(), on_split=pytest.fail)
    weights = list(model.parameters())
    with watched() as watch:
        losses, _ = gradient(objective, weights, batch, 0, 1)
        norm = torch.nn.utils.clip_grad_norm_(weights, 1.0)
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    assert {tensor.device for tensor in (norm, *losses, *gradients)} == {META}
    return watch


def test_no_architecture_waits_for_a_gpu(architecture: str) -> None:
    model, objective, batch = parts(architecture, {})
    watch = trained(model, objective, batch)
    assert (watch.reads, watch.copies) == (0, 0)
    family = "/" not in architecture  # variants step through words as their family does, which the beams show
    if family:
        # Of a self-critical step, once a word whether all captions have ended; then words and lengths are fetched.
        watch = trained(*with_objective(model, SELF_CRITICAL))
        assert (watch.reads, watch.copies) == (WORDS, 2)
    visual = batch.visual.to(META)
    with torch.no_grad(), watched() as search:
        memory = model.eval().encode(visual)
        if family:
            greedy(model, memory, max_len=1, bos=BOS, eos=EOS)
        hypotheses = beam_search(model, memory, beam_size=2, max_len=WORDS, bos=BOS, eos=EOS)
    assert (search.reads, search.copies) == (WORDS - 1 + family, 0)
    assert hypotheses.tokens.is_meta


def test_losses_and_scores_of_words_are_in_single_precision(architecture: str) -> None:
    model, objective, batch = parts(architecture, {}, CPU)
    gradient = BatchGradient(model, CPU, precision="bf16", collective=Collective(), on_split=pytest.fail)
    losses, _ = gradient(objective, list(model.parameters()), batch, 0, 1)
    with torch.no_grad(), autocast(CPU, "bf16"):
        memory = model.eval().encode(batch.visual)
        hypotheses = beam_search(model, memory, beam_size=2, max_len=WORDS, bos=BOS, eos=EOS)
    assert {losses[0].dtype, hypotheses.log_probs.dtype} == {torch.float32}


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
    watch = trained(*parts(name, changes))
    assert (watch.reads, watch.copies) == (reads, copies)


@pytest.mark.parametrize(
    ("fault", "counts"),
    [
        (lambda x: x * x.sum().item(), (1, 0)),
        (lambda x: x * len(x.tolist()), (1, 0)),
        (lambda x: x * torch.tensor([2.0], device="meta"), (0, 1)),
        (lambda x: x * torch.ones(1).to("meta"), (0, 1)),
    ],
)
def test_each_wait_is_counted(
    fault: Callable[[Tensor], Tensor], counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = RecurrentCaptioner.decode
    monkeypatch.setattr(RecurrentCaptioner, "decode", lambda *given: fault(decode(*given)))
    watch = trained(*parts("show_tell", {}))
    assert (watch.reads, watch.copies) == counts


def test_what_is_stored_short_is_widened_on_the_gpu() -> None:
    stored = Visual(
        features=torch.empty(2, 3, 4, dtype=torch.half),
        mask=torch.empty(2, 3, dtype=torch.bool),
        pixels=torch.empty(2, 3, 5, 5, dtype=torch.uint8),
        levels=torch.empty(2, 3, 256),
    )
    with watched() as watch:
        seen = stored.to(META)
    assert watch.copied == [(dtype, dtype) for dtype in [torch.half, torch.bool, torch.uint8, torch.float]]
    assert (watch.reads, watch.copies) == (0, 0)
    assert seen.pixels is not None
    assert seen.features is not None
    assert (seen.pixels.shape, seen.pixels.dtype, seen.features.dtype) == ((2, 3, 5, 5), torch.float, torch.float)


@pytest.mark.parametrize("name", ["adam", "adamw", "muon", "radam_liu"])
def test_optimisers_start_few_kernels_and_wait_for_none(name: str) -> None:
    model = create_model("transformer_base", vocab_size=5, visual_dim=CHANNELS, **model_card("transformer_base").tiny)
    with fake_cuda():
        optimiser = make_optimiser(on_fake_cuda(model), Optimiser.model_validate({"name": name}))
        for weight in model.parameters():
            weight.grad = torch.empty_like(weight)
        for _ in range(2):  # the first one makes the moments
            with KernelWatch() as watch:
                optimiser.step()
    assert watch.reads == 0
    assert watch.kernels < 100


@pytest.mark.parametrize("kind", ["self_critical", "reinforce"])
def test_captions_are_fetched_before_the_pass_with_gradients(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int] = []
    settings = {"max_len": WORDS} | ({"baseline": "greedy"} if kind == "self_critical" else {})
    model, objective, batch = parts("cgru", {"objective": kind, kind: settings})
    decode = RecurrentCaptioner.decode_with_states
    with watched() as watch:
        monkeypatch.setattr(
            RecurrentCaptioner, "decode_with_states", lambda *given: copies.append(watch.copies) or decode(*given)
        )
        objective(model, batch.to(META))
    assert copies[-1] == watch.copies >= 2
