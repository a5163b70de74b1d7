"""How the ranks of a launch take part in one training after another.

All processes join one group by the environment (`env://`: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), which carries
control messages; no address is fixed, so that torchrun, srun and Ray start the same on one host or on several.

Rank 0 is the benchmark: it plans, stores, captions, scores and reports. The others wait for its trainings, do their
share of each, and wait again. At the end of a training each rank says how it went, so that a failure on any of them is
the failure of that one model.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from harness.training.distributed import CONTROL_TIMEOUT, Distributed, PeerFailedError
from harness.utils.errors import BenchError, ProcessLostError
from harness.utils.plugins import contain_exits
from zoo.errors import first_line

JOIN_TIMEOUT = timedelta(minutes=10)
"""How long the processes of a launch wait for each other when they start."""
Work = Callable[[Distributed], object]
"""What a rank does in a training; it and all that it holds must be picklable."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a rank left a training, as it tells the others."""

    reason: str
    hint: str | None
    trace: str

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Of an error that is handled now."""
        reason = str(error) if isinstance(error, BenchError) else f"{type(error).__name__}: {first_line(error)}"
        return cls(reason, getattr(error, "hint", None), "".join(traceback.format_exception(error)))


def join() -> None:
    """Join the other processes of this launch by the environment.

    Raises:
        BenchError: they did not all come, or a variable is missing.
    """
    try:
        store, rank, world_size = next(rendezvous("env://", timeout=JOIN_TIMEOUT))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=CONTROL_TIMEOUT)
    except (ValueError, RuntimeError) as error:
        raise BenchError(
            f"the {os.environ['WORLD_SIZE']} processes of this launch did not all join: {first_line(error)}",
            "start all of them with MASTER_ADDR and MASTER_PORT of rank 0's host (torchrun sets both), or unset "
            "RANK and WORLD_SIZE to train in one process",
        ) from error


def leave() -> None:
    """Leave the group of all processes; nothing is said to the others."""
    if dist.is_initialized():
        dist.destroy_process_group()


def end_work() -> None:
    """On rank 0: tell the others that there is no further training."""
    _broadcast_work(None)


@contextmanager
def start_training(work: Work, device_type: str, world_size: int) -> Iterator[Distributed]:
    """On rank 0: have the other ranks do `work`, and be the first of them within the block.

    Raises:
        BenchError: another rank failed, or the launch has another number of processes.
        ProcessLostError: another process has ended; no further training is possible.
    """
    if not dist.is_initialized() or dist.get_world_size() != world_size:
        raise BenchError(
            f"{world_size} devices need {world_size} processes that were started together",
            f"type bench run --devices {world_size}, or torchrun --nproc-per-node {world_size} -m harness.cli run",
        )
    _broadcast_work((work, device_type))
    with _training(device_type) as collective:
        yield collective


def serve() -> None:
    """On every other rank: do this rank's work in each training of rank 0, until there are no more.

    A training that fails here fails on rank 0, which reports it.

    Raises:
        ProcessLostError: another process has ended.
    """
    torch.set_num_threads(max(torch.get_num_threads() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1))
    while (told := _broadcast_work(None)) is not None:
        work, device_type = told
        try:
            with _training(device_type) as collective:
                work(collective)
        except Exception:  # rank 0 was told
            continue


@contextmanager
def _training(device_type: str) -> Iterator[Distributed]:
    """One training's collectives; however it ends, each rank then tells the others how it went.

    Raises:
        BenchError: on rank 0, where another rank failed.
        ProcessLostError: another process has ended, or this one has no such device.
    """
    try:
        collective = Distributed(device_type)
    except Exception as error:  # the other ranks wait for this one, and notice only its end
        raise ProcessLostError(f"a rank cannot train on {device_type}: {first_line(error)}") from error
    try:
        with contain_exits():
            yield collective
    except Exception as error:
        here = None if isinstance(error, PeerFailedError) else _Failure.of(error)
        _clear_frames(error)  # they hold the group, whose connections close with the last reference to it
        collective.close(abort=True)
        failures = _exchange(here)
        if here is not None or dist.get_rank():
            raise
        raise _peer_error(failures, error) from error
    except BaseException:  # this process is about to end, and the others with it
        collective.close(abort=True)
        raise
    failures = _exchange(None)
    collective.close(abort=any(failures))


def _broadcast_work(told: tuple[Work, str] | None) -> tuple[Work, str] | None:
    """Rank 0's next work and the type of device to do it on; None: there is none."""
    box = [told]
    with _process_errors():
        dist.broadcast_object_list(box, 0)
    return box[0]


def _exchange(failure: _Failure | None) -> list[_Failure | None]:
    """Why each rank failed, None where it did not."""
    failures = [failure] * dist.get_world_size()
    with _process_errors():
        dist.all_gather_object(failures, failure)
    return failures


def _peer_error(failures: Sequence[_Failure | None], error: Exception) -> BenchError:
    """What rank 0 says of a training that ended on another rank, whose traceback becomes the cause of `error`."""
    for rank, failure in enumerate(failures):
        if failure is not None:
            error.__cause__ = PeerFailedError(f"on rank {rank}:\n{failure.trace}")
            message = f"training process {rank} of {len(failures)} failed: {failure.reason}"
            return BenchError(message, failure.hint or "the same command continues from the last checkpoint")
    return BenchError(
        f"the connection between the {len(failures)} training processes failed: {first_line(error)}",
        "the same command continues from the last checkpoint",
    )


def _clear_frames(error: BaseException | None) -> None:
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


@contextmanager
def _process_errors() -> Iterator[None]:
    """Raise what is said where a process of the launch has ended as `ProcessLostError`."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessLostError(first_line(error)) from error
