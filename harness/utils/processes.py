"""Worker processes that end together with their parent, from before they import anything heavy.

A process that multiprocessing spawns imports what it is to run while its parent goes on: for seconds, where that is
torch. These learn of the parent's end, and are not reached by Ctrl-C, from their first instructions.
"""

import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from harness.utils.signals import ENDING, HeldSignals, Terminated, end_on_sigterm

_PR_SET_PDEATHSIG = 1
GRACE_S = 10.0


def make_worker(target: str, *args: Any) -> BaseProcess:
    """A process, not yet started, that imports and calls `place`, "module:function", once it ends with this one."""
    return multiprocessing.get_context("spawn").Process(target=_run, args=(target, os.getpid(), *args))


@contextmanager
def on_threads(count: int | None) -> Iterator[int]:
    """Compute on so many of torch's CPU threads for a while, None: on as many as before; gives their number.

    Results may depend on it. Small operations are quickest on one: handing them over costs more than it brings.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def die_with(parent: int) -> None:
    """Have the system end this process as soon as the one with this id does, or has; Linux alone does it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


_OPENED = ExitStack()
"""What calls in this worker opened for later ones."""


def close_with_worker(opened: AbstractContextManager[Any]) -> None:
    """Have something closed when this process has no more calls to make, if it is a worker."""
    _OPENED.push(opened)


@contextmanager
def close_at_end() -> Iterator[None]:
    """In a worker: close what the calls within the block opened for later ones."""
    with _OPENED:
        yield


@contextmanager
def starting_worker() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back, in a worker too that the block starts, so that it is started whole and recorded."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals interrupt the main thread alone
        return
    resource_tracker.ensure_running()  # multiprocessing starts it with the first process, and lets signals through then
    with HeldSignals(patient=True):
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_workers(workers: Sequence[BaseProcess]) -> None:
    """Ask workers to end, which lets a training save its checkpoint, and end those that have not after `GRACE_S`."""
    try:
        for worker in workers:
            worker.terminate()
        end = time.monotonic() + GRACE_S
        for worker in workers:
            worker.join(max(end - time.monotonic(), 0))
    finally:  # at once, where the user asked a second time
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()


def _run(target: str, parent: int, *args: Any) -> None:
    """In the new process: end with the parent, leave Ctrl-C to it, and only then import."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    _follow_parent()
    module, _, function = target.partition(":")
    work = getattr(importlib.import_module(module), function)
    end_on_sigterm()
    ended = False
    try:
        work(*args)
    except Terminated:
        ended = True
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # everything is closed
    if ended:  # the parent sees by which signal
        signal.raise_signal(signal.SIGTERM)


def _follow_parent() -> None:
    """End this process as soon as its parent is gone, where the system does not."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
