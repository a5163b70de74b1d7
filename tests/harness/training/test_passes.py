"""Passes as graphs: their operators in a row, on the memory of one pass, give the losses and gradients of passes."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.config.schedule import Stage
from harness.data.batches import Batch
from harness.inference import replay
from harness.training.losses import ReplayedPasses
from harness.training.objectives import CrossEntropy
from tests.conftest import distinct_architectures
from tests.zoo.test_laws import BOS, VOCAB, look, tiny
from zoo import Captioner

WORDS = 4
STAGE = Stage.model_validate({"name": "xe", "epochs": 1, "batch_size": 3, "learning_rate": {"peak": 0.1}})


class Tape(TorchDispatchMode):
    """A CUDA graph on a processor: the operators that ran, and once more into the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self._ran = list[tuple[Any, Any, Any, list[Tensor]]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert "_local_scalar_dense" not in func._schema.name, "a number is read"
        found = func(*args, **(kwargs or {}))
        self._ran.append((func, args, kwargs or {}, [each for each in tree_leaves(found) if isinstance(each, Tensor)]))
        return found

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, kept in self._ran:
                found = [each for each in tree_leaves(func(*args, **kwargs)) if isinstance(each, Tensor)]
                for old, new in zip(kept, found, strict=True):
                    if old.data_ptr() != new.data_ptr():
                        old.copy_(new)


@contextmanager
def captures(tape: Tape, **_: object) -> Iterator[None]:
    state = torch.get_rng_state()
    with tape:
        yield
    torch.set_rng_state(state)  # capturing draws nothing


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """As on a GPU; the graphs that were made."""
    made = list[object]()

    class Counted(Tape):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr("zoo.captioner._known_all_valid", lambda _: False)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Counted)
    monkeypatch.setattr(torch.cuda, "graph", captures)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda _: None)
    monkeypatch.setattr(replay, "memory_suffices", lambda: True)
    monkeypatch.setattr(replay, "synchronisation_points", lambda work: work() and [])
    monkeypatch.setattr(replay, "cpu_generator_states", random.getstate)  # torch's are those of the GPU here
    return made


def batch_of(model: Captioner, width: int = WORDS) -> Batch:
    visual = look(model)
    tokens = torch.randint(4, VOCAB, (2 * visual.batch_size, width))
    tokens[:, 0] = BOS
    return Batch(visual, tokens, tuple(range(visual.batch_size)))


def trained(name: str, replays: bool, steps: int = 5) -> tuple[list[float], list[Tensor]]:
    """Losses and the last weights of a training with dropout, and with two widths of captions."""
    torch.manual_seed(0)
    model = tiny(name).train()
    model.set_dropout(0.2)
    replayed = ReplayedPasses(model, pytest.fail)
    objective, losses = CrossEntropy(STAGE), []
    for number in range(steps):
        batch = batch_of(model, WORDS - (number == 2))
        if replays:
            with replayed.of_one_loss():
                loss = objective(model, batch)
        else:
            loss = objective(model, batch)
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.grad is not None:
                    weight.sub_(0.1 * weight.grad)
                weight.grad = None
        losses.append(loss.item())
    assert "forward" not in vars(model)
    return losses, [weight.detach() for weight in model.parameters()]


FAMILIES = [name for name in distinct_architectures() if "/" not in name]


@pytest.mark.parametrize("name", [*FAMILIES, "blip/small", "git/small", "vit_gpt2/small"])
def test_every_family_trains_the_same_weights(name: str, captured: list[object]) -> None:
    losses, weights = trained(name, replays=False)
    again, others = trained(name, replays=True)
    assert len(captured) == 2, "there and back, of the one width that came twice"
    assert again == pytest.approx(losses, rel=1e-6)
    for weight, other in zip(weights, others, strict=True):
        torch.testing.assert_close(other, weight, rtol=1e-8, atol=1e-10)


def gradient_of(model: Captioner, replayed: ReplayedPasses, batch: Batch) -> Tensor:
    model.zero_grad()
    with replayed.of_one_loss():
        CrossEntropy(STAGE)(model, batch).backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


def fails(*_: object, **__: object) -> None:
    raise RuntimeError("CUDA error: operation not permitted\nCompile with ...")


@pytest.mark.parametrize(
    ("place", "fault", "graphs", "named"),
    [
        ("harness.inference.replay.synchronisation_points", lambda work: work() or ["own.py:7"], 0, "own.py:7"),
        ("torch.autograd.grad", fails, 2, "not permitted"),
    ],
)
def test_what_waits_for_the_device_or_cannot_be_captured_trains_on(
    captured: list[object], monkeypatch: pytest.MonkeyPatch, place: str, fault: Any, graphs: int, named: str
) -> None:
    monkeypatch.setattr(place, fault)
    model, told = tiny("cgru").train(), list[str]()
    model.set_dropout(0.0)
    replayed, batch = ReplayedPasses(model, told.append), batch_of(model)
    first, *others = [gradient_of(model, replayed, batch) for _ in range(3)]
    assert all(torch.equal(other, first) for other in others)
    assert len(captured) == graphs
    [said] = told
    assert named in said


def test_large_passes_and_those_without_gradients_are_not_captured(
    captured: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("cgru").train()
    replayed, batch = ReplayedPasses(model, pytest.fail), batch_of(model)
    with torch.no_grad(), replayed.of_one_loss():
        for _ in range(3):
            model(batch.visual, batch.tokens)
    monkeypatch.setattr(replay, "memory_suffices", lambda: False)
    for _ in range(3):
        gradient_of(model, replayed, batch)
    assert not captured


def test_a_second_pass_of_one_loss_leaves_the_first_alone(captured: list[object]) -> None:
    model = tiny("cgru").train()
    model.set_dropout(0.0)
    replayed, batches = ReplayedPasses(model, pytest.fail), [batch_of(model) for _ in range(2)]
    gradients = []
    for _ in range(3):
        model.zero_grad()
        with replayed.of_one_loss():
            first, second = (model(batch.visual, batch.tokens) for batch in batches)
        (first.square().sum() + second.sum()).backward()
        gradients.append(torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None]))
    assert len(captured) == 2
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-8, atol=1e-10)


def test_another_stage_is_captured_anew(captured: list[object]) -> None:
    model = tiny("cgru").train()
    replayed, batch = ReplayedPasses(model, pytest.fail), batch_of(model)
    model.set_dropout(0.0)
    still = [gradient_of(model, replayed, batch) for _ in range(3)][-1]
    model.set_dropout(0.5)
    replayed.forget()
    dropped = [gradient_of(model, replayed, batch) for _ in range(3)][1:]
    assert len(captured) == 4
    assert not torch.allclose(dropped[0], dropped[1])
    model.set_dropout(0.0)
    replayed.forget()
    assert torch.equal(gradient_of(model, replayed, batch), still)
