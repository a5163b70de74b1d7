"""This process, or with `--jobs` as many processes of this machine; one that dies costs the item that it was at.

`concurrent.futures.ProcessPoolExecutor` lacks that: the death of one process breaks the whole pool, and all items are
lost. It does not say which item a process had, its processes outlive a command that is killed, and on Ctrl-C it waits
for them instead of having them save what they have. `harness.utils.processes` starts, follows and ends processes.
"""

import os
import pickle
import signal
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import torch

from harness.benchmark.engines import LOST_WORKER, Call, Engine, Failure
from harness.config.execution import ExecutionConfig
from harness.utils.processes import end_workers, make_worker, on_threads, starting_worker

JOIN_TIMEOUT_S = 20.0


class HereEngine(Engine):
    """See `harness.benchmark.engines.Engine`; a run itself checks what it needs."""

    def __init__(self, jobs: int = 1) -> None:
        self.at_work: list[Any] = []
        self._jobs, self._count = jobs, 1
        self._device = torch.device("cpu")

    def slots(self, items: int, device: torch.device, devices: int, memory: Callable[[], int]) -> int:  # noqa: ARG002
        """As `--jobs` says."""
        self._device = device
        self._count = ExecutionConfig(devices=devices, jobs=self._jobs).jobs_for(items, device)
        return self._count

    def perform(self, call: Call, take: Callable[[], Any | None]) -> Generator[tuple[Any, Any], None, None]:
        """See `Engine.perform`: in this process where there is one job."""
        if self._count > 1:
            yield from self._side_by_side(call, take)
            return
        while (item := take()) is not None:
            try:
                answer = call(item)
            except Exception as error:
                answer = Failure.of(error)
            yield item, answer

    def _side_by_side(self, call: Call, take: Callable[[], Any | None]) -> Generator[tuple[Any, Any], None, None]:
        working: dict[Connection, _Worker] = {}
        resting: list[_Worker] = []
        pickled = pickle.dumps(call)

        def fill() -> None:
            while len(working) < self._count and (item := take()) is not None:
                if not resting:
                    place = min(set(range(self._count)) - {worker.place for worker in working.values()})
                    with starting_worker():
                        resting.append(_Worker(place, self._count, _gpu(self._device, place), pickled))
                worker = resting.pop()
                working[worker.channel] = worker
                self.at_work.append(item)
                worker.give(item)

        try:
            fill()
            while working:
                for channel in wait(list(working)):
                    worker = working.pop(channel)  # type: ignore[call-overload]
                    answer, alive = worker.receive()
                    self.at_work.remove(worker.item)
                    if alive:
                        resting.append(worker)
                    yield worker.item, answer
                    fill()
            for worker in resting:
                worker.end()
        finally:
            end_workers([worker.process for worker in (*working.values(), *resting)])


class _Worker:
    """The command's side of a process: its channel and the item that it is at."""

    def __init__(self, place: int, count: int, gpu: str | None, pickled: bytes) -> None:
        self.place, self.item = place, None
        self.channel, theirs = Pipe()
        self.process = make_worker(f"{__name__}:serve", theirs, count, gpu, pickled)
        self.process.start()
        theirs.close()  # the process then holds the only other end, so that its end closes the channel

    def give(self, item: Any) -> None:
        """Send it an item; if it has died, `receive` tells."""
        self.item = item
        with suppress(OSError):
            self.channel.send(item)

    def receive(self) -> tuple[Any, bool]:
        """The answer of its item, and whether it can be given another."""
        try:
            return self.channel.recv(), True
        except (EOFError, OSError):
            self.process.join(JOIN_TIMEOUT_S)
        code = self.process.exitcode
        if code is None or code >= 0:
            return Failure(LOST_WORKER, f"its process ended with exit code {code}"), False
        hint = "; perhaps the machine ran out of memory: try fewer --jobs" if -code == signal.SIGKILL else ""
        return Failure(LOST_WORKER, f"its process was ended by {signal.Signals(-code).name}{hint}"), False

    def end(self) -> None:
        """Ask it to end, and wait."""
        with suppress(OSError):
            self.channel.send(None)
        self.process.join(JOIN_TIMEOUT_S)


def serve(channel: Connection, count: int, gpu: str | None, pickled: bytes) -> None:
    """In one of `count` processes: answer items as they come through `channel`, until there are none."""
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    with limit_threads(count), closing(pickle.loads(pickled)) as call, suppress(EOFError):  # noqa: S301
        while (item := channel.recv()) is not None:
            try:
                answer = call(item)
            except Exception as error:
                answer = Failure.of(error)
            channel.send(answer)


def limit_threads(jobs: int) -> AbstractContextManager[int]:
    """Divide the CPU threads between so many jobs for a while."""
    return on_threads(max(torch.get_num_threads() // jobs, 1))


def _gpu(device: torch.device, place: int) -> str | None:
    """One GPU after another for the processes, where none was named."""
    if device.type != "cuda" or device.index is not None:
        return None
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = shown.split(",") if shown else [str(number) for number in range(torch.cuda.device_count())]
    return there[place % len(there)]
