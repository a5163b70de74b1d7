"""Ranks that a process starts itself: they share its trainings, and their end is noticed."""

from __future__ import annotations

import os

import pytest
import torch.distributed as dist

from harness.training.distributed import Distributed
from harness.training.peers import start_training
from harness.training.ranks import other_ranks
from harness.utils.errors import ProcessLostError


def add(collective: Distributed) -> None:
    collective.all_reduce_sum([10.0 * collective.rank])


def die(_: Distributed) -> None:
    os._exit(7)


def test_ranks_share_trainings_until_one_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ProcessLostError), other_ranks(2):  # noqa: PT012  # the block is what is tested
        assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == ("0", "2")
        for _ in range(2):
            with start_training(add, "cpu", 2) as collective:
                assert (collective.rank, collective.world_size) == (0, 2)
                assert collective.all_reduce_sum([1.0]) == [11.0]
        with start_training(die, "cpu", 2) as collective:
            collective.all_reduce_sum([1.0])
    assert not dist.is_initialized()
    assert "RANK" not in os.environ


def test_ranks_end_with_the_block() -> None:
    with other_ranks(2), start_training(add, "cpu", 2) as collective:
        assert collective.all_reduce_sum([1.0]) == [11.0]
    assert not dist.is_initialized()
