"""`bench tune --on ray`, whose driver is killed: the trials and the features are those of `--jobs 2`, bit for bit.

Simulated on this machine: `pytest -m campaign -n 0 -s tests/faults/test_ray_tuning.py`; minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from harness.benchmark.tune.storage import open_studies
from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.utils.workspace import Workspace
from tests.harness.conftest import TINY, bench_command, bench_environment, bench_process, set_options

pytestmark = pytest.mark.campaign
MODELS, TRIALS = "show_tell,transformer_base,updown", 4
LIMIT_S = 600


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head node without cores, and two nodes with one each."""
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")
    pytest.importorskip("ray", reason="pip install 'captionbench[ray]'")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(2):
        made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def _trials(workspace: Path) -> dict[str, list[tuple[object, ...]]]:
    """Of each model, all that its values depend on."""
    storage = open_studies(Workspace(workspace))
    found = {}
    for name in optuna.get_all_study_names(storage):
        trials = optuna.load_study(study_name=name, storage=storage).trials
        repeated = {trial.user_attrs.get("repeats") for trial in trials}
        found[name.split()[0]] = [
            (trial.state, trial.params, trial.value, trial.intermediate_values)
            for trial in trials
            if trial.number not in repeated
        ]
    return found


def _finished(workspace: Path) -> int:
    if not (workspace / "tuning.sqlite").exists():
        return 0
    return sum(trial[0] == TrialState.COMPLETE for trials in _trials(workspace).values() for trial in trials)


def test_a_tuning_on_a_cluster_whose_driver_is_killed(cluster: Any, tmp_path: Path) -> None:
    data = prepare_scenes(tmp_path / "data", ScenesConfig(train=160, val=8, test=12, nocaps_per_domain=1))
    settings = TINY | {"schedule.stages.0.epochs": 4}

    def words(workspace: Path, *more: object) -> list[object]:
        where = ("--models", MODELS, "--data", data, "--workspace", workspace, "--device", "cpu", "--trials", TRIALS)
        return ["tune", *where, "--backbone", "filterbank", *set_options(settings), *more]

    here, there = tmp_path / "here", tmp_path / "there"
    started = time.monotonic()
    alone = bench_process(*words(here, "--jobs", 2), OMP_NUM_THREADS="1")
    assert alone.returncode == 0, alone.stdout + alone.stderr
    jobs_took = time.monotonic() - started

    distributed = words(there, "--on", f"ray:{cluster.address}")
    said, started = tmp_path / "said", time.monotonic()
    with said.open("w") as out:
        driver = subprocess.Popen(
            bench_command(*distributed), env=bench_environment(OMP_NUM_THREADS="1"), stdout=out, stderr=out
        )
        while _finished(there) < 3:
            assert driver.poll() is None, said.read_text()
            assert time.monotonic() - started < LIMIT_S
            time.sleep(0.2)
        driver.kill()
        driver.wait()
    at_kill = _finished(there)
    again = bench_process(*distributed, OMP_NUM_THREADS="1")
    assert again.returncode == 0, again.stdout[-3000:] + again.stderr[-3000:]
    sys.stdout.write(
        f"\n3 models x {TRIALS} trials on 2 nodes: {at_kill} finished when the driver was killed, "
        f"{time.monotonic() - started:.0f} s in all; --jobs 2 took {jobs_took:.0f} s\n"
    )
    assert _trials(there) == _trials(here)
    arrays = [next((place / "cache" / "features").glob("*/features.npy")) for place in (here, there)]
    assert arrays[0].read_bytes() == arrays[1].read_bytes()
