"""Progress of long commands: bars on a terminal, plain lines elsewhere; and a table of the runs at work above the bars.

The table reads what workers, on whatever machine, say in the store (`harness.benchmark.work.RunReporter`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from statistics import fmean
from typing import Any, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from results.errors import without_passwords

PLAIN_INTERVAL_S = 20.0
UNKNOWN = "-"
READ_S = 1.0
Said = Mapping[str, Any]
"""What a run last said that it is at: stage, epoch, epochs, best (a fraction), left_s; its last `notes`, of `noted`."""


class Task:
    """One countable task; `advance` adds to its count, `detail` is the latest figure (a loss, a score)."""

    def __init__(self, reporter: Reporter, title: str, total: int, done: int) -> None:
        self._reporter, self._title, self._total, self._done = reporter, title, total, done
        self._first_done, self._started, self._spoken = 0, 0.0, time.monotonic()
        self._bars = reporter.bars
        if self._bars:
            self.bar = self._bars.add_task(escape(title), total=total, completed=done, detail="")

    def advance(self, count: int = 1, detail: str = "") -> None:
        """Count `count` more units."""
        self.reach(self._done + count, detail)

    def reach(self, done: int, detail: str = "") -> None:
        """Set the count to `done` of the total."""
        self._done = done
        if not self._started:  # setup before the first unit is not part of the rate
            self._first_done, self._started = done, time.monotonic()
        if self._bars:
            self._bars.update(self.bar, completed=done, detail=escape(detail))
        elif time.monotonic() - self._spoken >= PLAIN_INTERVAL_S:
            self._spoken = time.monotonic()
            self._reporter.note(f"{self._title}: {done}/{self._total} {detail}{self._time_left()}")

    def _time_left(self) -> str:
        moved = self._done - self._first_done
        if not moved or self._done >= self._total:
            return ""
        seconds = (time.monotonic() - self._started) / moved * (self._total - self._done)
        return f" (about {describe_seconds(seconds)} left)"


class Reporter:
    """Reports a command's progress; a context manager, because terminal bars must be removed at the end."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._over = threading.Event()
        self.bars: _Bars | None = None
        if self.console.is_terminal:
            self.bars = _Bars(
                TextColumn("{task.description}"),
                BarColumn(bar_width=10),
                MofNCompleteColumn(),
                TimeRemainingColumn(compact=True),
                # The last column gets the remaining width: a narrow terminal truncates it, never a count.
                TextColumn("{task.fields[detail]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
                console=self.console,
                transient=True,
                expand=True,
            )

    def follow(self, runs: RunTable, *, tell: bool) -> None:
        """Show a table of runs from now on; where the console is no terminal, `tell` has what runs note printed."""
        if self.bars is not None:
            self.bars.runs = runs
        if self.bars is not None or tell:
            threading.Thread(target=self._keep_reading, args=(runs,), daemon=True, name="live-table").start()

    def _keep_reading(self, runs: RunTable) -> None:
        while not self._over.wait(READ_S):
            with suppress(Exception):  # a store that is busy or gone is the runs' business
                runs.update(time.monotonic())
            for line in runs.new_lines() if self.bars is None else ():
                self.note(line)

    def watch(self, **said: Any) -> None:
        """Take in how far a run is; lines and bars say it already, so that only a table of runs needs it.

        Said are the `stage`, "evaluation" after training, its `epoch` from 1 of `epochs`, its `best` validation CIDEr-D
        as a fraction, and `done`, the share of all stages; or what was `validated` just now.
        """

    def __enter__(self) -> Self:
        if self.bars:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self.bars:
            self.bars.stop()

    def note(self, text: str, style: str = "") -> None:
        """Print one line, without markup."""
        self.console.print(escape(without_passwords(text)), style=style, soft_wrap=True)

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Task]:
        """A task of `total` units, of which `done` are done."""
        task = Task(self, title, total, done)
        try:
            yield task
        finally:
            if self.bars:
                self.bars.remove_task(task.bar)


def silent() -> Reporter:
    """A reporter that shows nothing."""
    return Reporter(Console(quiet=True))


def describe_seconds(seconds: float) -> str:
    """A readable duration: 8 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class RunTable:
    """What all runs of a command are at; `read` gives status and what was last said of every run."""

    def __init__(
        self, names: Mapping[str, str], read: Callable[[], Mapping[str, tuple[str | None, Said | None]]]
    ) -> None:
        self._names, self._read = names, read
        self._at_work: dict[str, Said] = {}
        self._begun: dict[str, float] = {}
        self._told: dict[str, int] = {}
        self._took: list[float] = []
        self._ended = 0

    def update(self, now: float) -> None:
        """Read the store; seconds of any clock that does not go back."""
        found = self._read()
        self._ended = sum(status in {"finished", "failed", "skipped"} for status, _ in found.values())
        at_work = {key: said or {} for key, (status, said) in found.items() if status == "running"}
        self._took += [now - self._begun.pop(key) for key in list(self._begun) if key not in at_work]
        for key in at_work:
            self._begun.setdefault(key, now)
        self._at_work = at_work

    def new_lines(self) -> list[str]:
        """What runs at work noted since the last call."""
        lines = []
        for key, said in self._at_work.items():
            count = said.get("noted", 0) - self._told.get(key, 0)
            self._told[key] = said.get("noted", 0)
            lines += [f"  {self._names[key]}: {text}" for text in said.get("notes", [])[-count:] if count > 0]
        return lines

    def left(self, now: float) -> float | None:
        """Seconds until all runs have ended, if as many as now stay at work; runs that do not tell take the mean."""
        told = {key: said.get("left_s") for key, said in self._at_work.items()}
        took = [*self._took, *(now - self._begun[key] + left for key, left in told.items() if left is not None)]
        if not took:
            return None
        mean = fmean(took)
        lefts = [max(mean - (now - self._begun[key]), 0.0) if left is None else left for key, left in told.items()]
        waiting = max(len(self._names) - self._ended - len(told), 0)
        return (sum(lefts) + waiting * mean) / max(len(told), 1) or None

    def render(self, now: float) -> RenderableType:
        """The table, or nothing where no run is at work."""
        at_work = dict(self._at_work)
        if not at_work:
            return Text()
        table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False, expand=True)
        table.add_column("Run", no_wrap=True, overflow="ellipsis", ratio=1)
        table.add_column("Stage", no_wrap=True, overflow="ellipsis", max_width=18)
        for heading, width in (("Epoch", 7), ("CIDEr-D", 7), ("Time left", 11)):
            table.add_column(heading, justify="right", no_wrap=True, min_width=width)
        for key, said in at_work.items():
            best = UNKNOWN if said.get("best") is None else f"{100 * said['best']:.1f}"
            epoch = UNKNOWN if said.get("epoch") is None else f"{said['epoch']}/{said['epochs']}"
            stage = Text(said.get("stage") or UNKNOWN)
            table.add_row(Text(self._names[key]), stage, epoch, best, _described(said.get("left_s")))
        table.add_section()
        total = f"{self._ended} of {len(self._names)} runs ended"
        table.add_row(Text(total, style="bold"), "", "", "", Text(_described(self.left(now)), style="bold"))
        return table


class _Bars(Progress):
    runs: RunTable | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        """The table of runs, if there is one, then the bars."""
        if self.runs is not None:
            yield self.runs.render(time.monotonic())
        yield from super().get_renderables()


def _described(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else describe_seconds(seconds)
