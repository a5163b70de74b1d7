"""Progress of long commands: a display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol, Self

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.spinner import Spinner
from rich.table import Column
from rich.text import Text

from results.errors import StoreError, without_passwords
from results.text import printable

PLAIN_INTERVAL_S = 20.0
"""Between two lines of one task, where there is no terminal."""
PLAIN_DELAY_S = 0.8
"""A step that takes longer is named by a line, where there is no terminal."""
READ_S = 1.0
_REFRESHES_PER_SECOND = 4


class Line(NamedTuple):
    """A line of a run that is executed in another process; `log` as in `Reporter.log`."""

    text: str
    style: str
    log: bool


class Panel(Protocol):
    """A panel that `Reporter.show` keeps above the bars of a terminal."""

    def refresh(self) -> None:
        """Read the panel's content again; StoreError where it cannot be read now."""

    def render(self, width: int, height: int) -> RenderableType:
        """The panel, in at most so many columns and lines."""

    def new_lines(self) -> Sequence[Line]:
        """What other processes reported since the last call."""


class Task:
    """Counts the units of one task; `detail` is the latest figure (a loss, a score)."""

    def __init__(self, title: str, total: int, done: int, show: Callable[[Task], None]) -> None:
        self.title = title
        self.total = total
        self.done = done
        self.detail = ""
        self._show = show
        self._first_done = 0
        self._started = 0.0

    def advance(self, count: int = 1, detail: str = "") -> None:
        """Count `count` more units."""
        self.reach(self.done + count, detail)

    def reach(self, done: int, detail: str = "") -> None:
        """Set the count to `done` of the total."""
        self.done = done
        self.detail = detail
        if not self._started:  # setup before the first unit is not part of the rate
            self._first_done = done
            self._started = time.monotonic()
        self._show(self)

    def seconds_left(self) -> float | None:
        """An estimate from the rate so far; None before the second unit is done, and at the end."""
        moved = self.done - self._first_done
        if not moved or self.done >= self.total:
            return None
        return (time.monotonic() - self._started) / moved * (self.total - self.done)


class Reporter:
    """Reports a command's progress; a context manager, because a terminal's display must be removed at the end."""

    def __init__(self, console: Console | None = None) -> None:
        # This stdout: what a plug-in prints while it is loaded is redirected.
        self.console = console or Console(file=sys.stdout, highlight=False)
        self._over = threading.Event()
        self._reading: threading.Thread | None = None
        self._panel: Panel | None = None
        self.display: _Display | None = None
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self.display = _Display(self.console)

    def __enter__(self) -> Self:
        if self.display:
            self.display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the display after printing the last lines of other processes; a second call does nothing."""
        self._over.set()
        if self._reading is not None:
            self._reading.join()
            self._read_panel()
        if self.display:
            self.display.stop()

    def note(self, text: str, style: str = "") -> None:
        """Print one line, without markup; it stays, above the display of a terminal."""
        self.console.print(escape(printable(without_passwords(text))), style=style, soft_wrap=True)

    def log(self, text: str, style: str = "") -> None:
        """Print a line only where there is no display, which shows the same."""
        if self.display is None:
            self.note(text, style)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show what the block does; without a terminal, a line is printed if it takes long.

        Example:
            with reporter.step("Loading torch"):
                import torch
        """
        if self.display:
            spinner = Spinner("dots", text=Text(printable(title)))
            self.display.spinners.append(spinner)
            self.display.refresh()
            try:
                yield
            finally:
                self.display.spinners.remove(spinner)
            return
        timer = threading.Timer(PLAIN_DELAY_S, self.note, [f"{title} ..."])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Task]:
        """A task of `total` units, of which `done` are done."""
        if self.display:
            bar = self.display.add_task(escape(printable(title)), total=total, completed=done, detail="")
            try:
                yield Task(title, total, done, self.display.updating(bar))
            finally:
                self.display.remove_task(bar)
        else:
            yield Task(title, total, done, self._plain_lines())

    def watch(self, **position: Any) -> None:
        """Record how far a run is. Does nothing here; `harness.benchmark.run_reporter.RunReporter` stores it.

        Args:
            position: any of `stage`, `epoch` from 1 of `epochs`, `loss`, `images_per_second`, and `validated`, the
                latest validation CIDEr-D as a fraction.
        """

    def show(self, panel: Panel) -> None:
        """Show a panel, updated every second; without a terminal, only print the lines of other processes."""
        self._panel = panel
        panel.refresh()
        if self.display:
            self.display.panel = panel
        self._reading = threading.Thread(target=self._keep_reading, daemon=True, name="panel")
        self._reading.start()

    def _keep_reading(self) -> None:
        while not self._over.wait(READ_S):
            self._read_panel()

    def _read_panel(self) -> None:
        assert self._panel is not None
        with suppress(StoreError):  # the runs report a database that is busy or gone
            self._panel.refresh()
            for line in self._panel.new_lines():
                show = self.log if line.log else self.note
                show(line.text, line.style)

    def _plain_lines(self) -> Callable[[Task], None]:
        last = time.monotonic()

        def show(task: Task) -> None:
            nonlocal last
            if time.monotonic() - last < PLAIN_INTERVAL_S:
                return
            last = time.monotonic()
            line = f"{task.title}: {task.done:,}/{task.total:,} {task.detail}".rstrip()
            seconds = task.seconds_left()
            self.note(line if seconds is None else f"{line} (about {describe_seconds(seconds)} left)")

        return show


class _Display(Progress):
    """On a terminal, from top to bottom: the panel, a spinner for each step, a bar for each task."""

    def __init__(self, console: Console) -> None:
        self.panel: Panel | None = None
        self.spinners: list[Spinner] = []
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            # The last column gets the remaining width: a narrow terminal truncates it, never a count.
            TextColumn("{task.fields[detail]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            console=console,
            transient=True,
            expand=True,
            refresh_per_second=_REFRESHES_PER_SECOND,
        )

    def updating(self, bar: Any) -> Callable[[Task], None]:
        """A function that shows the state of a task in its bar."""

        def show(task: Task) -> None:
            self.update(bar, completed=task.done, detail=escape(printable(task.detail)))

        return show

    def get_renderables(self) -> Iterable[RenderableType]:
        # What does not fit would be left on the screen when the display is removed.
        spinners = list(self.spinners)
        tasks = len(self.tasks)
        if self.panel is not None:
            size = self.console.size
            yield self.panel.render(size.width, max(size.height - len(spinners) - tasks - 1, 1))
        yield from spinners
        if tasks:
            yield from super().get_renderables()


def silent() -> Reporter:
    """A reporter that shows nothing."""
    return Reporter(Console(quiet=True))


def describe_seconds(seconds: float) -> str:
    """A readable duration: 8 s, 3 min 20 s, 2 h 5 min."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60} min"
