"""Worker processes that execute runs side by side; a worker that dies costs a single run.

The main process trains nothing meanwhile: it submits runs, shows the workers' progress and records their failures.
"""

from __future__ import annotations

import pickle
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from harness.metrics.evaluator import Evaluator
from harness.runner.context import RunContext
from harness.runner.worker import LOCK, Ended, Shared, Worker, take
from harness.utils.errors import INTERRUPTED
from harness.utils.plugins import load_plugins
from harness.utils.processes import end_workers, make_worker, starting_worker
from harness.utils.progress import Reporter, Task
from harness.utils.workspace import is_locked
from results import Store
from results.errors import StoreError
from results.records import RunSpec

JOIN_TIMEOUT_S = 20.0
"""How long a worker may take to end after the last run."""


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """Why a worker ended before its run did: an exception, or a signal."""

    error_class: str
    reason: str


@contextmanager
def limit_threads(jobs: int) -> Iterator[None]:
    """Divide the CPU threads between so many jobs for a while; results may depend on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(before // jobs, 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_in_workers(
    specs: Sequence[tuple[str, RunSpec]], shared: Shared, store: Store, reporter: Reporter
) -> Iterator[tuple[RunSpec, Ended]]:
    """Execute titled runs in as many workers as there are jobs; yields each run as it ends, and how.

    The run of a worker that dies is a failed row, and a new worker takes its place.
    """
    waiting = list(specs)
    pickled = pickle.dumps(shared)
    working: dict[object, WorkerHandle] = {}
    stopping: list[WorkerHandle] = []
    interrupted: list[WorkerHandle] = []

    def spawn(place: int) -> None:
        with starting_worker():
            worker = WorkerHandle(place, pickled, reporter)
            worker.submit(*take(waiting, shared.workspace))
            working[worker.channel] = worker

    try:
        for place in range(min(shared.context.execution.config.jobs, len(waiting))):
            spawn(place)
        while working:
            for channel in wait([worker.channel for worker in working.values()]):
                worker = working[channel]
                ended = worker.receive()
                if ended is None:
                    continue
                if died := isinstance(ended, WorkerFailure):
                    store.fail(worker.spec.key, ended.error_class, ended.reason, "")
                    reporter.note(f"  {worker.name}: failed: {ended.error_class}: {ended.reason}", style="red")
                    yield worker.spec, "failed"
                else:
                    yield worker.spec, ended
                if waiting and not died:
                    worker.submit(*take(waiting, shared.workspace))
                    continue
                stopping.append(working.pop(channel))
                worker.shutdown()
                if waiting:
                    spawn(worker.place)
    except KeyboardInterrupt:
        interrupted = list(working.values())
        raise
    finally:
        end_workers([worker.process for worker in working.values()])
        for worker in stopping:
            worker.process.join(JOIN_TIMEOUT_S)
            worker.process.kill()
        for worker in interrupted:
            _mark_interrupted(worker, shared, store)


def _mark_interrupted(worker: WorkerHandle, shared: Shared, store: Store) -> None:
    """Store that the run of a worker, which has ended, was interrupted; not of one that it only waited for."""
    if not is_locked(shared.workspace.run_folder(worker.spec.key) / LOCK):
        with suppress(StoreError):  # what ends is the command, whatever the store says
            store.interrupt(worker.spec.key, INTERRUPTED)


class WorkerHandle:
    """The main process's side of a worker: its process, its channel and the run that it executes."""

    def __init__(self, place: int, pickled: bytes, reporter: Reporter) -> None:
        self.place = place
        self.spec: RunSpec
        self.channel, theirs = Pipe()
        self.process = make_worker(f"{__name__}:execute_runs", theirs, place, pickled)
        self.process.start()
        theirs.close()  # the worker then holds the only other end, so that its end closes the channel
        self._proxy = ReporterProxy(reporter)

    @property
    def name(self) -> str:
        """The prefix of its lines."""
        return self._proxy.name

    def submit(self, title: str, spec: RunSpec) -> None:
        """Send it a run; if it has died, `receive` tells."""
        self.spec = spec
        self._proxy.name = f"{spec.model} seed {spec.seed}" if spec.seed else spec.model
        with suppress(OSError):
            self.channel.send((title, spec))

    def shutdown(self) -> None:
        """Ask it to end."""
        with suppress(OSError):
            self.channel.send(None)

    def receive(self) -> Ended | WorkerFailure | None:
        """Show its next message; gives how its run ended, None while it goes on."""
        try:
            message = self.channel.recv()
        except (EOFError, OSError):
            message = cause_of_death(self.process)
        if isinstance(message, tuple):
            self._proxy.show(message)
            return None
        self._proxy.close()
        ended: Ended | WorkerFailure = message
        return ended


def cause_of_death(process: BaseProcess) -> WorkerFailure:
    """Why a process that closed its channel ended."""
    process.join(JOIN_TIMEOUT_S)
    code = process.exitcode
    if code is None or code >= 0:
        return WorkerFailure("WorkerDied", f"its process ended with exit code {code}")
    hint = "; perhaps the machine ran out of memory: try fewer --jobs" if -code == signal.SIGKILL else ""
    return WorkerFailure("WorkerDied", f"its process was ended by {signal.Signals(-code).name}{hint}")


def enter_worker(context: RunContext, place: int) -> RunContext:
    """Load the plug-ins in a worker process; gives the context on the device of its place."""
    execution = context.execution
    load_plugins(execution.config.plugins)
    return replace(context, execution=replace(execution, device=device_at(execution.device, place)))


def execute_runs(channel: Connection, place: int, pickled: bytes) -> None:
    """In a worker process: execute runs as they come through `channel`, until there are none."""
    try:
        shared: Shared = pickle.loads(pickled)  # noqa: S301  # the first process made it
        shared = replace(shared, context=enter_worker(shared.context, place))
        with (
            limit_threads(shared.context.execution.config.jobs),
            Store(shared.workspace.database) as store,
            Evaluator(settings=shared.evaluation) as evaluator,
        ):
            worker = Worker(shared, store, evaluator, RemoteReporter(channel))
            while (order := channel.recv()) is not None:
                title, spec = order
                channel.send(worker.work(spec, title))
    except EOFError:
        return  # the process that asks is gone
    except Exception as error:  # whatever it is, this worker can execute nothing
        channel.send(WorkerFailure(type(error).__name__, str(error)))


def device_at(device: torch.device, place: int) -> torch.device:
    """One GPU after another, where none was named."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", place % torch.cuda.device_count())


Message = tuple[Any, ...]
"""The name of a reporter's method and its arguments, all of them picklable."""


class RemoteReporter(Reporter):
    """A reporter that sends all through `channel`, for an `ReporterProxy` at its other end."""

    def __init__(self, channel: Connection) -> None:
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


class _RemoteTask(Task):
    def __init__(self, channel: Connection, number: int, done: int) -> None:
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
            case _:
                raise ValueError(f"{message!r} is not a message of a RemoteReporter")

    def close(self) -> None:
        """Remove the bars of unfinished tasks."""
        for task in self._tasks.values():
            task.close()
        self._tasks.clear()

    def _named(self, text: str) -> str:
        return f"  {self.name}: {text.strip()}" if text.startswith(" ") else text
