"""Rows of captionbench 1 become configurations by which the same runs are found again."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from harness.benchmark.context import RunContext
from harness.benchmark.release_1 import convert_row
from harness.benchmark.rows import resolve_models
from harness.config.run import config_of, parse_run
from harness.config.tuning import Tuned, TunedValues
from harness.key import identity
from harness.utils.workspace import Workspace
from results import Store
from results.records import RunSpec
from results.store.revisions import count_convertible, upgrade
from tests.harness.benchmark.small_runs import conditions_of, planner

ASSETS = Path(__file__).parents[2] / "results/assets"
TUNED = Tuned("3x2#abcdef", {"updown": TunedValues(learning_rate=4.0, dropout_scale=0.5)})


def row_of_release_1(spec: RunSpec, context: RunContext, **opening: Any) -> dict[str, Any]:
    """The columns that captionbench 1 kept of a run: its untuned preset, and what to apply to it."""
    config = config_of(spec)
    conditions = conditions_of(context)
    record = {"arguments": getattr(config, "arguments", {}), "card": spec.record.get("card"), "settings": "0123"}
    if spec.kind != "reference":
        record["preset"] = config.preset.model_dump(mode="json")
    if members := getattr(config, "members", None):
        record["members"] = list(members)
    tuned = config.made_from.tuned
    opened = {
        "models": [spec.model],
        "data": conditions.files.data,
        "images": None,
        "preset": conditions.preset.model_dump(mode="json"),
        "features": context.data.feature_config.model_dump(mode="json"),
        "sees": {spec.model: "grid"},
        "graphs": [],
        "skip_bad_images": False,
        "device": "cpu",
        "precision": "fp32",
        "spice": False,
        "revision": "6",
    }
    execution = {
        "opening": opened | opening,
        "execution": {**asdict(config.execution), "digests": {}},
        "tuned": None if tuned is None else tuned.model_dump(mode="json"),
    }
    del execution["execution"]["device"]
    columns = {"model": spec.model, "kind": spec.kind, "seed": spec.seed, "signature": spec.signature}
    return {**columns, "record": record, "execution": execution}


@pytest.mark.parametrize("model", ["updown", "human", "retrieval", "ensemble:updown:2"])
@pytest.mark.parametrize("budget", [1, 2])
def test_a_row_is_the_same_run(small: RunContext, workspace: Workspace, model: str, budget: int) -> None:
    planned = planner(small, workspace, tuned=TUNED).plan(resolve_models([model], workspace), 2, budgets=(budget,))
    for spec in planned:
        converted = convert_row(row_of_release_1(spec, small))
        assert converted is not None
        found, now = parse_run(converted, "it"), config_of(spec)
        assert identity(found, spec.signature) == identity(now, spec.signature)
        if spec.kind == "trained":
            assert found.preset == now.preset, "tuned values and budget are applied"
            assert found.files == now.files


def test_a_store_of_1_0_says_what_it_would_re_use_and_then_can(tmp_path: Path) -> None:
    database = Path(shutil.copy(ASSETS / "v1_0_0.sqlite", tmp_path / "bench.sqlite"))
    before = database.read_bytes()
    expected = {"reference": (1, 1), "trained": (2, 2), "ensemble": (1, 1)}
    assert count_convertible(database, convert_row) == ("v1_0_0", expected)
    assert database.read_bytes() == before
    upgrade(database, convert_row)
    with Store(database) as store:
        configs = [config_of(spec) for spec in store.finished_specs()]
    assert [config.kind for config in configs] == ["reference", "trained", "trained", "ensemble"]
    assert {config.files.data for config in configs} == {"/data/scenes"}
    trained = configs[1]
    assert (trained.preset.size["d_model"], trained.made_from.preset) == (16, "smoke")
    assert "size.d_model: 48 → 16" in trained.made_from.deviations


def test_what_this_release_cannot_execute_has_no_configuration(small: RunContext, workspace: Workspace) -> None:
    [spec] = planner(small, workspace).plan(resolve_models(["updown"], workspace), 1)
    assert convert_row(row_of_release_1(spec, small)) is not None
    assert convert_row(row_of_release_1(spec, small, control="noise")) is None
    assert convert_row(row_of_release_1(spec, small, preset={"name": "of no release"})) is None
    captions = {**row_of_release_1(spec, small), "kind": "captions"}
    assert convert_row(captions) is None, "it is scored again"
