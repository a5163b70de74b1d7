"""Each tracker offline: what it is told can be read again by its own library, also after a run was resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.training.trackers.opening import open_tracker
from tests.harness.training.trackers.test_run_log import tracked


def told_in_two_parts(name: str, folder: Path) -> None:
    """A run that was killed after its first step and resumed."""
    first = open_tracker(name, tracked(folder))
    first.log(1, {"train/loss": 3.0})
    first.close(finished=False)
    second = open_tracker(name, tracked(folder))
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
    experiment = client.get_experiment_by_name("captionbench")
    [run] = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.data.params["schedule"]) == ("FINISHED", "quick")
    assert [metric.value for metric in client.get_metric_history(run.info.run_id, "train/loss")] == [3.0, 2.0]
    assert run.data.metrics["test/CIDEr-D"] == 90.0
