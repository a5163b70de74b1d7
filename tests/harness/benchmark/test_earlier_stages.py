"""A run that goes on from the stages of a finished one gives what it gives when they are trained a second time."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import Result

from harness.training import trainer
from harness.training.checkpoint import is_whole
from results import Store
from results.runs.reading import one_run
from tests.harness.benchmark.kills import learned
from tests.harness.conftest import TINY, bench, bench_ok, run_words

MODEL = "updown"
SEEN = ("--preset", "quick-scst", "--backbone", "filterbank")
SETTINGS = TINY | {
    "schedule.stages.0.epochs": 2,
    "schedule.stages.0.dropout": 0.2,
    "schedule.stages.0.learning_rate.warmup_share": 0.2,
    "schedule.stages.1.epochs": 2,
    "schedule.stages.1.validate_every": 1,
    "schedule.stages.1.self_critical.max_len": 6,
    "schedule.stages.1.self_critical.samples": 2,
}
FIRST = {name: value for name, value in SETTINGS.items() if not name.startswith("schedule.stages.1")}


def train(data: Path, workspace: Path, settings: dict[str, Any], *extra: object) -> Result:
    return bench_ok(*run_words(data, workspace, MODEL, settings), *SEEN, *extra)


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace where both stages were trained at once."""
    workspace = tmp_path_factory.mktemp("undisturbed")
    train(data, workspace, SETTINGS)
    return workspace


