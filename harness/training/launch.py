"""One command in several processes: started by torch's elastic launcher, or found in the environment already.

`bench run --devices N` runs the same command line again in N processes of this host. Where RANK and WORLD_SIZE are set,
something else has started the processes (torchrun, srun, Ray), on one host or on several, and nothing is launched.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import ParamSpec

from harness.utils.errors import INTERRUPTED, BenchError, ProcessLostError

P = ParamSpec("P")
LOST = 3
"""Exit code of a process that ends because another one has."""
LAUNCHED_HERE = "BENCH_LAUNCHED"
"""Set where `launch` started the processes; it then reports the one that ended first."""
CTRL_C = 128 + signal.SIGINT
"""Exit code that shells expect after Ctrl-C."""
PARENT_POLL_S = 1.0
RESUME = "the same command continues from the last checkpoint"


def is_launched() -> bool:
    """Whether this is one of the processes that a launcher started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def process_count(devices: int | None) -> int:
    """How many processes train each model together: of the launch, or else `--devices`, or else one.

    Raises:
        BenchError: the two contradict each other.
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
    """Run a command on rank 0 of a launch alone, while the other ranks take part in its trainings.

    Raises:
        BenchError: a process of the launch has ended, or not all of them joined.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        if not is_launched() or int(os.environ["WORLD_SIZE"]) == 1:
            command(*args, **kwargs)
            return
        first = int(os.environ["RANK"]) == 0
        if not first:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for rank 0, with which the others end
        _exit_when_orphaned()
        from harness.training import distributed  # imports torch

        distributed.join()
        try:
            if first:
                _run_first(functools.partial(command, *args, **kwargs))
            else:
                distributed.serve()
        except KeyboardInterrupt:
            if LAUNCHED_HERE in os.environ:
                sys.exit(CTRL_C)
            raise
        except ProcessLostError as lost:
            if not first or LAUNCHED_HERE in os.environ:
                sys.exit(LOST)  # whoever started the processes reports the one that ended
            raise BenchError(f"another process of this launch has ended: {lost}", RESUME) from lost
        finally:
            distributed.leave()

    return run


def _run_first(command: Callable[[], None]) -> None:
    """Run the command, then let the other ranks end; Ctrl-C and a lost process end them by the connection."""
    from harness.training.distributed import end_work

    try:
        command()
    except (Exception, SystemExit):
        end_work()
        raise
    end_work()


def launch(count: int) -> int:
    """Run this command line again in `count` processes of this host; its exit code.

    Raises:
        BenchError: a process has ended that should not have.
    """
    import torch
    from rich.console import Console
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    os.environ[LAUNCHED_HERE] = "1"
    # Rank 0 decodes and is timed with as many threads as one process would have; torch's launcher would set one.
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
    logging.disable(logging.CRITICAL)  # one error is raised below instead of the launcher's report
    options = ["--standalone", "--nproc-per-node", str(count), "--max-restarts", "0"]
    try:
        arguments = torchrun.parse_args([*options, "-m", "harness.cli", *sys.argv[1:]])  # type: ignore[no-untyped-call]
        torchrun.run(arguments)  # type: ignore[no-untyped-call]
    except SignalException as stopped:
        if stopped.sigval in {signal.SIGINT, signal.SIGTERM}:
            sys.stderr.write(f"{INTERRUPTED}\n")
        return 128 + stopped.sigval
    except ChildFailedError as failed:
        Console().show_cursor()  # a process that was ended could not take down its bars
        return _exit_code({rank: failure.exitcode for rank, failure in failed.failures.items()}, count)
    return 0


def _exit_code(codes: dict[int, int], count: int) -> int:
    """The exit code of rank 0 where it ended by itself, having said why; BenchError where any rank died."""
    caused = {rank: code for rank, code in codes.items() if code not in {LOST, -signal.SIGTERM}} or codes
    if caused.get(0, 0) > 0:
        return caused[0]
    rank, code = min(caused.items())
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    raise BenchError(f"training process {rank} of {count} {how}", RESUME)


def _exit_when_orphaned() -> None:
    """End this process as soon as its launcher is gone, even if that was killed and could not end it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_S)
        os._exit(LOST)

    threading.Thread(target=watch, name="launcher-watch", daemon=True).start()
