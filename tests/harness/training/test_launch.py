"""`bench run` in several processes: started by itself and by torchrun, with a model that fails, a process that dies."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.training import launch
from harness.utils.errors import BenchError
from results import Store
from results.records import EpochRecord
from results.runs.leaderboard import leaderboard
from results.runs.reading import failures, one_run
from tests.harness.conftest import bench_environment, bench_forked, bench_ok

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
    return [
        "run",
        "--workspace",
        str(workspace),
        "--seeds",
        "1",
        *options,
        *(word for change in changes for word in ("--set", change)),
    ]


def curve(workspace: Path, model: str) -> list[EpochRecord]:
    """The epochs of a finished model."""
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        [row] = [
            row for group in leaderboard(store) if group.split == "test" for row in group.rows if row.model == model
        ]
        return [epoch for key in row.keys for epoch in one_run(store, key).epochs]


@pytest.mark.usefixtures("forked_workers")
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
    assert "training process 1 of 2 was ended by SIGKILL" in lost.stderr
    assert "the same command continues" in lost.stderr

    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    command = ["-m", "harness.cli", *words(data, tmp_path / "both", "blind,transformer_base"), *plugin]
    environment = bench_environment(BENCH_TEST_RANK_1="fails")
    torn = subprocess.run(
        [sys.executable, *torchrun, *command], capture_output=True, text=True, env=environment, timeout=600
    )
    assert torn.returncode == 1, "one row failed"
    assert "1 finished, 0 re-used, 1 failed" in torn.stdout
    with Store(tmp_path / "both" / "bench.sqlite", read_only=True) as store:
        [failed] = failures(store)
    assert failed.model == "blind"
    assert "training process 1 of 2 failed: RuntimeError: rank 1 is out of luck" in (failed.reason or "")

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
