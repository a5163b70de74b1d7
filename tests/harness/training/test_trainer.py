"""The training loop: it learns, stops early, and names the step of a NaN."""

import io
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from harness.config.schedule import Schedule
from harness.data.batches import Batch
from harness.training.losses import TrainingDivergedError
from harness.training.objectives import CrossEntropy
from harness.training.optimisers import make_optimiser
from harness.utils.errors import BenchError
from results.records import EpochRecord
from results.statistics.learning import CHANCE
from tests.harness.training.tiny_training import IMAGES, VOCABULARY, Loader, fit_tiny, tiny_schedule, weights_of
from zoo import Captioner, create_model, model_card


def test_an_error_within_training_names_the_last_good_checkpoint(tmp_path: Path) -> None:
    def unreadable(_: Captioner) -> float:
        raise BenchError("the feature cache is gone", "run again")

    with pytest.raises(BenchError, match=r"last good checkpoint: .*step-000000002(\n|$)") as caught:
        fit_tiny(tmp_path, validate=unreadable, interval=0.0)
    assert caught.value.hint == "run again"


def test_a_fall_after_the_switch_to_rewards_is_called_out(tmp_path: Path) -> None:
    first = tiny_schedule().stages[0].model_dump(mode="json") | {"epochs": 1}
    rewards = {"name": "rl", "objective": "self_critical", "epochs": 3}
    schedule = Schedule.model_validate({"name": "t", "summary": "t", "stages": [first, first | rewards]})
    scores, said = iter([0.5, 0.4, 0.6, 0.3]), io.StringIO()
    fit_tiny(tmp_path, schedule=schedule, validate=lambda _: next(scores), said=said, objective=CrossEntropy)
    [dip, end] = [line for line in said.getvalue().splitlines() if "below where rl began" in line]
    assert "40.0 is 10.0 below" in dip
    assert "scores often fall in the first epochs" in dip
    assert "30.0 is 20.0 below" in end
    assert "weights of the best epoch, which are kept, score higher" in end


def test_a_stage_with_a_beam_of_its_own_is_measured_before_it_begins(tmp_path: Path) -> None:
    first = tiny_schedule().stages[0].model_dump(mode="json") | {"epochs": 1}
    rewards = {"name": "rl", "objective": "self_critical", "epochs": 1, "validation_beam_size": 5}
    schedule = Schedule.model_validate({"name": "t", "summary": "t", "stages": [first, first | rewards]})
    scores, said = iter([0.5, 0.7, 0.6]), io.StringIO()
    fit_tiny(tmp_path, schedule=schedule, validate=lambda _: next(scores), said=said, objective=CrossEntropy)
    assert "60.0 is 10.0 below" in said.getvalue()


def test_training_lowers_the_loss_and_counts_images(tmp_path: Path) -> None:
    records: list[EpochRecord] = []
    _, summary = fit_tiny(tmp_path, schedule=tiny_schedule(epochs=12, dropout=0.0), records=records)
    assert records[11].train_loss < 0.5 * records[0].train_loss
    assert summary.images == 24 * IMAGES
    assert summary.total_steps == 72


def test_the_best_weights_win_and_patience_ends_a_stage(tmp_path: Path) -> None:
    scores = iter([0.1, 0.5, 0.3, 0.2, 0.1, 0.9])
    kept: dict[float, dict[str, Tensor]] = {}

    def validate(model: Captioner) -> float:
        score = next(scores)
        kept[score] = weights_of(model)
        return score

    single = Schedule.model_validate(
        {"name": "t", "summary": "t", "stages": [tiny_schedule(epochs=6, patience=2).stages[0].model_dump()]}
    )
    records: list[EpochRecord] = []
    model, summary = fit_tiny(tmp_path, schedule=single, validate=validate, records=records)
    assert [record.val_cider for record in records] == [0.1, 0.5, 0.3, 0.2]
    assert summary.best == 0.5
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in kept[0.5].items())


def test_patience_waits_for_a_score_above_chance(tmp_path: Path) -> None:
    scores = [0.0, 0.0, CHANCE, 0.005, 0.0, 0.3, 0.2, 0.1, 0.9]
    single = Schedule.model_validate(
        {"name": "t", "summary": "t", "stages": [tiny_schedule(epochs=9, patience=2).stages[0].model_dump()]}
    )
    records: list[EpochRecord] = []
    left, said = iter(scores), io.StringIO()
    fit_tiny(tmp_path, schedule=single, validate=lambda _: next(left), records=records, said=said)
    assert [record.val_cider for record in records] == scores[:8]
    assert "epoch 8 of 9, no better since epoch 6" in said.getvalue()


