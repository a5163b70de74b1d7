"""Cells side by side: processes that take one cell after another, so that one that dies costs a single cell.

This process trains nothing meanwhile: it hands out the cells, shows what the others say, and writes down their deaths.
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
from harness.runner.relay import Echo, Relay
from harness.runner.worker import Ended, Shared, Worker, take
from harness.utils.plugins import load_plugins
from harness.utils.processes import end_with_parent
from harness.utils.progress import Reporter
from results import Store
from results.records import Cell

PATIENCE_S = 20.0
"""How long a process may take to end once there is nothing left to do."""


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a process before its cell ended: an error of its own, or of the system."""

    error_class: str
    reason: str


@contextmanager
def few_threads(jobs: int) -> Iterator[None]:
    """As many processor threads for a while as each of so many models has; results may depend on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(before // jobs, 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def work_side_by_side(
    cells: Sequence[tuple[str, Cell]], shared: Shared, store: Store, reporter: Reporter
) -> Iterator[tuple[Cell, Ended]]:
    """Work on titled cells in as many processes as the run has jobs; gives each cell as it ends, and how.

    What a process had begun when it died is a failed row, and another process takes its place.
    """
    waiting = list(cells)
    pickled = pickle.dumps(shared)
    working: dict[object, _Colleague] = {}
    leaving: list[_Colleague] = []

    def hire(place: int) -> None:
        colleague = _Colleague(place, pickled, reporter)
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
                if died := isinstance(ended, Death):
                    store.fail(colleague.cell.key, ended.error_class, ended.reason, "")
                    reporter.note(f"  {colleague.name}: failed: {ended.error_class}: {ended.reason}", style="red")
                    yield colleague.cell, "failed"
                else:
                    yield colleague.cell, ended
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
            colleague.process.join(PATIENCE_S)
            colleague.process.kill()


class _Colleague:
    """Another process, seen from this one: the cell that it has, and what it says of it."""

    def __init__(self, place: int, pickled: bytes, reporter: Reporter) -> None:
        self.place = place
        self.cell: Cell
        context = multiprocessing.get_context("spawn")
        self.channel, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, place, pickled))
        self.process.start()
        theirs.close()  # its own end alone is left, so that its death is heard
        self._echo = Echo(reporter)

    @property
    def name(self) -> str:
        """What its lines begin with."""
        return self._echo.name

    def give(self, title: str, cell: Cell) -> None:
        """Hand it a cell; should it be dead, `hear` will tell."""
        self.cell = cell
        self._echo.name = f"{cell.model} seed {cell.seed}" if cell.seed else cell.model
        with suppress(OSError):
            self.channel.send((title, cell))

    def dismiss(self) -> None:
        """There is nothing left to do for it."""
        with suppress(OSError):
            self.channel.send(None)

    def hear(self) -> Ended | Death | None:
        """Show the next thing that it says; how its cell ended, None while it goes on."""
        try:
            message = self.channel.recv()
        except (EOFError, OSError):
            message = self._death()
        if isinstance(message, tuple):
            self._echo.show(message)
            return None
        self._echo.close()
        ended: Ended | Death = message
        return ended

    def _death(self) -> Death:
        self.process.join(PATIENCE_S)
        code = self.process.exitcode
        if code is None or code >= 0:
            return Death("WorkerDied", f"its process ended with exit code {code}")
        hint = "; perhaps the machine ran out of memory: try fewer --jobs" if -code == signal.SIGKILL else ""
        return Death("WorkerDied", f"its process was ended by {signal.Signals(-code).name}{hint}")


def _serve(channel: Connection, place: int, pickled: bytes) -> None:
    """The life of another process: cells as they come, until there are none."""
    end_with_parent()
    try:
        shared: Shared = pickle.loads(pickled)  # noqa: S301  # the first process made it
        machine = shared.conditions.machine
        load_plugins(machine.plugins)
        device = device_at(shared.conditions.device, place)
        shared = replace(shared, conditions=replace(shared.conditions, device=device))
        with (
            few_threads(machine.jobs),
            Store(shared.workspace.database) as store,
            Evaluator(settings=shared.evaluation) as evaluator,
        ):
            worker = Worker(shared, store, evaluator, Relay(channel))
            while (order := channel.recv()) is not None:
                title, cell = order
                channel.send(worker.work(cell, title))
    except EOFError:
        return  # the process that asks is gone
    except Exception as error:  # whatever it is, this process can do no cell
        channel.send(Death(type(error).__name__, str(error)))


def device_at(device: torch.device, place: int) -> torch.device:
    """One GPU after another, where none was named."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", place % torch.cuda.device_count())
