"""Ranks that train together: what they tell each other, and how a failure on one of them ends on all."""

import os

import pytest
import torch
from torch import Tensor, nn

from harness.training import distributed
from harness.training.distributed import Collective, PeerFailedError, other_ranks, start_training
from harness.utils.errors import BenchError, ProcessLostError

pytestmark = pytest.mark.usefixtures("forked_workers")
WEIGHTS = [((3, 2), torch.float32), ((4,), torch.float32), ((2, 2), torch.float64), ((), torch.float32)]


def summand(rank: int, number: int) -> Tensor:
    """A gradient; that of a matrix lies transposed in memory."""
    size, dtype = WEIGHTS[number]
    drawn = torch.randn(size, generator=torch.Generator().manual_seed(10 * number + rank), dtype=dtype)
    return drawn.mT.contiguous().mT if drawn.dim() == 2 else drawn


def talk(collective: Collective) -> None:
    """Rank r sends r, and has gradients of r + 1 for its first weight alone, on rank 0 for none."""
    rank = collective.rank
    assert collective.all_reduce_sum([rank, 1.0]) == [1.0, 2.0]
    assert collective.broadcast({"rank": rank}) == {"rank": 0}
    assert collective.all_gather(rank) == [0, 1]
    first, second = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    if rank:
        first.grad = torch.full((2,), 2.0)
    collective.all_reduce_gradients([first, second])
    assert first.grad is not None
    assert first.grad.tolist() == [2.0, 2.0]
    assert second.grad is None
    weights = [nn.Parameter(torch.zeros(size, dtype=dtype)) for size, dtype in WEIGHTS]
    for number, weight in enumerate(weights):
        weight.grad = summand(rank, number)
    collective.all_reduce_gradients(weights)
    for number, weight in enumerate(weights):
        assert weight.grad is not None
        assert torch.equal(weight.grad, summand(0, number) + summand(1, number))
    layer = nn.Linear(1, 1)
    nn.init.constant_(layer.weight, rank + 3.0)
    collective.broadcast_weights(layer)
    assert layer.weight.item() == 3.0


def test_gradients_are_summed_in_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [nn.Parameter(torch.zeros(size, dtype=dtype)) for size, dtype in WEIGHTS]
    assert [len(bucket) for bucket in distributed.buckets_of(weights)] == [2, 1, 1]
    assert list(distributed.buckets_of([])) == []
    monkeypatch.setattr(distributed, "BUCKET_BYTES", 24)
    assert [len(bucket) for bucket in distributed.buckets_of(weights[:2] * 2)] == [1, 2, 1]


def fail(_: Collective) -> None:
    """Has an error."""
    raise ValueError("out of luck")


def fail_with_advice(_: Collective) -> None:
    """Has an error that the user can put right."""
    raise BenchError("the file is gone", "fetch it again")


def vanish(_: Collective) -> None:
    """Ends as the system ends a process that takes too much memory."""
    os._exit(9)


def train_talking() -> None:
    """One training of two ranks."""
    with start_training(talk, "cpu", 2) as collective:
        talk(collective)


def test_ranks_sum_gather_and_broadcast_over_two_trainings() -> None:
    with other_ranks(2):
        train_talking()
        train_talking()
    assert not torch.distributed.is_initialized()


def test_a_failure_on_another_rank_leaves_the_next_running() -> None:
    with other_ranks(2):
        with (
            pytest.raises(BenchError, match="training process 1 of 2 failed: ValueError: out of luck") as caught,
            start_training(fail, "cpu", 2) as collective,
        ):
            collective.all_reduce_sum([0.0])
        assert isinstance(caught.value.__cause__, PeerFailedError)
        assert "line" in str(caught.value.__cause__.__cause__), "the traceback of the other rank"
        with (
            pytest.raises(BenchError, match="failed: the file is gone") as caught,
            start_training(fail_with_advice, "cpu", 2) as collective,
        ):
            collective.broadcast(0)
        assert caught.value.hint == "fetch it again"
        train_talking()


def test_a_failure_on_rank_0_leaves_the_next_training_running() -> None:
    with other_ranks(2):
        with pytest.raises(KeyError), start_training(talk, "cpu", 2):
            raise KeyError("rank 0 has an error")
        train_talking()


def test_the_end_of_a_process_is_no_failure_of_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ProcessLostError), other_ranks(2):  # noqa: PT012  # the block is what is tested
        assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == ("0", "2")
        train_talking()
        with start_training(vanish, "cpu", 2) as collective:
            collective.all_reduce_sum([0.0])
    assert not torch.distributed.is_initialized()
    assert "RANK" not in os.environ


def test_several_devices_without_a_launch_are_refused() -> None:
    with pytest.raises(BenchError, match="2 devices need 2 processes"), start_training(talk, "cpu", 2):
        pass
