"""A Ray cluster of three nodes that loses one, and whose driver is killed: nothing is lost, nothing trained twice.

Simulated on this machine: `pytest -m campaign -n 0 -s tests/faults/test_ray_cluster.py`; minutes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from results import Store
from results.errors import StoreError
from tests.harness.benchmark.kills import scores_and_captions
from tests.harness.conftest import TINY, bench_command, bench_environment, bench_process, run_words

pytestmark = pytest.mark.campaign
MODELS, SEEDS = "blind,show_tell,transformer_base,updown", 6
PLANNED = 24
LIMIT_S = 900


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head node without cores, and three nodes with one each."""
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")  # for busy machines; Ray gives up after 60
    pytest.importorskip("ray", reason="uv sync --inexact --extra ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    yield made
    made.shutdown()


def _statuses(workspace: Path) -> Counter[str]:
    try:
        with Store(workspace / "bench.sqlite", read_only=True) as store, store.reading() as connection:
            return Counter(connection.exec_driver_sql("select status from runs").scalars())
    except StoreError:  # not there yet, or without its tables
        return Counter()


def _wait_for(reached: Callable[[], bool], driver: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + LIMIT_S
    while not reached():
        assert driver.poll() is None, "the driver ended before it was to be disturbed"
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_node_and_the_driver_are_lost(cluster: Any, tmp_path: Path) -> None:
    data = prepare_scenes(tmp_path / "data", ScenesConfig(train=64, val=8, test=12, nocaps_per_domain=1))
    settings = TINY | {"schedule.stages.0.epochs": 3}
    place, undisturbed = tmp_path / "place", tmp_path / "undisturbed"

    def words(workspace: Path, *more: object) -> list[object]:
        return [*run_words(data, workspace, MODELS, settings), "--backbone", "filterbank", "--seeds", SEEDS, *more]

    alone = bench_process(*words(undisturbed, "--jobs", 2), OMP_NUM_THREADS="1")
    assert alone.returncode == 0, alone.stderr

    nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
    cluster.wait_for_nodes()
    distributed = words(place, "--on", f"ray:{cluster.address}")
    environment = bench_environment(OMP_NUM_THREADS="1")
    said = tmp_path / "first"
    started = time.monotonic()
    with said.open("w") as out:
        driver = subprocess.Popen(bench_command(*distributed), env=environment, stdout=out, stderr=out)
        _wait_for(lambda: _statuses(place)["finished"] >= 6, driver)
        cluster.remove_node(nodes[0], allow_graceful=False)
        _wait_for(lambda: _statuses(place)["finished"] >= 12, driver)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    at_kill = _statuses(place)["finished"]
    again = bench_process(*distributed, OMP_NUM_THREADS="1")
    took = time.monotonic() - started
    assert again.returncode == 0, again.stdout[-3000:] + again.stderr[-3000:]

    ended = Counter(re.findall(r"^\[(\d+)/24\] [^:\n]+$", said.read_text(), re.MULTILINE))
    counts = re.search(r"(\d+) finished, (\d+) re-used, (\d+) failed", again.stdout)
    assert counts is not None
    with Store(place / "bench.sqlite", read_only=True) as store, store.reading() as connection:
        attempts = Counter(connection.exec_driver_sql("select attempts from runs").scalars())
        epochs = Counter(connection.exec_driver_sql("select count(*) from epochs group by run_id").scalars())
    sys.stdout.write(
        f"\n{PLANNED} runs on 3 nodes, then 2: {at_kill} finished when the driver was killed, then {counts[0]}; "
        f"{took:.0f} s; runs by attempts {dict(attempts)}, by stored epochs {dict(epochs)}, "
        f"begun twice before the kill: {sum(count > 1 for count in ended.values())}\n"
    )
    assert _statuses(place) == {"finished": PLANNED}
    assert int(counts[2]) >= at_kill, "what was finished is not trained again"
    assert int(counts[1]) + int(counts[2]) == PLANNED
    assert max(attempts) <= 3, "a run may have been begun, lost with the node, and lost with the driver"
    assert set(epochs) == {3}
    assert scores_and_captions(place) == scores_and_captions(undisturbed)
