"""No objective computes with tensors of the processor where model and batch lie elsewhere, as they do on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from harness.config.schedule import Stage
from harness.data.batches import Batch
from harness.data.dataset import Sample
from harness.data.vocabulary import Vocabulary
from harness.training.objectives import Objective
from harness.training.stage import make_objective
from tests.zoo.elsewhere import Elsewhere
from zoo import Captioner, Visual, create_model, model_card
from zoo.recurrent import RecurrentCaptioner

THERE = torch.device("meta")
IMAGES = [Sample(0, "0.png", "train", ("red ball",)), Sample(1, "1.png", "train", ("blue ball",))]
STAGE = {"name": "s", "epochs": 1, "batch_size": 2, "learning_rate": {"peak": 0.1}}


@pytest.mark.parametrize("name", ["cgru", "updown"])
@pytest.mark.parametrize(
    "changes",
    [
        {"label_smoothing": 0.1},
        {"scheduled_sampling": {"every": 1, "step": 0.5, "most": 1.0}},
        {"objective": "self_critical", "self_critical": {"max_len": 6, "average": "tokens"}},
        {"objective": "self_critical", "self_critical": {"max_len": 6, "baseline": "greedy"}},
        {"objective": "reinforce", "reinforce": {"max_len": 6}},
    ],
)
def test_losses_stay_on_the_device(name: str, changes: dict[str, Any]) -> None:
    objective, model, batch = parts(name, changes)
    with Elsewhere():
        for part in batch.split(2):
            loss = objective(model, part.to(THERE), 3)
            loss.backward()  # type: ignore[no-untyped-call]
    assert loss.is_meta


def parts(name: str, changes: dict[str, Any]) -> tuple[Objective, Captioner, Batch]:
    """An objective and a tiny model there, and a batch that is still here."""
    vocabulary = Vocabulary(["ball", "blue", "red"])
    model = create_model(name, vocab_size=len(vocabulary), visual_dim=8, **model_card(name).tiny).to(THERE).train()
    seen = 1 if model.visual.kind == "pooled" else 4
    batch = Batch(Visual(torch.zeros(2, seen, 8)), torch.ones(4, 5, dtype=torch.long), (0, 1))
    objective = make_objective(Stage.model_validate(STAGE | changes), model, IMAGES, vocabulary)
    if isinstance(objective, nn.Module):
        objective.to(THERE)
    return objective, model, batch


class Watching(Elsewhere):
    """Notes what is fetched from there."""

    def __init__(self, happened: list[str]) -> None:
        super().__init__()
        self._happened = happened

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default and args[0].is_meta and kwargs.get("device") == torch.device("cpu"):
            self._happened.append("fetch")
        return super().__torch_dispatch__(func, types, args, kwargs)


@pytest.mark.parametrize("kind", ["self_critical", "reinforce"])
def test_captions_are_fetched_before_the_pass_with_gradients(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    decode = RecurrentCaptioner.decode_with_states

    def watched(*arguments: Any) -> Any:
        happened.append("pass")
        return decode(*arguments)

    monkeypatch.setattr(RecurrentCaptioner, "decode_with_states", watched)
    settings = {"max_len": 6} | ({"baseline": "greedy"} if kind == "self_critical" else {})
    objective, model, batch = parts("cgru", {"objective": kind, kind: settings})
    with Watching(happened):
        objective(model, batch.to(THERE))
    assert happened[-1] == "pass"
    assert happened.count("fetch") >= 2