@pytest.fixture(scope="module")
def first(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace that has the first stage alone, with the beam of another evaluation."""
    workspace = tmp_path_factory.mktemp("first")
    train(data, workspace, FIRST | {"decoding.beam_size": 1}, "--set", "stages=[xe]")
    return workspace


def key_of(workspace: Path, stages: int) -> str:
    query = "SELECT key FROM runs WHERE json_array_length(config, '$.preset.schedule.stages') = ?"
    with closing(sqlite3.connect(workspace / "bench.sqlite")) as store:
        [(key,)] = store.execute(query, (stages,)).fetchall()
    return str(key)


def results_of(workspace: Path) -> tuple[Any, ...]:
    return learned(workspace, key_of(workspace, 2))


def same_weights(one: Path, other: Path) -> bool:
    left, right = (load_file(place / "runs" / key_of(place, 2) / "best.safetensors") for place in (one, other))
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_the_second_stage_is_the_same_after_another_runs_first(data: Path, first: Path, undisturbed: Path) -> None:
    done = train(data, first, SETTINGS)
    earlier = key_of(first, 1)
    assert f"xe: not trained again, the weights are those of {earlier}" in " ".join(done.stdout.split())
    assert "xe epoch 1" not in done.stdout
    assert results_of(first) == results_of(undisturbed)
    assert same_weights(first, undisturbed)
    with Store(first / "bench.sqlite", read_only=True) as store:
        detail = one_run(store, key_of(first, 2))
        assert detail.environment["first_stages_of"] == earlier
        steps = detail.costs["train_steps"].value
        assert detail.costs["train_seconds"].value
        for name in ("train_peak_memory_host", "train_beside"):
            assert detail.costs[name].value is None
            assert detail.costs[name].reason == f"its first stages were trained by {earlier}"
    with Store(undisturbed / "bench.sqlite", read_only=True) as store:
        other = one_run(store, key_of(undisturbed, 2))
        assert "first_stages_of" not in other.environment
        assert steps == other.costs["train_steps"].value
        assert detail.costs["train_gmac"] == other.costs["train_gmac"]
    assert "xe epoch 1" in train(data, first, SETTINGS, "--reuse", "none").output


def test_another_beam_is_searched_without_training(data: Path, undisturbed: Path, tmp_path: Path) -> None:
    train(data, tmp_path, SETTINGS | {"decoding.beam_size": 1})
    greedy = key_of(tmp_path, 2)
    done = train(data, tmp_path, SETTINGS)
    assert f"xe, scst: not trained again, the weights are those of {greedy}" in " ".join(done.stdout.split())
    with closing(sqlite3.connect(tmp_path / "bench.sqlite")) as store:
        store.execute("DELETE FROM runs WHERE key = ?", (greedy,))
        store.commit()
    assert results_of(tmp_path) == results_of(undisturbed)
    assert same_weights(tmp_path, undisturbed)


def test_a_run_that_was_killed_after_it_began_so_is_continued(
    data: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(data, tmp_path, FIRST, "--set", "stages=[xe]")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_run_epoch", killed)
        assert bench(*run_words(data, tmp_path, MODEL, SETTINGS), *SEEN).exit_code != 0
    train(data, tmp_path, SETTINGS)
    assert results_of(tmp_path) == results_of(undisturbed)
    with Store(tmp_path / "bench.sqlite", read_only=True) as store:
        assert one_run(store, key_of(tmp_path, 2)).environment["first_stages_of"] == key_of(tmp_path, 1)


@pytest.mark.parametrize("change", [{"schedule.stages.0.learning_rate.peak": 0.001}, {"size.d_model": 24}])
def test_other_first_stages_are_not_taken(
    data: Path, undisturbed: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    train(data, tmp_path, FIRST | change, "--set", "stages=[xe]")
    assert "xe epoch 1" in train(data, tmp_path, SETTINGS).output
    assert results_of(tmp_path) == results_of(undisturbed)


def test_what_was_lost_is_trained_again(data: Path, undisturbed: Path, tmp_path: Path) -> None:
    for again in (False, True):
        output = train(data, tmp_path, FIRST, "--set", "stages=[xe]").output
        assert ("xe epoch 1" in output, "trained anew" in output) == (not again, again)
        (tmp_path / "bench.sqlite").rename(tmp_path / f"{again}.sqlite")
    (tmp_path / "True.sqlite").rename(tmp_path / "bench.sqlite")
    [weights] = (tmp_path / "stages").glob("*/best.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    assert not is_whole(weights)
    assert not is_whole(tmp_path / "gone.safetensors")
    assert "xe epoch 1" in train(data, tmp_path, SETTINGS).output
    assert results_of(tmp_path) == results_of(undisturbed)


def test_a_stage_of_a_run_that_never_finished_is_taken(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = trainer.Trainer._seed_and_score_start

    def fail_in_second(self: Any, stage: Any, of_stage: Any) -> None:
        if stage.objective == "self_critical":
            raise ValueError("no")
        begin(self, stage, of_stage)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_seed_and_score_start", fail_in_second)
        assert bench(*run_words(data, tmp_path, MODEL, SETTINGS), *SEEN).exit_code == 1
    [weights] = (tmp_path / "stages").glob("*/best.safetensors")
    kept = weights.read_bytes()
    other = SETTINGS | {"schedule.stages.1.epochs": 1, "decoding.beam_size": 1}
    output = train(data, tmp_path, other).output
    assert ("not trained again" in output, "xe epoch 1" in output) == (True, False)
    assert weights.read_bytes() == kept, "later stages write files of their own"


def test_times_of_another_machine_are_not_the_run_s(data: Path, first: Path, tmp_path: Path) -> None:
    workspace = shutil.copytree(first, tmp_path / "workspace", ignore=shutil.ignore_patterns("runs", "bench.sqlite*"))
    for state in (workspace / "stages").glob("*/stage.json"):
        content = json.loads(state.read_text(encoding="utf-8"))
        state.write_text(json.dumps(content | {"machine": "Abacus 3000"}), encoding="utf-8")
    train(data, workspace, SETTINGS | {"decoding.beam_size": 1})
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        costs = one_run(store, key_of(workspace, 2)).costs
    for name in ("train_seconds", "train_images_per_second", "train_gmac_per_second", "train_peak_memory_host"):
        assert costs[name].value is None
        assert "Abacus 3000" in str(costs[name].reason)
    assert costs["train_steps"].value


def test_what_validation_reads_is_of_the_stage(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path, FIRST, "--set", "stages=[xe]")
    for change in ({"decoding.max_len": 7}, {"schedule.stages.0.validation_beam_size": 2}):
        assert "xe epoch 1" in train(data, tmp_path, SETTINGS | change).output
