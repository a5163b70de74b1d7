"""A finished run stands for a planned one of the same code; of other code only where somebody says so."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.benchmark.reuse import reuse_finished_runs
from harness.config.load import load_preset
from harness.config.run import MadeFrom, TrainedRun
from results import DatasetRecord, Outcome, Quantity, RunSpec, SplitResult, Store
from results.records import CodeRecord
from results.runs.leaderboard import leaderboard

FILES = {"zoo/models/mine.py": "11", "harness/training/trainer.py": "22"}
CODE = CodeRecord("m1", "h1", "1", FILES)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "bench.sqlite") as opened:
        opened.record_dataset(DatasetRecord("scenes", "f" * 16, "/pictures", {"test": 1}, ()))
        yield opened


def cell(key: str = "mine-s0-a", code: CodeRecord | None = CODE, **changes: Any) -> RunSpec:
    made_from = MadeFrom(preset="quick", digest=None, schedule="quick", size="quick")
    seed, model = changes.get("seed", 0), "updown"
    run = TrainedRun(model=model, seed=seed, arguments={"d_model": 8}, preset=load_preset("quick"), made_from=made_from)
    signature = {"nrefs": "5", "rev": code.revision, "v": "0.3.0"} if code else {"nrefs": "5", "v": "0.2.0"}
    config = run.model_dump(mode="json")
    plain = RunSpec(
        key, model, "model", 0, "controlled", "f" * 16, {}, signature,
        config=config, code_version=signature["v"], code=code,
    )  # fmt: skip
    return replace(plain, **changes)


def finish(store: Store, made: RunSpec) -> None:
    result = SplitResult("test", {}, {"overall": {"CIDEr-D": Quantity(0.5)}}, {"CIDEr-D": {}})
    store.plan([made])
    store.begin(made.key, {}, made.code)
    store.finish(made.key, Outcome((result,), {}, {}))


def settled(store: Store, planned: RunSpec, *, accept: bool = False, rerun: bool = False) -> tuple[str, list[str]]:
    [found], notes = reuse_finished_runs([planned], store, accept=accept, rerun=rerun)
    return found.key, notes


def test_the_same_code_needs_no_word(store: Store) -> None:
    finish(store, cell())
    assert settled(store, cell()) == ("mine-s0-a", [])


def test_a_row_that_cannot_be_read_is_not_re_used(store: Store) -> None:
    made = cell("mine-s0-b")
    assert made.config is not None
    finish(store, replace(made, config={**made.config, "field_of_another_release": 1}))
    assert settled(store, cell(), accept=True) == ("mine-s0-a", [])


def test_other_code_of_the_model_is_run_anew(store: Store) -> None:
    finish(store, cell())
    planned = cell("mine-s0-b", replace(CODE, model="m2", files=FILES | {"zoo/models/mine.py": "12"}))
    key, [note] = settled(store, planned)
    assert key == "mine-s0-b"
    assert "new, because zoo/models/mine.py changed since; the older run stays" in note
    assert "--reuse any" in note
    key, [note] = settled(store, planned, accept=True)
    assert key == "mine-s0-a"
    assert "re-used, made by other code: zoo/models/mine.py changed" in note
    assert settled(store, planned, rerun=True) == ("mine-s0-b", [])


def test_a_plugin_that_is_not_given_again_is_named(store: Store) -> None:
    finish(store, cell(code=replace(CODE, model="m2", files=FILES | {"other.py": "1"})))
    _, [note] = settled(store, cell("mine-s0-b"))
    assert "new, because the finished run also loaded other.py; the older run stays" in note


def test_other_code_of_the_harness_is_named_and_re_used(store: Store) -> None:
    finish(store, cell())
    files = FILES | {"harness/training/trainer.py": "23", "harness/a.py": "1", "harness/b.py": "1", "harness/c.py": "1"}
    key, [note] = settled(store, cell(code=replace(CODE, harness="h2", files=files)))
    assert key == "mine-s0-a"
    assert "re-used although harness/a.py, harness/b.py, harness/c.py and 1 more changed" in note
    assert "--reuse none" in note


def test_the_nearest_code_is_compared_with(store: Store) -> None:
    finish(store, cell())
    finish(store, cell("mine-s0-later", replace(CODE, model="m2", files=FILES | {"zoo/models/mine.py": "12"})))
    edited = replace(CODE, revision="1+h2", harness="h2", files=FILES | {"harness/training/trainer.py": "23"})
    _, [note] = settled(store, cell("mine-s0-edited", edited))
    assert "new, because harness/training/trainer.py changed since;" in note


def test_another_revision_is_run_anew(store: Store) -> None:
    finish(store, cell())
    key, [note] = settled(store, cell("mine-s0-c", replace(CODE, revision="2")))
    assert key == "mine-s0-c"
    assert "the finished run is of results revision 1, not 2" in note


def test_other_settings_are_not_taken_for_the_same(store: Store) -> None:
    finish(store, cell())
    other = cell("mine-s0-d", replace(CODE, model="m2"))
    for changed in (
        replace(other, config={**(other.config or {}), "arguments": {"d_model": 16}}),
        replace(other, signature=other.signature | {"nrefs": "4"}),
        replace(other, seed=1),
        replace(other, model="yours"),
    ):
        assert settled(store, changed, accept=True) == ("mine-s0-d", [])


def test_runs_that_recorded_no_code_are_kept_and_not_re_used(store: Store) -> None:
    finish(store, cell("mine-s0-old", None))
    key, notes = settled(store, cell())
    assert (key, len(notes)) == ("mine-s0-a", 1)
    assert settled(store, cell(), accept=True)[0] == "mine-s0-old"


def test_seeds_of_other_code_are_never_averaged_together(store: Store) -> None:
    finish(store, cell())
    later = replace(CODE, model="m2", files=FILES | {"zoo/models/mine.py": "12"})
    for seed in (0, 1):
        finish(store, cell(f"mine-s{seed}-new", later, seed=seed))
    [group] = leaderboard(store)
    assert {row.keys: row.outdated for row in group.rows} == {
        ("mine-s0-a",): "made before zoo/models/mine.py changed",
        ("mine-s0-new", "mine-s1-new"): None,
    }
    finish(store, cell("mine-s0-rev", replace(later, revision="2")))
    assert [[row.keys for row in group.rows] for group in leaderboard(store)][1] == [("mine-s0-rev",)]
    older = {key: row.outdated for group in leaderboard(store) for row in group.rows for key in row.keys}
    assert older["mine-s0-new"] == "of results revision 1, the newest is 2"


def test_a_release_alone_separates_no_rows(store: Store) -> None:
    finish(store, cell())
    finish(store, cell("mine-s1-b", seed=1, signature={"nrefs": "5", "rev": "1", "v": "0.3.1"}, code_version="0.3.1"))
    [group] = leaderboard(store)
    assert [row.seeds for row in group.rows] == [(0, 1)]
