"""Ray clusters that lose a node or their driver: nothing is lost or trained twice, and results are those of `--jobs 2`.

Simulated on this machine: `pytest -m campaign -n 0 -s tests/faults/test_ray.py`; minutes.
"""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.benchmark.tune.study import journal_file, open_journal, tuned_trials
from harness.config.tuning import TunedTrial
from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.utils.workspace import Workspace
from results import Store
from results.errors import StoreError
from tests.harness.benchmark.kills import scores_and_captions
from tests.harness.conftest import (
    TINY,
    bench_command,
    bench_environment,
    bench_process,
    run_counts,
    run_words,
    set_options,
)

pytestmark = pytest.mark.campaign
LIMIT_S = 900
PLANNED, TRIALS = 24, 4


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head node without cores; tests add nodes."""
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")  # for busy machines; Ray gives up after 60
    pytest.importorskip("ray", reason="uv sync --inexact --extra ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    yield made
    made.shutdown()


def _with_nodes(cluster: Any, *cores: int) -> list[Any]:
    nodes = [cluster.add_node(num_cpus=each) for each in cores]
    cluster.wait_for_nodes()
    return nodes


def _scenes(folder: Path, train: int) -> Path:
    return prepare_scenes(folder / "data", ScenesConfig(train=train, val=8, test=12, nocaps_per_domain=1))


def _done(words: list[object], threads: int = 1) -> tuple[str, float]:
    """What a command that must succeed prints, and its seconds."""
    started = time.monotonic()
    done = bench_process(*words, OMP_NUM_THREADS=str(threads))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout, time.monotonic() - started


def _driven(words: list[object], said: Path) -> subprocess.Popen[bytes]:
    with said.open("w") as out:
        return subprocess.Popen(
            bench_command(*words), env=bench_environment(OMP_NUM_THREADS="1"), stdout=out, stderr=out
        )


def _wait_for(reached: Callable[[], bool], driver: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + LIMIT_S
    while not reached():
        assert driver.poll() is None, "the driver ended before it was to be disturbed"
        assert time.monotonic() < end
        time.sleep(0.2)


def _statuses(workspace: Path) -> Counter[str]:
    try:
        with Store(workspace / "bench.sqlite", read_only=True) as store, store.reading() as connection:
            return Counter(connection.exec_driver_sql("select status from runs").scalars())
    except StoreError:  # not there yet, or without its tables
        return Counter()


def test_a_node_and_the_driver_are_lost(cluster: Any, tmp_path: Path) -> None:
    data, settings = _scenes(tmp_path, 64), TINY | {"schedule.stages.0.epochs": 3}
    place, undisturbed, said = tmp_path / "place", tmp_path / "undisturbed", tmp_path / "first"

    def words(workspace: Path, *more: object) -> list[object]:
        models = "blind,show_tell,transformer_base,updown"
        return [*run_words(data, workspace, models, settings), "--backbone", "filterbank", "--seeds", 6, *more]

    _done(words(undisturbed, "--jobs", 2))
    nodes = _with_nodes(cluster, 1, 1, 1)
    distributed = words(place, "--executor", f"ray:{cluster.address}")
    driver = _driven(distributed, said)
    _wait_for(lambda: _statuses(place)["finished"] >= 6, driver)
    cluster.remove_node(nodes[0], allow_graceful=False)
    _wait_for(lambda: _statuses(place)["finished"] >= 12, driver)
    driver.kill()
    driver.wait()
    at_kill = _statuses(place)["finished"]
    again, _ = _done(distributed)

    ended = Counter(re.findall(r"^\[(\d+)/24\] [^:\n]+$", said.read_text(), re.MULTILINE))
    counts = run_counts(again)
    with Store(place / "bench.sqlite", read_only=True) as store, store.reading() as connection:
        attempts = Counter(connection.exec_driver_sql("select attempts from runs").scalars())
        epochs = Counter(connection.exec_driver_sql("select count(*) from epochs group by run_id").scalars())
    sys.stdout.write(
        f"\n{PLANNED} runs on 3 nodes, then 2: {at_kill} finished when the driver was killed, then {counts}; runs "
        f"by attempts {dict(attempts)}, begun twice before the kill: {sum(count > 1 for count in ended.values())}\n"
    )
    assert _statuses(place) == {"finished": PLANNED}
    assert counts["re-used"] >= at_kill, "what was finished is not trained again"
    assert counts["finished"] + counts["re-used"] == PLANNED
    assert max(attempts) <= 3, "a run may have been begun, lost with the node, and lost with the driver"
    assert set(epochs) == {3}
    assert scores_and_captions(place) == scores_and_captions(undisturbed)


def test_two_devices_train_each_run(cluster: Any, tmp_path: Path) -> None:
    _with_nodes(cluster, 1, 2)
    data, settings = _scenes(tmp_path, 64), TINY | {"schedule.stages.0.epochs": 2}

    def words(workspace: Path, *more: object) -> list[object]:
        common = run_words(data, workspace, "show_tell,transformer_base,human", settings)
        return [*common, "--backbone", "filterbank", "--devices", 2, *more]

    here, there = tmp_path / "here", tmp_path / "there"
    _done(words(here), threads=2)
    said, took = _done(words(there, "--executor", f"ray:{cluster.address}"), threads=2)
    sys.stdout.write(f"\n3 runs with 2 devices each on a node of 2: {took:.0f} s\n")
    assert run_counts(said).items() >= {"finished": 3, "re-used": 0, "failed": 0}.items()
    assert scores_and_captions(there) == scores_and_captions(here)


def _trials(workspace: Path) -> dict[str, list[TunedTrial]]:
    """Of each study, the trials that count."""
    optuna = pytest.importorskip("optuna")
    storage = open_journal(Workspace(workspace))
    names = optuna.get_all_study_names(storage)
    return {name: tuned_trials(optuna.load_study(study_name=name, storage=storage)) for name in names}


def _finished_trials(workspace: Path) -> int:
    if not journal_file(Workspace(workspace)).exists():
        return 0
    return sum(trial.state == "finished" for trials in _trials(workspace).values() for trial in trials)


def test_a_tuning_whose_driver_is_killed(cluster: Any, tmp_path: Path) -> None:
    _with_nodes(cluster, 1, 1)
    data, settings = _scenes(tmp_path, 160), TINY | {"schedule.stages.0.epochs": 4}

    def words(workspace: Path, *more: object) -> list[object]:
        models = ("--models", "show_tell,transformer_base,updown", "--trials", TRIALS, "--device", "cpu")
        where = ("--data", data, "--workspace", workspace, "--backbone", "filterbank")
        return ["tune", *models, *where, *set_options(settings), *more]

    here, there = tmp_path / "here", tmp_path / "there"
    _, alone = _done(words(here, "--jobs", 2))
    distributed = words(there, "--executor", f"ray:{cluster.address}")
    started, driver = time.monotonic(), _driven(distributed, tmp_path / "said")
    _wait_for(lambda: _finished_trials(there) >= 3, driver)
    driver.kill()
    driver.wait()
    at_kill = _finished_trials(there)
    _done(distributed)
    sys.stdout.write(
        f"\n3 models x {TRIALS} trials on 2 nodes: {at_kill} finished when the driver was killed, "
        f"{time.monotonic() - started:.0f} s in all; --jobs 2 took {alone:.0f} s\n"
    )
    assert _trials(there) == _trials(here)
    arrays = [next((place / "cache" / "features").glob("*/features.npy")) for place in (here, there)]
    assert arrays[0].read_bytes() == arrays[1].read_bytes()
