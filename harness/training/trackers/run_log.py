"""A run's numbers to all trackers that were asked for; a tracker that fails is left out, and the run goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from harness.training.losses import StepLoss
from harness.training.trackers.interface import TrackedRun, Tracker
from harness.training.trackers.opening import open_tracker
from harness.utils.files import shortened
from harness.utils.progress import Reporter
from results.records import EpochRecord, Outcome


class RunLog:
    """Trackers of one run; a context manager, because they are closed whatever becomes of the run.

    Per step: loss, gradient norm and learning rate. Per epoch: validation CIDEr-D times 100, images a second. At the
    end: scores times 100 by split and metric, and costs by name.
    """

    def __init__(self, names: Sequence[str], run: TrackedRun, reporter: Reporter) -> None:
        self._names, self._run, self._reporter = names, run, reporter
        self._open: dict[str, Tracker] = {}
        self._finished = False

    def __enter__(self) -> Self:
        for name in self._names:
            self._try(name, partial(self._start, name))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, tracker in list(self._open.items()):
            self._try(name, partial(tracker.close, finished=self._finished))

    def on_step(self, found: StepLoss) -> None:
        """A step whose loss was read."""
        values = {"train/loss": found.loss, "train/gradient_norm": found.norm, "train/learning_rate": found.rate}
        self._tell(lambda tracker: tracker.log(found.step, values))

    def on_epoch(self, record: EpochRecord) -> None:
        """An epoch that ended."""
        values = {"epoch/train_loss": record.train_loss, "epoch/images_per_second": record.images_per_second}
        if record.val_cider is not None:
            values["validation/CIDEr-D"] = 100 * record.val_cider
        self._tell(lambda tracker: tracker.log(record.step, values))

    def finish(self, outcome: Outcome) -> None:
        """The run's scores and costs; what was not measured is left out."""
        values = final_values(outcome)
        self._tell(lambda tracker: tracker.summarise(values))
        self._finished = True

    def _start(self, name: str) -> None:
        self._open[name] = open_tracker(name, self._run)

    def _tell(self, say: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._open.items()):
            self._try(name, partial(say, tracker))

    def _try(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # a run is worth more than its curves in another program
            self._open.pop(name, None)
            said = shortened(" ".join(str(error).split()), 300)
            self._reporter.note(f"--log {name} failed and is left out: {type(error).__name__}: {said}", style="yellow")


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
