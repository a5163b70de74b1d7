"""The other ranks of a process that trains one model on several devices, where that process starts them itself.

A worker of a cluster with several devices on its node becomes rank 0. The others join it by the environment (`env://`),
as those of torchrun do, and end with it, however it ends.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import torch

from harness.training import peers
from harness.utils.errors import ProcessLostError
from harness.utils.processes import end_workers, make_worker, starting_worker


@contextmanager
def other_ranks(count: int) -> Iterator[None]:
    """Be rank 0 of `count` processes of this host within the block; the others wait for its trainings.

    Raises:
        BenchError: they did not all join.
        ProcessLostError: within the block, where one of them has ended; this process can train no more.
    """
    shared = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    before = {name: os.environ.get(name) for name in (*shared, "RANK", "LOCAL_RANK")}
    with starting_worker():
        others = [
            make_worker(f"{__name__}:serve_as", rank, shared, torch.get_num_threads()) for rank in range(1, count)
        ]
        for other in others:
            other.start()
    try:
        _set_environment(0, shared)
        peers.join()
        yield
        peers.end_work()
        for other in others:
            other.join()
    finally:
        peers.leave()
        end_workers(others)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def serve_as(rank: int, shared: Mapping[str, str], threads: int) -> None:
    """In a process of its own: take part in the trainings of rank 0, which computes with so many threads."""
    _set_environment(rank, shared)
    torch.set_num_threads(threads)
    peers.join()
    try:
        with suppress(ProcessLostError):  # rank 0 is told, or is the one
            peers.serve()
    finally:
        peers.leave()


def _set_environment(rank: int, shared: Mapping[str, str]) -> None:
    os.environ.update(shared, RANK=str(rank), LOCAL_RANK=str(rank))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
