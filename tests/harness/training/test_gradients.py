"""A batch's gradient is the same in one pass, in parts after memory ran out, and in shares of several processes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.config.schedule import Stage
from harness.data.batches import Batch
from harness.data.dataset import Sample
from harness.data.vocabulary import Vocabulary
from harness.training import self_critical
from harness.training.distributed import Collective
from harness.training.losses import BatchGradient, UnreadLosses
from harness.training.objectives import CrossEntropy
from harness.training.stage import make_objective
from harness.utils.errors import BenchError
from zoo import Captioner, Visual, create_model, model_card

WORDS = 11
STAGE = Stage.model_validate({"name": "xe", "epochs": 1, "batch_size": 6, "learning_rate": {"peak": 0.1}})


def batch_of(images: int) -> Batch:
    """Captions of unequal lengths, so that parts of equal size hold unequal numbers of words."""
    torch.manual_seed(1)
    tokens = torch.randint(4, WORDS, (images, 7))
    tokens[:, 0] = 1
    for row in range(images):
        tokens[row, 2 + row % 5 :] = 0
        tokens[row, 1 + row % 5] = 2
    return Batch(
        Visual(torch.randn(images, 3, 8), torch.ones(images, 3, dtype=torch.bool)), tokens, tuple(range(images))
    )


def model_of() -> Captioner:
    """Tiny and without dropout."""
    torch.manual_seed(2)
    model = create_model("transformer_base", vocab_size=WORDS, visual_dim=8, **model_card("transformer_base").tiny)
    model.set_dropout(0.0)
    return model.train()


class Small:
    """Cross-entropy on a device whose memory takes so many images at once."""

    def __init__(self, images: int) -> None:
        self._images, self._inner = images, CrossEntropy(STAGE)
        self.passes: list[int] = []
        self.refused: list[int] = []

    def __call__(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:
        loss = self._inner(model, batch, epoch)
        if len(batch.image_ids) > self._images:
            (loss * 7).backward()  # some gradients are there already when memory runs out
            self.refused.append(len(batch.image_ids))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        self.passes.append(len(batch.image_ids))
        return loss

    def weight(self, batch: Batch) -> float:
        return self._inner.weight(batch)


def maker(
    model: Captioner, on_split: Callable[[int], None], collective: Collective | None = None, precision: str = "fp32"
) -> BatchGradient:
    """On the CPU, by default in one process."""
    return BatchGradient(
        model, torch.device("cpu"), precision=precision, collective=collective or Collective(), on_split=on_split
    )


def gradient_of(objective: Any, batch: Batch, told: list[int], repeats: int = 1) -> tuple[float, dict[str, Tensor]]:
    """Loss of the last batch, and the gradients that have gathered."""
    model = model_of()
    gradient = maker(model, told.append)
    for _ in range(repeats):
        loss, images = gradient(objective, list(model.parameters()), batch, 0, 1)
        assert images == len(batch.image_ids)
    return sum(map(float, loss)), {
        name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None
    }


@pytest.mark.parametrize(("fits", "parts"), [(6, []), (5, [2]), (2, [2, 4]), (1, [2, 4, 6])])
@pytest.mark.parametrize("repeats", [1, 2])
def test_out_of_memory_splits_the_batch_and_leaves_its_gradient(fits: int, parts: list[int], repeats: int) -> None:
    batch = batch_of(6)
    loss, expected = gradient_of(CrossEntropy(STAGE), batch, [], repeats)
    told: list[int] = []
    small = Small(fits)
    found_loss, found = gradient_of(small, batch, told, repeats)
    assert told == parts
    assert sum(small.passes) == 6 * repeats
    assert found_loss == pytest.approx(loss, rel=1e-6)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-6, rtol=1e-5)


class GraphMemory(torch.autograd.Function):
    """A pass whose gradient lies in the memory given, as that of a CUDA graph does."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, memory: Tensor) -> Tensor:
        ctx.memory = memory
        return weight.sum()

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        return ctx.memory.view_as(ctx.memory), None


