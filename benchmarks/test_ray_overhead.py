"""What `--executor ray` takes beyond `--jobs 2` for the same runs on one machine, less the start of Ray itself.

    pytest benchmarks/test_ray_overhead.py -n 0 -s

Both train the same tiny models anew, each run a process of its own alike. Ray runs on this machine, started before the
command and joined by it, so that its start is no part of the time. Commands take turns, and the best of each counts:
other work on a shared machine only ever adds.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from tests.harness.conftest import TINY, bench_process, run_words

pytest.importorskip("ray", reason="pip install 'captionbench[ray]'")
MODELS, EPOCHS = "blind,show_tell,transformer_base,updown", int(os.environ.get("BENCH_EPOCHS", "20"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "2"))
LIMIT = 1.15


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster of one node with two cores."""
    os.environ.setdefault("RAY_worker_niceness", "0")  # as workers of --jobs; Ray's own choice is 15
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")
    import ray.cluster_utils

    made = ray.cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    yield made.address
    made.shutdown()
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_overhead_of_ray(cluster: str, tmp_path: Path) -> None:
    data = prepare_scenes(tmp_path / "data", ScenesConfig(train=200, val=16, test=24, nocaps_per_domain=2))
    settings = TINY | {"schedule.stages.0.epochs": EPOCHS, "schedule.stages.0.validate_every": 5}
    ways: dict[str, list[object]] = {"--jobs 2": ["--jobs", 2], "--executor ray": ["--executor", f"ray:{cluster}"]}
    took: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(ROUNDS):
        for way, words in ways.items():
            place = tmp_path / f"{way.split()[-1]}-{turn}"
            common = [*run_words(data, place, MODELS, settings), "--backbone", "filterbank", "--seeds", 3]
            started = time.monotonic()
            done = bench_process(*common, *words, OMP_NUM_THREADS="1")
            took[way].append(time.monotonic() - started)
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    joining = _joining(cluster)
    here, there = min(took["--jobs 2"]), min(took["--executor ray"])
    shown = {way: [f"{seconds:.1f}" for seconds in each] for way, each in took.items()}
    print(f"\n{shown} s, joining the cluster {joining:.1f} s: {(there - joining) / here:.2f} of --jobs 2")
    assert there - joining <= LIMIT * here


def _joining(address: str) -> float:
    """Seconds that importing Ray and joining a cluster takes."""
    program = f"import ray; ray.init('{address}', log_to_driver=False); ray.shutdown()"
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    return time.monotonic() - started
