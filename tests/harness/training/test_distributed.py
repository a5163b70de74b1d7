"""Ranks that train together: how they are started, what they tell each other, and how a failure of one ends on all."""

import os
import signal
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.training import distributed, launch
from harness.training.distributed import Collective, PeerFailedError, other_ranks, start_training
from harness.utils import processes
from harness.utils.errors import BenchError, ProcessLostError
from results import Store
from results.records import EpochRecord
from results.runs.leaderboard import leaderboard
from results.runs.reading import failures, one_run
from tests.harness.conftest import bench_environment, bench_forked, bench_ok, run_counts

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
            pytest.raises(BenchError, match="1 of 2 failed: ValueError") as caught,
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


def test_ctrl_c_while_ranks_start_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = []

    def make_and_interrupt(*args: Any) -> BaseProcess:
        ranks.append(processes.make_worker(*args))
        signal.raise_signal(signal.SIGINT)
        return ranks[-1]

    monkeypatch.setattr(distributed, "make_worker", make_and_interrupt)
    monkeypatch.setattr(processes, "GRACE_S", 0.5)  # a rank that waits for its first one does not answer
    with pytest.raises(KeyboardInterrupt), other_ranks(2):
        pytest.fail("the block is not entered")
    assert [rank.is_alive() for rank in ranks] == [False]
    assert ranks[0].exitcode is not None, "it was started, and ended"


def test_several_devices_without_a_launch_are_refused() -> None:
    with pytest.raises(BenchError, match="2 devices need 2 processes"), start_training(talk, "cpu", 2):
        pass


PLUGIN = Path(__file__).parents[1] / "plugins" / "failing_rank.py"
TINY = ("stages.0.epochs=2", "stages.0.batch_size=7", "stages.0.validate_every=2", "stages.0.captions_per_image=2")
SIZE = ("size.d_model=16", "size.d_ff=16", "decoding.max_len=8", "latency_repeats=2")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """29 training images: batches of 7 whose last holds one, of which rank 1 gets none."""
    folder = tmp_path_factory.mktemp("data")
    return prepare_scenes(folder, ScenesConfig(train=29, val=4, test=4, nocaps_per_domain=1))


def words(data: Path, workspace: Path, models: str) -> list[str]:
    """The words of a tiny run on the CPU."""
    options = ["--models", models, "--data", str(data), "--backbone", "filterbank", "--device", "cpu"]
    changes = (*(f"schedule.{change}" for change in TINY), *SIZE)
    options += [word for change in changes for word in ("--set", change)]
    return ["run", "--workspace", str(workspace), "--seeds", "1", *options]


def curve(workspace: Path, model: str) -> list[EpochRecord]:
    """The epochs of a finished model."""
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        [row] = [
            row for group in leaderboard(store) if group.split == "test" for row in group.rows if row.model == model
        ]
        return [epoch for key in row.keys for epoch in one_run(store, key).epochs]


def test_a_launch_survives_a_failed_model_and_a_lost_process(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first by `--devices`, in copies of this process, the other as torchrun starts it."""
    monkeypatch.delenv("BENCH_JOBS", raising=False)
    monkeypatch.setenv("BENCH_JAVA", "/no/java")  # METEOR takes seconds of each process
    plugin = ("--plugin", str(PLUGIN))
    bench_ok(*words(data, tmp_path / "alone", "transformer_base"), "--jobs", "1")

    both = words(data, tmp_path / "both", "transformer_base")
    lost = bench_forked(*both, "--devices", "2", *plugin, BENCH_TEST_RANK_1="killed")
    assert lost.returncode == 2
    assert lost.stderr.count("error:") == 1
    assert "1 of 2 was ended by SIGKILL" in lost.stderr
    assert "the same command continues" in lost.stderr

    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    command = ["-m", "harness.cli", *words(data, tmp_path / "both", "blind,transformer_base"), *plugin]
    environment = bench_environment(BENCH_TEST_RANK_1="fails")
    torn = subprocess.run(
        [sys.executable, *torchrun, *command], capture_output=True, text=True, env=environment, timeout=600
    )
    assert torn.returncode == 1, "one row failed"
    assert run_counts(torn.stdout).items() >= {"finished": 1, "re-used": 0, "failed": 1}.items()
    with Store(tmp_path / "both" / "bench.sqlite", read_only=True) as store:
        [failed] = failures(store)
    assert failed.model == "blind"
    assert "1 of 2 failed: RuntimeError" in (failed.reason or "")

    expected, found = (curve(tmp_path / name, "transformer_base") for name in ("alone", "both"))
    assert [(epoch.epoch, epoch.step) for epoch in found] == [(epoch.epoch, epoch.step) for epoch in expected]
    for attribute in ("train_loss", "val_cider"):
        values = [[getattr(epoch, attribute) for epoch in epochs] for epochs in (found, expected)]
        assert values[0] == pytest.approx(values[1], abs=1e-6)


def test_devices_that_contradict_the_launch_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert (launch.process_count(None), launch.process_count(3)) == (1, 3)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert (launch.process_count(None), launch.process_count(2)) == (2, 2)
    with pytest.raises(BenchError, match="--devices 4, but WORLD_SIZE is 2") as caught:
        launch.process_count(4)
    assert "write --devices 2" in (caught.value.hint or "")
