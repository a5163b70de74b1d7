"""One command in several processes, started here (`--devices N`) or by a launcher. Imports no torch.

If RANK and WORLD_SIZE are set, a launcher (torchrun, srun, Ray) has started the processes, on one host or on several,
and no more are started.
"""

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec

from harness.utils.errors import BenchError, ProcessLostError

P = ParamSpec("P")
LOST = 3
PARENT_POLL_S = 1.0
RESUME = "the same command continues from the last checkpoint"


def is_launched() -> bool:
    """Whether this is one of the processes that a launcher started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def process_count(devices: int | None) -> int:
    """How many processes train each model together: the launcher's number, else `--devices`, else one.

    Raises:
        BenchError: launcher and `--devices` disagree.
    """
    if not is_launched():
        return devices or 1
    world_size = int(os.environ["WORLD_SIZE"])
    if devices not in {None, world_size}:
        raise BenchError(
            f"--devices {devices}, but WORLD_SIZE is {world_size}: so many processes were started together",
            f"write --devices {world_size} or leave it out, or start {devices} processes",
        )
    return world_size


def in_every_process(command: Callable[P, None]) -> Callable[P, None]:
    """Run a command on rank 0 of a launch only, while the other ranks take part in its trainings.

    Raises:
        BenchError: a process of the launch has ended, or not all of them joined.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        if not is_launched() or int(os.environ["WORLD_SIZE"]) == 1:
            command(*args, **kwargs)
            return
        first = os.environ["RANK"] == "0"
        if not first:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for rank 0, with which the others end
        _exit_when_orphaned()
        from harness.training import distributed  # imports torch

        try:
            with distributed.joined():
                if not first:
                    distributed.serve()
                    return
                try:
                    command(*args, **kwargs)
                except (Exception, SystemExit):  # Ctrl-C and a lost process end the others by the connection
                    distributed.end_work()
                    raise
                distributed.end_work()
        except ProcessLostError as lost:
            if not first:
                sys.exit(LOST)
            raise BenchError(f"another process of this launch has ended: {lost}", RESUME) from lost

    return run


@contextmanager
def every_rank(count: int) -> Iterator[None]:
    """Within the block, this process is the first of `count`; the others are started unless a launcher did.

    Raises:
        BenchError: a process has ended, or not all of them joined.
    """
    if count == 1 or is_launched():
        yield
        return
    from harness.training import distributed

    try:
        with distributed.other_ranks(count):
            yield
    except ProcessLostError as lost:
        raise BenchError(str(lost), RESUME) from lost


def _exit_when_orphaned() -> None:
    """End this process as soon as its launcher is gone, even if that was killed and could not end it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_S)
        os._exit(LOST)

    threading.Thread(target=watch, name="launcher-watch", daemon=True).start()
