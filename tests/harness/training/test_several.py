"""Processes that train together: what they tell each other, and that the end of one is the end of all."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from torch import nn

from harness.training.several import Together, several_processes
from harness.utils.errors import BenchError


def talk(processes: Together) -> None:
    """Rank r tells r, and has gradients of r + 1 for its first weight alone, in the first process for none."""
    rank = processes.rank
    assert processes.total([rank, 1.0]) == [1.0, 2.0]
    assert processes.of_first({"rank": rank}) == {"rank": 0}
    assert processes.of_all(rank) == [0, 1]
    first, second = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    if rank:
        first.grad = torch.full((2,), 2.0)
    processes.add_gradients([first, second])
    assert first.grad is not None
    assert first.grad.tolist() == [2.0, 2.0]
    assert second.grad is None


def fail(_: Together) -> None:
    """Has an error."""
    raise ValueError("out of luck")


def vanish(_: Together) -> None:
    """Ends as the system ends a process that takes too much memory."""
    os._exit(9)


def test_what_processes_tell_each_other() -> None:
    with several_processes(2, "cpu", talk) as first:
        talk(first)
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("end", [fail, vanish])
def test_the_end_of_one_is_noticed_by_what_it_is_asked_next(
    end: Callable[[Together], None], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BenchError, match="training process 1 of 2 failed"), several_processes(2, "cpu", end) as first:
        first.total([0.0])
    assert not torch.distributed.is_initialized()
    assert ("ValueError: out of luck" in capfd.readouterr().err) == (end is fail)
