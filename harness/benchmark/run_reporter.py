"""What a run tells of itself while it is executed: to the display of its command, and to the store."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from harness.utils.progress import Reporter, Task
from results import Store
from results.errors import StoreError

PROGRESS_S = 2.0
KEPT_LINES = 20


class RunReporter(Reporter):
    """Another reporter, whose run also reports to the store what it is at; `bench run` shows it from there."""

    def __init__(self, reporter: Reporter, store: Store, key: str) -> None:
        self.console, self.display = reporter.console, reporter.display
        self._reporter, self._store, self._key = reporter, store, key
        self._said: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid(), "reported": 0, "lines": []}
        self._written = -PROGRESS_S

    def note(self, text: str, style: str = "") -> None:
        """See `Reporter.note`; the store keeps the last lines for a command that executes the run elsewhere."""
        self._reporter.note(text, style)
        self._keep(text, style, log=False)

    def log(self, text: str, style: str = "") -> None:
        """See `Reporter.log` and `note`."""
        self._reporter.log(text, style)
        self._keep(text, style, log=True)

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Task]:
        """See `Reporter.task`; a display has the run's line instead of a bar."""
        if self.display is None:
            with self._reporter.task(title, total, done) as plain:

                def show_in_lines(task: Task) -> None:
                    plain.reach(task.done, task.detail)
                    self._say_doing(task)

                yield Task(title, total, done, show_in_lines)
        else:
            yield Task(title, total, done, self._say_doing)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """See `Reporter.step`; the run's line has it."""
        self._said["doing"] = title
        self._write_in_time()
        yield

    def watch(self, **standing: Any) -> None:
        """See `Reporter.watch`."""
        said = self._said
        if standing.get("stage", said.get("stage")) != said.get("stage"):
            said |= dict.fromkeys(("epoch", "epochs", "loss", "cider", "images_per_second"))
            said["doing"] = standing["stage"]
        if "validated" in standing:
            said["cider"] = standing.pop("validated")
        said |= standing
        self._write_in_time()

    def _keep(self, text: str, style: str, *, log: bool) -> None:
        self._said["reported"] += 1
        self._said["lines"] = [*self._said["lines"], (text.strip(), style, log)][-KEPT_LINES:]
        self._report()

    def _say_doing(self, task: Task) -> None:
        title, stage = task.title.strip(), self._said.get("stage")
        if stage is not None and title.startswith(f"{stage} epoch"):  # the epoch has a column of its own
            title = stage
        self._said["doing"] = f"{title} {100 * task.done // max(task.total, 1)} %"
        self._write_in_time()

    def _write_in_time(self) -> None:
        """Write to the store, but not more often than somebody looks."""
        now = time.monotonic()
        if now - self._written >= PROGRESS_S:
            self._written = now
            self._report()

    def _report(self) -> None:
        with suppress(StoreError):  # a database that is locked for long ends no training
            self._store.report_progress(self._key, self._said)
