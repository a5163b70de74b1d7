"""Runs with two devices each on a Ray cluster: scores, captions and losses are those of `--devices 2` without one.

Simulated here, with two processes for devices: `pytest -m campaign -n 0 -s tests/faults/test_ray_devices.py`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from tests.harness.benchmark.kills import scores_and_captions
from tests.harness.conftest import TINY, bench_process, run_words

pytestmark = pytest.mark.campaign


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of a cluster of a head node without cores, one node with one, and one with two."""
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")
    pytest.importorskip("ray", reason="pip install 'captionbench[ray]'")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for cores in (1, 2):
        made.add_node(num_cpus=cores)
    made.wait_for_nodes()
    yield made.address
    made.shutdown()


def test_two_devices_train_each_run(cluster: str, tmp_path: Path) -> None:
    data = prepare_scenes(tmp_path / "data", ScenesConfig(train=64, val=8, test=12, nocaps_per_domain=1))
    settings = TINY | {"schedule.stages.0.epochs": 2}

    def words(workspace: Path, *more: object) -> list[object]:
        common = run_words(data, workspace, "show_tell,transformer_base,human", settings)
        return [*common, "--backbone", "filterbank", "--devices", 2, *more]

    here, there = tmp_path / "here", tmp_path / "there"
    alone = bench_process(*words(here), OMP_NUM_THREADS="2")
    assert alone.returncode == 0, alone.stdout[-3000:] + alone.stderr[-3000:]
    started = time.monotonic()
    done = bench_process(*words(there, "--on", f"ray:{cluster}"), OMP_NUM_THREADS="2")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    sys.stdout.write(f"\n3 runs with 2 devices each on a node of 2: {time.monotonic() - started:.0f} s\n")
    assert "3 finished, 0 re-used, 0 failed" in done.stdout
    assert scores_and_captions(there) == scores_and_captions(here)
