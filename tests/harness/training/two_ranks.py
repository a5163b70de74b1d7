"""A launch of two processes: the test is rank 0, and a process beside it is rank 1."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from harness.training import peers


@contextmanager
def two_ranks() -> Iterator[None]:
    """Trainings of two devices within the block; rank 1 has no more to do after it."""
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    other = multiprocessing.get_context("spawn").Process(target=_serve, args=(place | {"RANK": "1"},), daemon=True)
    other.start()
    try:
        with mock.patch.dict(os.environ, place | {"RANK": "0"}):
            peers.join()
            yield
        peers.end_work()
        other.join(20)
        assert other.exitcode == 0
    finally:
        peers.leave()
        other.kill()
        other.join()


def _serve(place: dict[str, str]) -> None:
    os.environ.update(place)
    peers.join()
    peers.serve()
    peers.leave()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