def test_a_batch_in_parts_makes_the_same_steps(tmp_path: Path) -> None:
    whole: list[EpochRecord] = []
    parts: list[EpochRecord] = []
    fit_tiny(tmp_path / "whole", schedule=tiny_schedule(dropout=0.0), records=whole)
    fit_tiny(tmp_path / "parts", schedule=tiny_schedule(dropout=0.0, accumulation={"parts": 2}), records=parts)
    assert [record.train_loss for record in parts] == pytest.approx([record.train_loss for record in whole], rel=1e-4)


def test_gradients_are_clipped_element_by_element(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    largest: list[float] = []
    step = torch.optim.AdamW.step

    def watch(optimiser: torch.optim.AdamW, *_: Any) -> None:
        gradients = [p.grad for group in optimiser.param_groups for p in group["params"] if p.grad is not None]
        largest.append(max(gradient.abs().max().item() for gradient in gradients))
        step(optimiser)

    monkeypatch.setattr(torch.optim.AdamW, "step", watch)
    fit_tiny(tmp_path, schedule=tiny_schedule(clip_norm=None, clip_value=0.001))
    assert max(largest) == pytest.approx(0.001)


def test_summed_gradients_step_first_and_then_at_multiples(tmp_path: Path) -> None:
    torch.manual_seed(3)
    tiny = model_card("blind").tiny
    trained, reference = (create_model("blind", vocab_size=VOCABULARY, visual_dim=8, **tiny) for _ in range(2))
    reference.load_state_dict(trained.state_dict())
    stage = {
        "name": "xe", "epochs": 2, "batch_size": 2, "dropout": 0.0, "learning_rate": {"peak": 0.01},
        "accumulation": {"parts": 2, "gradients": "summed"},
    }  # fmt: skip
    schedule = Schedule.model_validate({"name": "t", "summary": "t", "stages": [stage]})
    scores = iter([1.0, 2.0])
    fit_tiny(tmp_path, schedule=schedule, model=trained, validate=lambda _: next(scores))

    reference.set_dropout(0.0)
    objective = CrossEntropy(schedule.stages[0])
    optimiser = make_optimiser(reference, schedule.stages[0].optimiser)
    optimiser.param_groups[0]["lr"] = 0.01
    batches = [batch for number in range(2) for batch in Loader(None).epoch(number)]
    for together in ((0,), (1, 2), (3, 4)):  # the last batch's gradients are still waiting when training ends
        optimiser.zero_grad()
        for number in together:
            objective(reference, batches[number]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    for name, value in weights_of(reference).items():
        torch.testing.assert_close(trained.state_dict()[name], value, atol=1e-6, rtol=1e-6)


def test_a_stage_on_the_backbone_needs_a_model_that_has_one(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="stage 'xe' trains the backbone"):
        fit_tiny(tmp_path, schedule=tiny_schedule(backbone="trained"))


def test_denormal_numbers_are_zero_while_training_and_not_after(tmp_path: Path) -> None:
    smallest = torch.full((64,), torch.finfo(torch.float32).tiny)
    seen = []

    def validate(_: Captioner) -> float:
        seen.append(bool((smallest / 2).any()))
        return 0.5

    fit_tiny(tmp_path, validate=validate)
    assert seen
    assert not any(seen)
    assert (smallest / 2).any()


@pytest.mark.parametrize(
    ("poisoned", "every", "interval", "saved", "steps"), [(5, 1, 0.0, 4, 5), (5, 20, 1e9, 1, 6), (2, 20, 0.0, 1, 2)]
)
def test_a_loss_that_is_no_number_stops_with_its_step_before_it_is_saved(
    tmp_path: Path, poisoned: int, every: int, interval: float, saved: int, steps: int
) -> None:
    """However late losses are read: three steps an epoch, so that a fifth is read at the sixth at the latest."""
    calls = 0

    class Poisoned(CrossEntropy):
        def __call__(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:
            nonlocal calls
            calls += 1
            return super().__call__(model, batch, epoch) * (float("nan") if calls == poisoned else 1.0)

    with pytest.raises(TrainingDivergedError, match=rf"at step {poisoned} .*checkpoint: .*step-00000000{saved}"):
        fit_tiny(tmp_path, objective=Poisoned, interval=interval, read_losses_every=every)
    assert calls == steps


def test_no_memory_for_the_optimiser_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*given: Any) -> Any:
        optimiser = make_optimiser(*given)
        monkeypatch.setattr(optimiser, "step", Mock(side_effect=torch.OutOfMemoryError))
        return optimiser

    monkeypatch.setattr("harness.training.trainer.make_optimiser", made)
    with pytest.raises(BenchError, match="the optimiser's state"):
        fit_tiny(tmp_path)
