"""Cells side by side: processes that take one spec after another, so that one that dies costs a single spec.

This process trains nothing meanwhile: it hands out the specs, shows what the others say, and writes down their deaths.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait

import torch

from harness.metrics.evaluator import Evaluator
from harness.runner.relay import RemoteReporter, ReporterProxy
from harness.runner.worker import Ended, Shared, Worker, take
from harness.utils.plugins import load_plugins
from harness.utils.processes import exit_with_parent
from harness.utils.progress import Reporter
from results import Store
from results.records import RunSpec

JOIN_TIMEOUT_S = 20.0
"""How long a process may take to end once there is nothing left to do."""


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """The end of a process before its spec ended: an error of its own, or of the system."""

    error_class: str
    reason: str


@contextmanager
def limit_threads(jobs: int) -> Iterator[None]:
    """As many processor threads for a while as each of so many models has; results may depend on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(before // jobs, 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_in_workers(
    specs: Sequence[tuple[str, RunSpec]], shared: Shared, store: Store, reporter: Reporter
) -> Iterator[tuple[RunSpec, Ended]]:
    """Work on titled specs in as many processes as the run has jobs; gives each spec as it ends, and how.

    What a process had begun when it died is a failed row, and another process takes its place.
    """
    waiting = list(specs)
    pickled = pickle.dumps(shared)
    working: dict[object, WorkerHandle] = {}
    leaving: list[WorkerHandle] = []

    def hire(place: int) -> None:
        colleague = WorkerHandle(place, pickled, reporter)
        colleague.give(*take(waiting, shared.workspace))
        working[colleague.channel] = colleague

    try:
        for place in range(min(shared.conditions.machine.jobs, len(waiting))):
            hire(place)
        while working:
            for channel in wait([colleague.channel for colleague in working.values()]):
                colleague = working[channel]
                ended = colleague.hear()
                if ended is None:
                    continue
                if died := isinstance(ended, WorkerFailure):
                    store.fail(colleague.spec.key, ended.error_class, ended.reason, "")
                    reporter.note(f"  {colleague.name}: failed: {ended.error_class}: {ended.reason}", style="red")
                    yield colleague.spec, "failed"
                else:
                    yield colleague.spec, ended
                if waiting and not died:
                    colleague.give(*take(waiting, shared.workspace))
                    continue
                leaving.append(working.pop(channel))
                colleague.dismiss()
                if waiting:
                    hire(colleague.place)
    finally:
        for colleague in working.values():
            colleague.process.kill()
        for colleague in (*working.values(), *leaving):
            colleague.process.join(JOIN_TIMEOUT_S)
            colleague.process.kill()


class WorkerHandle:
    """Another process, seen from this one: the spec that it has, and what it says of it."""

    def __init__(self, place: int, pickled: bytes, reporter: Reporter) -> None:
        self.place = place
        self.spec: RunSpec
        context = multiprocessing.get_context("spawn")
        self.channel, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, place, pickled))
        self.process.start()
        theirs.close()  # its own end alone is left, so that its death is heard
        self._echo = ReporterProxy(reporter)

    @property
    def name(self) -> str:
        """What its lines begin with."""
        return self._echo.name

    def give(self, title: str, spec: RunSpec) -> None:
        """Hand it a spec; should it be dead, `hear` will tell."""
        self.spec = spec
        self._echo.name = f"{spec.model} seed {spec.seed}" if spec.seed else spec.model
        with suppress(OSError):
            self.channel.send((title, spec))

    def dismiss(self) -> None:
        """There is nothing left to do for it."""
        with suppress(OSError):
            self.channel.send(None)

    def hear(self) -> Ended | WorkerFailure | None:
        """Show the next thing that it says; how its spec ended, None while it goes on."""
        try:
            message = self.channel.recv()
        except (EOFError, OSError):
            message = self._death()
        if isinstance(message, tuple):
            self._echo.show(message)
            return None
        self._echo.close()
        ended: Ended | WorkerFailure = message
        return ended

    def _death(self) -> WorkerFailure:
        self.process.join(JOIN_TIMEOUT_S)
        code = self.process.exitcode
        if code is None or code >= 0:
            return WorkerFailure("WorkerDied", f"its process ended with exit code {code}")
        hint = "; perhaps the machine ran out of memory: try fewer --jobs" if -code == signal.SIGKILL else ""
        return WorkerFailure("WorkerDied", f"its process was ended by {signal.Signals(-code).name}{hint}")


def _serve(channel: Connection, place: int, pickled: bytes) -> None:
    """The life of another process: specs as they come, until there are none."""
    exit_with_parent()
    try:
        shared: Shared = pickle.loads(pickled)  # noqa: S301  # the first process made it
        machine = shared.conditions.machine
        load_plugins(machine.plugins)
        device = device_at(shared.conditions.device, place)
        shared = replace(shared, conditions=replace(shared.conditions, device=device))
        with (
            limit_threads(machine.jobs),
            Store(shared.workspace.database) as store,
            Evaluator(settings=shared.evaluation) as evaluator,
        ):
            worker = Worker(shared, store, evaluator, RemoteReporter(channel))
            while (order := channel.recv()) is not None:
                title, spec = order
                channel.send(worker.work(spec, title))
    except EOFError:
        return  # the process that asks is gone
    except Exception as error:  # whatever it is, this process can do no spec
        channel.send(WorkerFailure(type(error).__name__, str(error)))


def device_at(device: torch.device, place: int) -> torch.device:
    """One GPU after another, where none was named."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", place % torch.cuda.device_count())
