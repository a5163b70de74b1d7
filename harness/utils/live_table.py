"""A table of the runs at work that a terminal shows while they go on, above the bars; elsewhere lines are printed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from harness.utils.progress import Reporter, describe_seconds
from harness.utils.run_events import (
    EvaluationBegins,
    RunBegins,
    RunEnds,
    RunEvent,
    RunsEnded,
    TrainingStands,
    Validated,
)

UNKNOWN = "-"


@dataclass(slots=True)
class _Row:
    """A worker's run; `first` and `last` are when its share of training was first and last told, and the share."""

    name: str
    begun: float
    stage: str = UNKNOWN
    epoch: str = UNKNOWN
    best: float | None = None
    first: tuple[float, float] | None = None
    last: tuple[float, float] | None = None

    def left(self, now: float) -> float | None:
        """Seconds of training that are left at the speed since it was first told; None before that can be said."""
        if self.first is None or self.last is None or self.last[1] <= self.first[1]:
            return None
        pace = (self.last[0] - self.first[0]) / (self.last[1] - self.first[1])
        return max(pace * (1 - self.last[1]) - (now - self.last[0]), 0.0)


class RunTable:
    """What every worker does, kept from its events."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        self._took: list[float] = []
        self._ended, self._planned = 0, 0

    def watch(self, event: RunEvent, worker: int, now: float) -> None:
        """Take in what a worker says; seconds of any clock that does not go back."""
        if isinstance(event, RunsEnded):
            self._ended, self._planned = event.ended, event.planned
        elif isinstance(event, RunBegins):
            self._rows[worker] = _Row(f"{event.model} seed {event.seed}", now)
        elif (row := self._rows.get(worker)) is None:
            return
        elif isinstance(event, RunEnds):
            self._took.append(now - self._rows.pop(worker).begun)
        elif isinstance(event, EvaluationBegins):
            row.stage, row.epoch, row.first, row.last = "evaluation", UNKNOWN, None, None
        elif isinstance(event, Validated):
            row.best = event.score if row.best is None else max(row.best, event.score)
        else:
            self._train(row, event, now)

    def _train(self, row: _Row, event: TrainingStands, now: float) -> None:
        if row.stage != event.stage:
            row.best = None
        row.stage, row.epoch = event.stage, f"{event.epoch}/{event.epochs}"
        row.best = event.best if row.best is None else row.best
        row.first, row.last = row.first or (now, event.done), (now, event.done)

    def left(self, now: float) -> float | None:
        """Seconds until all runs have ended, if as many as now stay at work; None where it cannot be told.

        A run that does not tell takes as long as the others on average.
        """
        told = {worker: row.left(now) for worker, row in self._rows.items()}
        took = [*self._took]
        took += [now - self._rows[worker].begun + left for worker, left in told.items() if left is not None]
        if not took:
            return None
        mean = fmean(took)
        lefts = [
            max(mean - (now - self._rows[worker].begun), 0.0) if left is None else left for worker, left in told.items()
        ]
        waiting = max(self._planned - self._ended - len(self._rows), 0)
        return (sum(lefts) + waiting * mean) / max(len(self._rows), 1) or None

    def render(self, now: float) -> RenderableType:
        """The table, or nothing where no run is at work."""
        if not self._rows:
            return Text()
        left = self.left(now)
        table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False, expand=True)
        table.add_column("Run", no_wrap=True, overflow="ellipsis", ratio=1)
        table.add_column("Stage", no_wrap=True, overflow="ellipsis", max_width=18)
        for heading, width in (("Epoch", 7), ("CIDEr-D", 7), ("Time left", 11)):
            table.add_column(heading, justify="right", no_wrap=True, min_width=width)
        for row in self._rows.values():
            best = UNKNOWN if row.best is None else f"{100 * row.best:.1f}"
            table.add_row(Text(row.name), Text(row.stage), row.epoch, best, _said(row.left(now)))
        table.add_section()
        total = f"{self._ended} of {self._planned} runs ended"
        table.add_row(Text(total, style="bold"), "", "", "", Text(_said(left), style="bold"))
        return table


class LiveReporter(Reporter):
    """A reporter that shows the table above its bars, where it has any."""

    def __init__(self, console: Console | None = None) -> None:
        self.runs = RunTable()
        super().__init__(console)

    def make_bars(self, *columns: Any, **options: Any) -> Progress:
        """The bars with the table above them."""
        return _TableAndBars(self.runs, *columns, **options)

    def watch(self, event: RunEvent, worker: int = 0) -> None:
        """See `Reporter.watch`."""
        self.runs.watch(event, worker, time.monotonic())


class _TableAndBars(Progress):
    def __init__(self, runs: RunTable, *columns: Any, **options: Any) -> None:
        self._runs = runs
        super().__init__(*columns, **options)

    def get_renderables(self) -> Iterable[RenderableType]:
        """The table, then the bars."""
        yield self._runs.render(time.monotonic())
        yield from super().get_renderables()


def _said(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else describe_seconds(seconds)
