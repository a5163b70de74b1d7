"""Progress of long commands: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from results.errors import without_passwords

PLAIN_INTERVAL_S = 20.0


class Task:
    """One countable task; `advance` adds to its count, `detail` is the latest figure (a loss, a score)."""

    def __init__(self, reporter: Reporter, title: str, total: int, done: int) -> None:
        self._reporter, self._title, self._total, self._done = reporter, title, total, done
        self._first_done, self._started, self._spoken = 0, 0.0, time.monotonic()
        bars = reporter.bars
        self._bar = bars.add_task(escape(title), total=total, completed=done, detail="") if bars else None

    def advance(self, count: int = 1, detail: str = "") -> None:
        """Count `count` more units."""
        self.reach(self._done + count, detail)

    def reach(self, done: int, detail: str = "") -> None:
        """Set the count to `done` of the total."""
        self._done = done
        if not self._started:  # setup before the first unit is not part of the rate
            self._first_done, self._started = done, time.monotonic()
        if self._bar is not None and self._reporter.bars:
            self._reporter.bars.update(self._bar, completed=done, detail=escape(detail))
        elif time.monotonic() - self._spoken >= PLAIN_INTERVAL_S:
            self._spoken = time.monotonic()
            self._reporter.note(f"{self._title}: {done}/{self._total} {detail}{self._time_left()}")

    def _time_left(self) -> str:
        moved = self._done - self._first_done
        if not moved or self._done >= self._total:
            return ""
        seconds = (time.monotonic() - self._started) / moved * (self._total - self._done)
        return f" (about {describe_seconds(seconds)} left)"

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None and self._reporter.bars:
            self._reporter.bars.remove_task(self._bar)


class Reporter:
    """Reports a command's progress; a context manager, because terminal bars must be removed at the end."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.bars: Progress | None = None
        if self.console.is_terminal:
            self.bars = self.make_bars(
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

    def make_bars(self, *columns: Any, **options: Any) -> Progress:
        """What a terminal shows while tasks go on; given what `Progress` takes."""
        return Progress(*columns, **options)

    def watch(self, **said: Any) -> None:
        """Take in how far a run is; lines and bars say it already, so that only a table of runs needs it.

        Args:
            said: `stage`, "evaluation" after training, its `epoch` from 1 of `epochs`, its `best` validation CIDEr-D as
                a fraction, and `done`, the share of all stages; or what was `validated` just now.
        """

    def __enter__(self) -> Self:
        if self.bars:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
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
            task.close()


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
