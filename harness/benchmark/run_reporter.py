"""Progress of a run: `RunReporter` shows it on the command's display and writes it to the store."""

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
    """Wraps a reporter, and also writes the run's progress to its row, from which `bench run` shows it."""

    def __init__(self, reporter: Reporter, store: Store, key: str) -> None:
        self.console = reporter.console
        self.display = reporter.display
        self._reporter = reporter
        self._store = store
        self._key = key
        self._progress: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid(), "reported": 0, "lines": []}
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
        """See `Reporter.task`; on a display, the run's line shows it instead of a bar."""
        if self.display is None:
            with self._reporter.task(title, total, done) as plain:

                def show_in_lines(task: Task) -> None:
                    plain.reach(task.done, task.detail)
                    self._set_doing(task)

                yield Task(title, total, done, show_in_lines)
        else:
            yield Task(title, total, done, self._set_doing)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """See `Reporter.step`; the run's line shows it."""
        self._progress["doing"] = title
        self._write_if_due()
        yield

    def watch(self, **position: Any) -> None:
        """See `Reporter.watch`."""
        progress = self._progress
        if position.get("stage", progress.get("stage")) != progress.get("stage"):
            progress |= dict.fromkeys(("epoch", "epochs", "loss", "cider", "images_per_second"))
            progress["doing"] = position["stage"]
        if "validated" in position:
            progress["cider"] = position.pop("validated")
        progress |= position
        self._write_if_due()

    def _keep(self, text: str, style: str, *, log: bool) -> None:
        self._progress["reported"] += 1
        self._progress["lines"] = [*self._progress["lines"], (text.strip(), style, log)][-KEPT_LINES:]
        self._report()

    def _set_doing(self, task: Task) -> None:
        title = task.title.strip()
        stage = self._progress.get("stage")
        if stage is not None and title.startswith(f"{stage} epoch"):  # the epoch has a column of its own
            title = stage
        self._progress["doing"] = f"{title} {100 * task.done // max(task.total, 1)} %"
        self._write_if_due()

    def _write_if_due(self) -> None:
        """Write to the store, at most once every `PROGRESS_S` seconds."""
        now = time.monotonic()
        if now - self._written >= PROGRESS_S:
            self._written = now
            self._report()

    def _report(self) -> None:
        with suppress(StoreError):  # a locked database must not end the training
            self._store.report_progress(self._key, self._progress)
