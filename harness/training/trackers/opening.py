"""The trackers of `--log` by name, and what each needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from harness.training.trackers.interface import TrackedRun, Tracker
from harness.utils.errors import BenchError

TRACKERS = ("tensorboard", "wandb", "mlflow")


def check_trackers(names: Sequence[str]) -> None:
    """BenchError where a tracker is unknown, given twice, or its package is not installed."""
    for number, name in enumerate(names):
        if name not in TRACKERS:
            raise BenchError(f"--log {name}: there is no such tracker", f"choose from {', '.join(TRACKERS)}")
        if name in names[:number]:
            raise BenchError(f"--log {name} is given twice", "leave one of them out")
        if find_spec(name) is None:
            raise BenchError(f"--log {name} needs a package that is not installed", f"uv sync --extra {name}")


def open_tracker(name: str, run: TrackedRun) -> Tracker:
    """A tracker of one run."""
    return _CONSTRUCTORS[name](run)


def _tensorboard(run: TrackedRun) -> Tracker:
    from harness.training.trackers.tensorboard import TensorBoardTracker

    return TensorBoardTracker(run)


def _wandb(run: TrackedRun) -> Tracker:
    from harness.training.trackers.wandb import WandbTracker

    return WandbTracker(run)


def _mlflow(run: TrackedRun) -> Tracker:
    from harness.training.trackers.mlflow import MlflowTracker

    return MlflowTracker(run)


_CONSTRUCTORS: dict[str, Callable[[TrackedRun], Tracker]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
