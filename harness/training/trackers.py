"""Experiment trackers (`--log`), which show runs beside the results database: TensorBoard, Weights & Biases, MLflow."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.progress import Reporter
from results.errors import install_extra
from results.records import EpochRecord, Outcome, RunSpec

if TYPE_CHECKING:
    from harness.training.losses import StepLoss

MLFLOW_KEY = "captionbench.key"


class Tracker(Protocol):
    """Shows the numbers of one run; open from its construction to `close`. A resumed run continues under its key."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Show values of an optimiser step, counted over all stages from 1."""

    def summarise(self, values: Mapping[str, float]) -> None:
        """Show final scores and costs."""
        self.log(0, values)

    def close(self, *, finished: bool) -> None:
        """Write what is not written yet.

        Args:
            finished: whether the run finished, rather than failed or was interrupted.
        """


class TensorBoardTracker(Tracker):
    """A run as a folder of event files, which `tensorboard --logdir WORKSPACE/logs/tensorboard` shows."""

    def __init__(self, run: RunSpec, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard" / run.key))
        self._writer.add_text("settings", "\n".join([f"    {name}: {value}" for name, value in run.signature.items()]))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self, *, finished: bool) -> None:
        """Write what is not written yet, and the state as a number: event files have no state of a run."""
        self._writer.add_scalar("finished", float(finished), 0)
        self._writer.close()


class WandbTracker(Tracker):
    """A run of the project that `WANDB_PROJECT` names, by default `captionbench`; offline by `WANDB_MODE=offline`."""

    def __init__(self, run: RunSpec, folder: Path) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "captionbench"),
            id=run.key,
            name=f"{run.model} seed {run.seed}",
            group=_group(run),
            config=dict(run.signature),
            dir=str(folder),
            resume="allow",
            settings=wandb.Settings(console="off", silent=True),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Values of a step; those of steps before a resumed run's last are dropped by W&B."""
        self._run.log(dict(values), step=step)

    def summarise(self, values: Mapping[str, float]) -> None:
        self._run.summary.update(dict(values))

    def close(self, *, finished: bool) -> None:
        """End the run; it shows as crashed unless it finished."""
        self._run.finish(exit_code=0 if finished else 1)


class MlflowTracker(Tracker):
    """A run of the experiment that `MLFLOW_EXPERIMENT_NAME` names, by default `captionbench`.

    On the server of `MLFLOW_TRACKING_URI`, or without one in a SQLite file of the workspace.
    """

    def __init__(self, run: RunSpec, folder: Path) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        folder.mkdir(parents=True, exist_ok=True)
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.resolve() / 'mlflow.db'}"
        self._client = MlflowClient(uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "captionbench")
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        previous_runs = self._client.search_runs([experiment_id], f"tags.`{MLFLOW_KEY}` = '{run.key}'", max_results=1)
        if previous_runs:
            self._id = previous_runs[0].info.run_id
            self._client.update_run(self._id, "RUNNING")
            return
        tags = {MLFLOW_KEY: run.key, "group": _group(run)}
        created = self._client.create_run(experiment_id, run_name=f"{run.model} seed {run.seed}", tags=tags)
        self._id = created.info.run_id
        settings = [Param(name, str(value)[:500]) for name, value in run.signature.items()]
        self._client.log_batch(self._id, params=settings[:100])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._id, metrics=[Metric(name, value, now, step) for name, value in values.items()])

    def close(self, *, finished: bool) -> None:
        self._client.set_terminated(self._id, "FINISHED" if finished else "FAILED")


def _group(run: RunSpec) -> str:
    """The group of runs that are compared: data set and schedule."""
    return f"{run.dataset} {run.signature.get('schedule', '')}".rstrip()


TRACKERS: Final[Mapping[str, Callable[[RunSpec, Path], Tracker]]] = {
    "tensorboard": TensorBoardTracker,
    "wandb": WandbTracker,
    "mlflow": MlflowTracker,
}


def check_trackers(names: Sequence[str]) -> None:
    """BenchError if a tracker is unknown, named twice, or its package is not installed."""
    for index, name in enumerate(names):
        if name not in TRACKERS:
            raise BenchError(f"--log {name}: there is no such tracker", f"choose from {', '.join(TRACKERS)}")
        if name in names[:index]:
            raise BenchError(f"--log {name} is given twice", "leave one of them out")
        if find_spec(name) is None:
            raise BenchError(f"--log {name} needs a package that is not installed", install_extra(name))


class RunLog:
    """The trackers of one run; a context manager, so that they are closed if the run fails.

    Per step: loss, gradient norm and learning rate. Per epoch: validation CIDEr-D times 100, images a second. At the
    end: scores times 100 by split and metric, and costs by name. Trackers' files lie in `folder`.
    """

    def __init__(self, names: Sequence[str], run: RunSpec, folder: Path, reporter: Reporter) -> None:
        self._names = names
        self._run = run
        self._folder = folder
        self._reporter = reporter
        self._open: dict[str, Tracker] = {}
        self._finished = False

    def __enter__(self) -> Self:
        for name in self._names:
            self._try(name, partial(self._start, name))
        return self

    def __exit__(self, *_: object) -> None:
        for name, tracker in list(self._open.items()):
            self._try(name, partial(tracker.close, finished=self._finished))

    def on_step(self, loss: StepLoss) -> None:
        """Log a step's loss, gradient norm and learning rate."""
        values = {"train/loss": loss.loss, "train/gradient_norm": loss.norm, "train/learning_rate": loss.rate}
        self._for_each_tracker(lambda tracker: tracker.log(loss.step, values))

    def on_epoch(self, record: EpochRecord) -> None:
        """Log a finished epoch."""
        values = {"epoch/train_loss": record.train_loss, "epoch/images_per_second": record.images_per_second}
        if record.val_cider is not None:
            values["validation/CIDEr-D"] = 100 * record.val_cider
        self._for_each_tracker(lambda tracker: tracker.log(record.step, values))

    def finish(self, outcome: Outcome) -> None:
        """Log the run's scores and costs, except those that were not measured."""
        values = final_values(outcome)
        self._for_each_tracker(lambda tracker: tracker.summarise(values))
        self._finished = True

    def _start(self, name: str) -> None:
        self._open[name] = TRACKERS[name](self._run, self._folder)

    def _for_each_tracker(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._open.items()):
            self._try(name, partial(call, tracker))

    def _try(self, name: str, call: Callable[[], None]) -> None:
        """Call a tracker; one that fails is closed and left out, and the run continues."""
        try:
            call()
        except Exception as error:
            tracker = self._open.pop(name, None)
            if tracker is not None:
                with suppress(Exception):  # unclosed, W&B's and MLflow's servers would show it as running for ever
                    tracker.close(finished=False)
            message = shortened(" ".join(str(error).split()), 300)
            self._reporter.note(
                f"--log {name} failed and is left out: {type(error).__name__}: {message}", style="yellow"
            )


def final_values(outcome: Outcome) -> Mapping[str, float]:
    """Scores times 100 and costs, by names as trackers group them."""
    scores = {
        f"{split.split}/{metric}": 100 * score.value
        for split in outcome.splits
        for metric, score in split.scores.get("overall", {}).items()
        if score.value is not None
    }
    costs = {f"cost/{name}": cost.value for name, cost in outcome.costs.items() if cost.value is not None}
    return {name: value for name, value in (scores | costs).items() if math.isfinite(value)}
