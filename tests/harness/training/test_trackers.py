"""What trackers are told of a run, that one's failure leaves the run alone, and that their libraries read it again."""

import io
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from harness.training.losses import StepLoss
from harness.training.trackers import TRACKERS, RunLog, check_trackers
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from results.records import Quantity, RunSpec
from tests.results.conftest import Make

STEP = StepLoss(7, loss=2.5, norm=1.5, rate=0.01)
RUN = RunSpec("updown-s0-abc", "updown", "model", 0, "controlled", "scenes", {}, {"schedule": "quick"})


class Recorder:
    """A tracker that keeps what it is told."""

    def __init__(self, failing: bool = False) -> None:
        self.failing = failing
        self.logged: dict[int, dict[str, float]] = {}
        self.summary: dict[str, float] = {}
        self.finished: bool | None = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if self.failing:
            raise OSError("no space")
        self.logged.setdefault(step, {}).update(values)

    def summarise(self, values: Mapping[str, float]) -> None:
        self.summary.update(values)

    def close(self, *, finished: bool) -> None:
        self.finished = finished


@pytest.fixture
def recorders(monkeypatch: pytest.MonkeyPatch) -> dict[str, Recorder]:
    found = {"sound": Recorder(), "broken": Recorder(failing=True)}
    openers = {name: partial(lambda recorder, *_: recorder, recorder) for name, recorder in found.items()}
    monkeypatch.setattr("harness.training.trackers.TRACKERS", openers)
    return found


def test_steps_epochs_and_final_numbers_reach_every_tracker(recorders: dict[str, Recorder], tmp_path: Path) -> None:
    told = io.StringIO()
    outcome = replace(
        Make.outcome(0.9), costs={"train_seconds": Quantity(3.0), "energy_per_image": Quantity(None, "no meter")}
    )
    with RunLog(["broken", "sound"], RUN, tmp_path, Reporter(Console(file=told, width=200))) as log:
        log.on_step(STEP)
        log.on_epoch(replace(Make.epoch(1), step=7, train_loss=2.4, val_cider=0.5, images_per_second=60.0))
        log.on_epoch(replace(Make.epoch(2), step=8, val_cider=None))
        log.finish(outcome)
    sound = recorders["sound"]
    assert sound.logged[7] == {
        "train/loss": 2.5,
        "train/gradient_norm": 1.5,
        "train/learning_rate": 0.01,
        "epoch/train_loss": 2.4,
        "epoch/images_per_second": 60.0,
        "validation/CIDEr-D": 50.0,
    }
    assert "validation/CIDEr-D" not in sound.logged[8]
    assert sound.summary["cost/train_seconds"] == 3.0
    assert "cost/energy_per_image" not in sound.summary, "what was not measured is no number"
    assert sound.summary["test/CIDEr-D"] == pytest.approx(90.0)
    assert sound.finished
    assert recorders["broken"].finished is False
    assert told.getvalue().count("--log broken failed and is left out: OSError: no space") == 1


def test_a_run_that_fails_is_closed_as_such(recorders: dict[str, Recorder], tmp_path: Path) -> None:
    def fail() -> None:
        with RunLog(["sound"], RUN, tmp_path, Reporter()) as log:
            log.on_step(STEP)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert recorders["sound"].finished is False


def test_names_are_checked_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BenchError, match="no such tracker"):
        check_trackers(["neptune"])
    monkeypatch.setattr("harness.training.trackers.find_spec", lambda _: None)
    with pytest.raises(BenchError, match="not installed") as error:
        check_trackers(["wandb"])
    assert error.value.hint == "uv sync --inexact --extra wandb"
    monkeypatch.undo()
    with pytest.raises(BenchError, match="given twice"):
        check_trackers(["tensorboard", "tensorboard"])


def told_in_two_parts(name: str, folder: Path) -> None:
    """A run that was killed after its first step and resumed."""
    first = TRACKERS[name](RUN, folder)
    first.log(1, {"train/loss": 3.0})
    first.close(finished=False)
    second = TRACKERS[name](RUN, folder)
    second.log(2, {"train/loss": 2.0})
    second.summarise({"test/CIDEr-D": 90.0})
    second.close(finished=True)


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told_in_two_parts("tensorboard", tmp_path)
    read = EventAccumulator(str(tmp_path / "tensorboard" / "updown-s0-abc"))
    read.Reload()
    assert [(event.step, event.value) for event in read.Scalars("train/loss")] == [(1, 3.0), (2, 2.0)]
    assert [event.value for event in read.Scalars("test/CIDEr-D")] == [90.0]


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    told_in_two_parts("wandb", tmp_path)
    written = list((tmp_path / "wandb").glob("offline-run-*-updown-s0-abc/run-updown-s0-abc.wandb"))
    assert sum(b"train/loss" in file.read_bytes() for file in written) >= 1


def test_mlflow_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    told_in_two_parts("mlflow", tmp_path)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path.resolve()}/mlflow.db")
    [run] = client.search_runs([client.get_experiment_by_name("captionbench").experiment_id])
    assert (run.info.status, run.data.params["schedule"]) == ("FINISHED", "quick")
    assert [metric.value for metric in client.get_metric_history(run.info.run_id, "train/loss")] == [3.0, 2.0]
    assert run.data.metrics["test/CIDEr-D"] == 90.0
