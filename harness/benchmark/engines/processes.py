"""A crew of processes of this machine; one that dies costs its own order.

This is what `concurrent.futures.ProcessPoolExecutor` lacks. With it, the death of one process breaks the whole pool:
all orders at work and waiting are lost (`tests/harness/benchmark/engines/test_processes.py` holds both side by side).
It does not say which order a process had. Its processes outlive a command that is killed, and on Ctrl-C it waits for
them instead of having them save what they have. Starting, following the parent and ending are in
`harness.utils.processes`; here is who does which order, and what an end means.
"""

from __future__ import annotations

import pickle
import signal
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from typing import Any

from harness.benchmark.engines.crew import LOST_WORKER, Failure, Order, open_worker, take
from harness.benchmark.engines.entering import limit_threads
from harness.benchmark.engines.reporting import RemoteReporter, ReporterProxy
from harness.utils.processes import end_workers, make_worker, starting_worker
from harness.utils.progress import Reporter

JOIN_TIMEOUT_S = 20.0
"""How long a worker may take to end after the last order."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a process sends at the end of an order; all else that it sends are a reporter's messages."""

    value: Any


class ProcessCrew:
    """See `harness.benchmark.engines.crew.Crew`.

    Args:
        count: processes at most; each computes with its share of the threads.
        opener: of a worker.
        shared: by all orders; picklable.
    """

    release_s = 0.0  # an ended process holds no lock

    def __init__(self, count: int, opener: str, shared: Any, reporter: Reporter) -> None:
        self.at_work: list[Order] = []
        self._count, self._opener, self._pickled, self._reporter = count, opener, pickle.dumps(shared), reporter

    def perform(self, orders: list[Order]) -> Generator[tuple[Order, Any], None, None]:
        """See `Crew.perform`. Another process takes the place of one that has died."""
        working: dict[object, _Worker] = {}
        stopping: list[_Worker] = []

        def give(worker: _Worker) -> None:
            order = take(orders)
            self.at_work.append(order)
            worker.give(order)

        def fill() -> None:
            while orders and len(working) < self._count:
                place = min(set(range(len(working) + 1)) - {worker.place for worker in working.values()})
                with starting_worker():
                    worker = _Worker(place, self._count, self._opener, self._pickled, self._reporter)
                    working[worker.channel] = worker
                give(worker)

        try:
            fill()
            while working:
                for channel in wait([worker.channel for worker in working.values()]):
                    worker = working[channel]
                    ended = worker.receive()
                    if ended is None:
                        continue
                    self.at_work.remove(worker.order)
                    yield worker.order, ended.value if isinstance(ended, _Answer) else ended
                    if orders and isinstance(ended, _Answer):
                        give(worker)
                    else:
                        stopping.append(working.pop(channel))
                        worker.shutdown()
                    fill()
        finally:
            end_workers([worker.process for worker in working.values()])
            for worker in (*stopping, *working.values()):
                worker.close()


class _Worker:
    """The command's side of a process: its channel and the order that it does."""

    def __init__(self, place: int, count: int, opener: str, pickled: bytes, reporter: Reporter) -> None:
        self.place = place
        self.order: Order
        self.channel, theirs = Pipe()
        self.process = make_worker(f"{__name__}:serve", theirs, place, count, opener, pickled)
        self.process.start()
        theirs.close()  # the worker then holds the only other end, so that its end closes the channel
        self._proxy = ReporterProxy(reporter)

    def give(self, order: Order) -> None:
        """Send it an order; if it has died, `receive` tells."""
        self.order, self._proxy.name = order, order.name
        with suppress(OSError):
            self.channel.send(order)

    def shutdown(self) -> None:
        """Ask it to end."""
        with suppress(OSError):
            self.channel.send(None)

    def receive(self) -> _Answer | Failure | None:
        """Show its next message; gives how its order ended, None while it goes on."""
        try:
            message = self.channel.recv()
        except (EOFError, OSError):
            message = cause_of_death(self.process)
        if isinstance(message, tuple):
            self._proxy.show(message)
            return None
        self._proxy.close()
        ended: _Answer | Failure = message
        return ended

    def close(self) -> None:
        """Wait for its end, and remove its bars."""
        self._proxy.close()
        self.process.join(JOIN_TIMEOUT_S)
        self.process.kill()


def cause_of_death(process: BaseProcess) -> Failure:
    """Why a process that closed its channel ended."""
    process.join(JOIN_TIMEOUT_S)
    code = process.exitcode
    if code is None or code >= 0:
        return Failure(LOST_WORKER, f"its process ended with exit code {code}")
    hint = "; perhaps the machine ran out of memory: try fewer --jobs" if -code == signal.SIGKILL else ""
    return Failure(LOST_WORKER, f"its process was ended by {signal.Signals(-code).name}{hint}")


def serve(channel: Connection, place: int, count: int, opener: str, pickled: bytes) -> None:
    """In one of `count` worker processes: do orders as they come through `channel`, until there are none."""
    try:
        with limit_threads(count), open_worker(opener, pickled, place, RemoteReporter(channel)) as work:
            while (order := channel.recv()) is not None:
                channel.send(_Answer(work(order.content)))
    except EOFError:
        return  # the process that asks is gone
    except Exception as error:  # whatever it is, this worker can do nothing more
        channel.send(Failure(type(error).__name__, str(error)))
