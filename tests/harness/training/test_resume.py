"""A training that was killed continues as if nothing had been, bit for bit."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from harness.config.schedule import Optimiser, Stage
from harness.data.batches import Batch
from harness.training import trainer
from harness.training.checkpoint import last_checkpoint
from harness.training.objectives import CrossEntropy, Objective
from harness.utils.signals import ENDING, end_on_sigterm
from results.records import EpochRecord
from tests.harness.training.test_state import STORED
from tests.harness.training.tiny_training import Killed, Loader, fit_tiny, tiny_schedule, weights_of
from zoo import Captioner


@pytest.mark.parametrize("kill_at", [(0, 0), (0, 2), (1, 1), (2, 0)])
def test_a_killed_run_resumes_bit_for_bit(tmp_path: Path, kill_at: tuple[int, int]) -> None:
    undisturbed: list[EpochRecord] = []
    expected, summary = fit_tiny(tmp_path / "undisturbed", records=undisturbed)
    resumed: list[EpochRecord] = []
    with pytest.raises(Killed):
        fit_tiny(tmp_path / "killed", kill_at=kill_at, records=resumed)
    model, again = fit_tiny(tmp_path / "killed", records=resumed)
    for name, value in weights_of(expected).items():
        assert torch.equal(value, model.state_dict()[name]), name
    assert (again.steps, again.images, again.best_cider) == (summary.steps, summary.images, summary.best_cider)
    assert [(r.stage, r.epoch, r.train_loss, r.val_cider, r.step) for r in resumed] == [
        (r.stage, r.epoch, r.train_loss, r.val_cider, r.step) for r in undisturbed
    ]


def test_losses_read_late_are_those_read_at_once(tmp_path: Path) -> None:
    """Also of a run that is killed between two readings, whose last checkpoint has read what was before it."""
    at_once: list[EpochRecord] = []
    late: list[EpochRecord] = []
    expected, _ = fit_tiny(tmp_path / "at-once", records=at_once)
    with pytest.raises(Killed):
        fit_tiny(tmp_path / "late", records=late, kill_at=(1, 2), read_losses_every=20)
    model, _ = fit_tiny(tmp_path / "late", records=late, read_losses_every=20)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights_of(expected).items())
    assert [(r.epoch, r.train_loss, r.step) for r in late] == [(r.epoch, r.train_loss, r.step) for r in at_once]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [1, 3, 4])  # the last of these is the first of the second epoch
def test_a_signal_waits_for_its_step_and_a_checkpoint(tmp_path: Path, step: int, number: signal.Signals) -> None:
    steps: list[int] = []

    class Signalled(CrossEntropy):
        """Sends this process a signal in the middle of a step."""

        def __call__(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:
            steps.append(epoch)
            if len(steps) == step:
                signal.raise_signal(number)
            return super().__call__(model, batch, epoch)

    expected, summary = fit_tiny(tmp_path / "undisturbed", interval=1e9)
    records: list[EpochRecord] = []
    before = {each: signal.getsignal(each) for each in ENDING}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background inherit that it is ignored
    end_on_sigterm()
    try:
        with pytest.raises(KeyboardInterrupt):
            fit_tiny(tmp_path / "stopped", interval=1e9, objective=Signalled, records=records)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert len(steps) == step
    assert len(records) == (step > 3)  # it comes before the validation of the epoch that it ends
    model, again = fit_tiny(tmp_path / "stopped", interval=1e9, objective=Signalled)
    assert len(steps) == summary.steps == again.steps
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights_of(expected).items())


def test_a_kill_between_stages_changes_nothing_of_the_next(tmp_path: Path) -> None:
    """With another optimiser, whose settings are not those of the stage before."""
    first, second = tiny_schedule().stages
    other = second.model_copy(update={"optimiser": Optimiser(name="adam", betas=(0.5, 0.6), weight_decay=0.1)})
    schedule = tiny_schedule().model_copy(update={"stages": (first, other)})
    expected, _ = fit_tiny(tmp_path / "undisturbed", schedule=schedule)
    with pytest.raises(Killed):
        fit_tiny(tmp_path / "killed", schedule=schedule, kill_at=(0, 0), kill_stage="second")
    model, _ = fit_tiny(tmp_path / "killed", schedule=schedule)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights_of(expected).items())


def test_a_kill_during_validation_repeats_only_what_was_lost(tmp_path: Path) -> None:
    expected, _ = fit_tiny(tmp_path / "undisturbed", interval=1e9, validate=lambda _: 1.0)

    def die(_: Captioner) -> float:
        raise Killed

    with pytest.raises(Killed):
        fit_tiny(tmp_path / "killed", interval=1e9, validate=die)
    model, _ = fit_tiny(tmp_path / "killed", interval=1e9, validate=lambda _: 1.0)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights_of(expected).items())


def test_out_of_memory_is_noted_once_and_kept_on_resume(tmp_path: Path) -> None:
    def small(stage: Stage) -> Objective:
        inner = CrossEntropy(stage)

        class Small:
            def __call__(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:
                asked.append(len(batch.image_ids))
                if len(batch.image_ids) > 1:
                    raise torch.OutOfMemoryError
                return inner(model, batch, epoch)

            def weight(self, batch: Batch) -> float:
                return inner.weight(batch)

        return Small()

    asked: list[int] = []
    said = io.StringIO()
    schedule = tiny_schedule(dropout=0.0)
    whole, parts = [], []
    fit_tiny(tmp_path / "whole", schedule=schedule, records=whole)
    with pytest.raises(Killed):
        fit_tiny(tmp_path / "parts", schedule=schedule, records=parts, objective=small, said=said, kill_at=(1, 1))
    _, summary = fit_tiny(tmp_path / "parts", schedule=schedule, records=parts, objective=small, said=said)
    assert asked.count(2) == 1
    assert said.getvalue().count("out of memory: every batch is worked through in 2 parts") == 1
    assert summary.micro_batches == 2
    assert [record.train_loss for record in parts] == pytest.approx([record.train_loss for record in whole], rel=1e-4)


def test_a_finished_run_trains_no_more(tmp_path: Path) -> None:
    expected, summary = fit_tiny(tmp_path)
    records: list[EpochRecord] = []
    model, again = fit_tiny(tmp_path, records=records, kill_at=(0, 0))
    assert records == []
    assert again == summary
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights_of(expected).items())


def test_data_wait_is_counted_apart_and_survives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = SimpleNamespace(now=0.0)
    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=lambda: moment.now))
    epoch = Loader.epoch

    def slow(self: Loader, number: int, start: int = 0) -> Iterator[Batch]:
        for batch in epoch(self, number, start):
            moment.now += 0.25
            yield batch

    monkeypatch.setattr(Loader, "epoch", slow)
    with pytest.raises(Killed):
        fit_tiny(tmp_path, kill_at=(1, 2), interval=0.0)
    _, summary = fit_tiny(tmp_path)
    assert summary.data_wait_seconds == 0.25 * 12
    assert summary.seconds == 0


@pytest.mark.parametrize("kill_at", [(1, 0), (1, 2)])
def test_a_kill_between_summed_gradients_changes_nothing(tmp_path: Path, kill_at: tuple[int, int]) -> None:
    schedule = tiny_schedule(accumulation={"parts": 2, "gradients": "summed"})
    expected, _ = fit_tiny(tmp_path / "undisturbed", schedule=schedule)
    with pytest.raises(Killed):
        fit_tiny(tmp_path / "killed", schedule=schedule, kill_at=kill_at)
    model, _ = fit_tiny(tmp_path / "killed", schedule=schedule)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights_of(expected).items())


@pytest.mark.parametrize("kill_at", [(1, 1), (2, 0)])
def test_scheduled_sampling_and_plateaus_survive_a_kill(tmp_path: Path, kill_at: tuple[int, int]) -> None:
    schedule = tiny_schedule(
        learning_rate={"peak": 0.01, "annealing": "plateau", "factor": 0.5, "plateau": {"patience": 0}},
        scheduled_sampling={"every": 1, "step": 0.5, "most": 1.0},
    )
    undisturbed: list[EpochRecord] = []
    falling = iter([0.9, 0.8, 0.7, 0.6, 0.5])
    expected, _ = fit_tiny(
        tmp_path / "undisturbed", schedule=schedule, validate=lambda _: next(falling), records=undisturbed
    )
    assert [record.learning_rate for record in undisturbed] == [0.01, 0.01, 0.005, 0.01]
    resumed: list[EpochRecord] = []
    falling = iter([0.9, 0.8, 0.7, 0.6, 0.5])
    with pytest.raises(Killed):
        fit_tiny(tmp_path / "k", schedule=schedule, validate=lambda _: next(falling), records=resumed, kill_at=kill_at)
    model, _ = fit_tiny(tmp_path / "k", schedule=schedule, validate=lambda _: next(falling), records=resumed)
    assert [record.learning_rate for record in resumed] == [0.01, 0.01, 0.005, 0.01]
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights_of(expected).items())


def test_a_checkpoint_of_an_older_release_resumes_bit_for_bit(tmp_path: Path) -> None:
    expected, _ = fit_tiny(tmp_path / "undisturbed")
    with pytest.raises(Killed):
        fit_tiny(tmp_path / "killed", kill_at=(1, 1))
    checkpoint = last_checkpoint(tmp_path / "killed" / trainer.CHECKPOINTS)
    assert checkpoint is not None
    stored = torch.load(checkpoint / "state.pt", weights_only=True)
    assert stored["position"].keys() == STORED.keys(), "as older releases write and read it"
    for later in ("parts", "waited", "latest"):  # which the first releases did not have
        del stored["position"][later]
    for later in ("other_generators", "objective", "gradients"):
        del stored[later]
    torch.save(stored, checkpoint / "state.pt")
    model, _ = fit_tiny(tmp_path / "killed")
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights_of(expected).items())