class Replayed:
    """Passes of a graph, each of which writes its number over the gradient of the one before."""

    def __init__(self, weight: Tensor) -> None:
        self._weight, self._memory = weight, torch.zeros_like(weight)

    def __call__(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:  # noqa: ARG002  # it calls none
        self._memory += 1
        return GraphMemory.apply(self._weight, self._memory)  # type: ignore[no-any-return, no-untyped-call]

    def weight(self, batch: Batch) -> float:
        return len(batch.image_ids)


@pytest.mark.parametrize(("batches", "parts", "summed"), [(1, 1, 1), (1, 3, 6), (2, 1, 3), (2, 2, 10)])
def test_replayed_passes_leave_gradients_that_wait_as_they_are(
    monkeypatch: pytest.MonkeyPatch, batches: int, parts: int, summed: float
) -> None:
    monkeypatch.setattr(Batch, "to", lambda batch, _: batch)
    model = model_of()
    weight = next(model.parameters())
    gradient = BatchGradient(
        model, torch.device("cuda"), precision="fp32", collective=Collective(), on_split=pytest.fail
    )
    replayed = Replayed(weight)
    for left in reversed(range(batches)):
        gradient(replayed, [weight], batch_of(6), 0, parts, waits=left > 0)
    assert weight.grad is not None
    assert bool((weight.grad == summed).all())


def test_an_image_too_large_for_memory_is_an_error_with_advice() -> None:
    with pytest.raises(BenchError, match="single image at a time") as caught:
        gradient_of(Small(0), batch_of(3), [])
    assert "--device cpu" in (caught.value.hint or "")


def test_micro_batch_weights_are_counted_before_the_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[Tensor] = []

    def to(self: Batch, _: torch.device) -> Batch:
        there.append(self.tokens.clone())
        return replace(self, tokens=there[-1])

    class Weighing(CrossEntropy):
        def weight(self, batch: Batch) -> float:
            assert not any(batch.tokens is tokens for tokens in there), "a GPU would be waited for"
            return super().weight(batch)

    monkeypatch.setattr(Batch, "to", to)
    model, told = model_of(), list[int]()
    gradient = maker(model, told.append)
    gradient(Weighing(STAGE), list(model.parameters()), batch_of(6), 0, 3)
    assert len(there) == 3


def test_a_rank_without_images_adds_nothing() -> None:
    model = model_of()
    told: list[int] = []

    class Others(Collective):
        """The other process has all six images, of a loss of 2."""

        def all_reduce_sum(self, values: Any) -> list[float]:
            return [6.0 if len(values) == 1 else 30.0, 6.0][: len(values)]

    gradient = maker(model, told.append, Others())
    empty = Batch(Visual(), torch.zeros(0, 2, dtype=torch.long), ())
    losses, images = gradient(CrossEntropy(STAGE), list(model.parameters()), empty, 0, 1)
    assert images == 6
    unread = UnreadLosses(torch.device("cpu"))
    unread.add(1, losses, torch.tensor(0.0), 0.1)
    assert [found.loss for found in unread.read(Others())] == [6.0]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert told == []


@pytest.mark.parametrize("kind", ["self_critical", "reinforce"])
def test_dropout_survives_out_of_memory_during_sampling(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = create_model("cgru", vocab_size=WORDS, visual_dim=8, **model_card("cgru").tiny).train()
    stage = Stage.model_validate(STAGE.model_dump() | {"objective": kind})
    objective = make_objective(stage, model, [Sample(0, "0.png", "train", ("red ball",))], Vocabulary(["red", "ball"]))

    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(self_critical, "sample", full)
    batch = Batch(Visual(torch.zeros(1, 1, 8)), torch.ones(1, 2, dtype=torch.long), (0,))
    with pytest.raises(torch.OutOfMemoryError):
        objective(model, batch)
    assert model.training


BESIDE_GREEDY = {"max_len": 6, "sampling_dropout": True, "baseline": "greedy"}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("cgru", {"scheduled_sampling": {"every": 1, "step": 0.5, "most": 1.0}}),
        ("cgru", {"objective": "self_critical", "self_critical": {"max_len": 6}}),
        ("cgru", {"objective": "reinforce", "reinforce": {"max_len": 6}}),
        ("transformer_base", {"objective": "self_critical", "self_critical": {"gradient": "steps"} | BESIDE_GREEDY}),
        ("transformer_base", {"objective": "self_critical", "self_critical": {"gradient": "prefixes"} | BESIDE_GREEDY}),
    ],
)
def test_every_weight_learns_from_samples_in_half_precision(
    name: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared: list[None] = []
    clear = torch.clear_autocast_cache
    monkeypatch.setattr(torch, "clear_autocast_cache", lambda: cleared.append(clear()))  # type: ignore[func-returns-value]
    model = create_model(name, vocab_size=7, visual_dim=8, **model_card(name).tiny).train()
    stage = Stage.model_validate(STAGE.model_dump() | changes)
    images = [Sample(0, "0.png", "train", ("red ball",)), Sample(1, "1.png", "train", ("blue ball",))]
    objective = make_objective(stage, model, images, Vocabulary(["ball", "blue", "red"]))
    batch = Batch(Visual(torch.randn(2, 1, 8)), torch.randint(1, 7, (2, 5)), (0, 1))
    maker(model, lambda _: None, precision="bf16")(objective, list(model.parameters()), batch, 3, 1)
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert len(cleared) == 2, "before the pass with gradients too: older torch loses them otherwise"
