"""Progress of workers, shown by the command: a reporter that sends, and what shows its messages at the other end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from harness.utils.progress import Reporter, Task
from harness.utils.run_events import RunEnds, RunEvent

Message = tuple[Any, ...]
"""The name of a reporter's method and its arguments, all of them picklable."""


class Channel(Protocol):
    """Where messages go."""

    def send(self, message: Message, /) -> None:
        """Send one."""
        ...


class RemoteReporter(Reporter):
    """A reporter that sends all through `channel`, for a `ReporterProxy` at its other end."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._tasks = channel, 0

    def note(self, text: str, style: str = "") -> None:
        """See `Reporter.note`."""
        self._channel.send(("note", text, style))

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Task]:
        """See `Reporter.task`."""
        self._tasks += 1
        number = self._tasks
        self._channel.send(("task", number, title, total, done))
        try:
            yield _RemoteTask(self._channel, number, done)
        finally:
            self._channel.send(("close", number))

    def watch(self, event: RunEvent, worker: int = 0) -> None:  # noqa: ARG002  # the other end knows who it is
        """See `Reporter.watch`."""
        self._channel.send(("watch", event))


class _RemoteTask(Task):
    def __init__(self, channel: Channel, number: int, done: int) -> None:
        self._channel, self._number, self._done = channel, number, done

    def reach(self, done: int, detail: str = "") -> None:
        """See `Task.reach`."""
        self._done = done
        self._channel.send(("reach", self._number, done, detail))


class ReporterProxy:
    """Shows what a `RemoteReporter` sends; indented lines and bars begin with `name`."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self.name = ""
        self._tasks: dict[int, Task] = {}

    def show(self, message: Message) -> None:
        """Show one message."""
        match message:
            case "note", text, style:
                self._reporter.note(self._named(text), style)
            case "task", number, title, total, done:
                self._tasks[number] = Task(self._reporter, self._named(title), total, done)
            case "reach", number, done, detail:
                self._tasks[number].reach(done, detail)
            case "close", number:
                self._tasks.pop(number).close()
            case "watch", event:
                self._reporter.watch(event, id(self))
            case _:
                raise ValueError(f"{message!r} is not a message of a RemoteReporter")

    def close(self) -> None:
        """Remove the bars of unfinished tasks, and the line of its run."""
        self._reporter.watch(RunEnds(), id(self))
        for task in self._tasks.values():
            task.close()
        self._tasks.clear()

    def _named(self, text: str) -> str:
        return f"  {self.name}: {text.strip()}" if text.startswith(" ") else text
