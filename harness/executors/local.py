"""This process, or with `--jobs` as many workers of this machine; one that dies costs the call that it was at.

`concurrent.futures.ProcessPoolExecutor` lacks that: the death of one process breaks the whole pool, and all calls are
lost. Its processes outlive a command that is killed, and on Ctrl-C it waits for them instead of having them save what
they have. `harness.utils.processes` starts, follows and ends processes; a thread for each passes calls on to it.
"""

import os
import signal
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

from harness.config.execution import ExecutionConfig
from harness.executors import LOST_WORKER, CallError, Executor
from harness.utils.processes import close_at_end, end_workers, make_worker, on_threads, starting_worker

JOIN_TIMEOUT_S = 20.0
T = TypeVar("T")


class LocalExecutor(Executor):
    """See `harness.executors.Executor`; a run itself checks what it needs.

    Args:
        jobs: calls at a time, each in a worker of its own; one is made in this thread at once. 0: as many as there is
            room for.
    """

    def __init__(self, jobs: int = 1) -> None:
        self._jobs = jobs
        self._count = 1
        self._device = torch.device("cpu")
        self._threads: ThreadPoolExecutor | None = None
        self._workers: list[_Worker] = []
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._futures: list[Future[Any]] = []
        self._cancelled = False

    def slots(self, items: int, device: torch.device, devices: int, memory: Callable[[], int]) -> int:  # noqa: ARG002
        """As `--jobs` says."""
        self._device = device
        self._count = ExecutionConfig(devices=devices, jobs=self._jobs).jobs_for(items, device)
        return self._count

    def submit(self, function: Callable[..., T], /, *args: Any) -> Future[T]:
        """See `Executor.submit`."""
        if self._count > 1:
            if self._threads is None:
                for slot in range(self._count):
                    self._idle.put(self._start_worker(slot))
                self._threads = ThreadPoolExecutor(self._count, "worker")
            future = self._threads.submit(self._call, function, args)
            self._futures.append(future)
            return future
        future = Future[T]()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(CallError.of(error))
        return future

    def cancel(self) -> None:
        """See `Executor.cancel`: workers are asked to end, which lets a training save its checkpoint."""
        self._cancelled = True
        for future in self._futures:
            future.cancel()
        # Before their threads end: the system ends a worker with the thread that started it.
        end_workers([worker.process for worker in self._workers])
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    def close(self) -> None:
        """See `Executor.close`."""
        try:
            for worker in self._workers:
                worker.end()
        finally:  # ends workers that did not end in time, or were not asked because Ctrl-C came first
            end_workers([worker.process for worker in self._workers])
        self._workers.clear()
        self._futures.clear()
        self._idle = SimpleQueue()
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def _start_worker(self, slot: int) -> "_Worker":
        with starting_worker():
            worker = _Worker(slot, self._count, _gpu(self._device, slot))
            self._workers.append(worker)
        return worker

    def _call(self, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        """In a thread, of which there are as many as workers: the result of a call by an idle worker."""
        worker = self._idle.get()
        if not worker.process.is_alive() and not self._cancelled:  # it died between two calls
            worker = self._replace(worker)
        try:
            result: T = worker.call(function, args)
        except Exception as error:
            if self._cancelled:
                raise CancelledError from None
            failure = error if isinstance(error, CallError) else CallError.of(error)  # as of what cannot be pickled
            self._idle.put(worker if worker.process.is_alive() else self._replace(worker))
            raise failure from None
        self._idle.put(worker)
        return result

    def _replace(self, worker: "_Worker") -> "_Worker":
        """Start another worker in the place of one that died."""
        self._workers.remove(worker)
        return self._start_worker(worker.slot)


class _Worker:
    """The command's side of a process that makes one call after another."""

    def __init__(self, slot: int, count: int, gpu: str | None) -> None:
        self.slot = slot
        self._channel, theirs = Pipe()
        self.process = make_worker(f"{__name__}:serve", theirs, count, gpu)
        self.process.start()
        theirs.close()  # the process then holds the only other end, so that its end closes the channel

    def call(self, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        """The result of a call; CallError where it fails, or the process dies."""
        try:
            self._channel.send((function, args))
            failed, answer = self._channel.recv()
        except (EOFError, OSError):
            self.process.join(JOIN_TIMEOUT_S)
            raise CallError(LOST_WORKER, self._how_it_ended()) from None
        if failed:
            raise CallError(*answer)
        result: T = answer
        return result

    def end(self) -> None:
        """Ask it to end, and wait."""
        with suppress(OSError):
            self._channel.send(None)
        self.process.join(JOIN_TIMEOUT_S)

    def _how_it_ended(self) -> str:
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"its process ended with exit code {code}"
        hint = "; perhaps the machine ran out of memory: try fewer --jobs" if -code == signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{hint}"


def serve(channel: Connection, count: int, gpu: str | None) -> None:
    """In one of `count` processes: make calls as they come through `channel`, until there are none."""
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    with limit_threads(count), close_at_end(), suppress(EOFError):
        while (call := channel.recv()) is not None:
            function, args = call
            try:
                answer = False, function(*args)
            except Exception as error:
                failure = CallError.of(error)
                answer = True, (failure.error_class, failure.reason)
            channel.send(answer)


def limit_threads(jobs: int) -> AbstractContextManager[int]:
    """Divide the CPU threads between so many jobs for a while."""
    return on_threads(max(torch.get_num_threads() // jobs, 1))


def _gpu(device: torch.device, slot: int) -> str | None:
    """One GPU after another for the workers, where none was named."""
    if device.type != "cuda" or device.index is not None:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [str(index) for index in range(torch.cuda.device_count())]
    return gpus[slot % len(gpus)]
