"""Which tuned values `bench run` takes: of a workspace, of a file, or those that ship with a preset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from harness.benchmark.context import RunContext
from harness.benchmark.identity.signature import tuned_field
from harness.benchmark.run_config import AppliedTuning
from harness.benchmark.tune.chosen import TunedFile, TunedModel, from_file, from_workspace, shipped_for
from harness.config.load import load_preset, preset_digest, shipped_preset
from harness.config.preset import Preset
from harness.config.tuning import SearchSpace, Tuned, TunedTrial, TunedValues
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from tests.harness.benchmark.tune.conftest import BUDGET, SILENT, requested


def test_a_model_without_a_finished_study_is_named(small: RunContext, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"no finished tuning .* for updown, m2") as caught:
        from_workspace(Workspace(tmp_path))(small, requested("updown", "m2"), SILENT)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("type: bench tune --models updown,m2 --preset smoke --workspace ")


def tuned_file(context: RunContext) -> TunedFile:
    """Values of updown alone, found under these conditions."""
    model = TunedModel(values=TunedValues(dropout_scale=0.2), best=0.5, trials=(TunedTrial(state="finished"),))
    return TunedFile(
        command="bench tune", preset="smoke", data=context.signature["data"], features=context.signature["feat"],
        tuned=tuned_field(SearchSpace(), BUDGET, context.preset), budget=BUDGET, space=SearchSpace(),
        models={"updown": model},
    )  # fmt: skip


def dumped(content: TunedFile, **changes: Any) -> str:
    return yaml.safe_dump(content.model_copy(update=changes).model_dump(mode="json"))


def test_a_file_of_other_conditions_is_refused(small: RunContext, tmp_path: Path) -> None:
    content, file = tuned_file(small), tmp_path / "tuned.yaml"

    def find(changes: dict[str, Any], *names: str) -> Tuned | None:
        file.write_text(dumped(content, **changes), encoding="utf-8")
        return from_file(str(file))(small, requested(*names), SILENT)

    values = {"updown": TunedValues(dropout_scale=0.2)}
    assert find({}, "updown") == Tuned(content.tuned, values, {"updown": content.models["updown"].trials})
    with pytest.raises(BenchError, match="no values for m2"):
        find({}, "updown", "m2")
    with pytest.raises(BenchError, match="tuned under other conditions: data coco#1, here scenes#"):
        find({"data": "coco#1"}, "updown")
    with pytest.raises(BenchError, match="other conditions: preset "):
        find({"budget": BUDGET.model_copy(update={"trials": 4})}, "updown")
    for text, why in (
        ("models: [", "is not a YAML value"),
        ("models: &a [*a]", "aliases"),
        ("a" * 1_000_001, "at most"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(BenchError, match=f"holds no tuned values: .*{why}"):
            from_file(str(file))
    with pytest.raises(BenchError, match="cannot be read: No such file"):
        from_file(str(tmp_path / "none.yaml"))


def test_values_of_a_first_stage_are_for_a_schedule_that_goes_on(small: RunContext, tmp_path: Path) -> None:
    file = tmp_path / "tuned.yaml"
    file.write_text(dumped(tuned_file(small)), encoding="utf-8")
    [stage] = small.preset.schedule.stages
    rewards = stage.model_copy(update={"name": "scst", "objective": "self_critical"})
    longer = small.preset.schedule.model_copy(update={"stages": (stage, rewards)})
    context = replace(small, preset=small.preset.model_copy(update={"name": "longer", "schedule": longer}))
    found = from_file(str(file))(context, requested("updown"), SILENT)
    assert found is not None
    assert found.label == f"{tuned_file(small).tuned}:{stage.name}"
    assert found.stages == 1
    tuned = context.tuned(AppliedTuning(label=found.label, values=found.values["updown"], stages=found.stages))
    assert [each.dropout_scale for each in tuned.preset.schedule.stages] == [0.2, stage.dropout_scale]
    assert tuned.signature["tuned"] == found.label

    other = longer.model_copy(update={"stages": (stage.model_copy(update={"batch_size": 7}), rewards)})
    context = replace(small, preset=small.preset.model_copy(update={"name": "longer", "schedule": other}))
    with pytest.raises(BenchError, match="other conditions: preset "):
        from_file(str(file))(context, requested("updown"), SILENT)


def test_values_are_for_the_searched_stages_at_any_length(small: RunContext, tmp_path: Path) -> None:
    file = tmp_path / "tuned.yaml"
    plain = replace(small, preset=load_preset("smoke"))
    file.write_text(dumped(tuned_file(plain)), encoding="utf-8")
    at = "schedule.stages.0."
    longer = [f"{at}epochs=7", f"{at}validate_every=2"]

    def find(preset: Preset) -> Tuned | None:
        return from_file(str(file))(replace(small, preset=preset), requested("updown"), SILENT)

    found = find(load_preset("smoke", tuple(longer)))
    assert found == find(plain.preset)
    assert found is not None
    assert (found.label, found.stages) == (tuned_file(plain).tuned, None)
    applied = AppliedTuning(label=found.label, values=found.values["updown"], stages=found.stages)
    tuned = replace(small, preset=load_preset("smoke", tuple(longer))).tuned(applied)
    [stage] = tuned.preset.schedule.stages
    assert (stage.epochs, stage.validate_every, stage.dropout_scale) == (7, 2, 0.2)
    for change in ("clip_norm=3", "learning_rate.peak=0.5", "learning_rate.floor=0.5", "batch_size=3"):
        with pytest.raises(BenchError, match="other conditions: preset "):
            find(load_preset("smoke", (*longer, at + change)))


@pytest.mark.parametrize(
    ("changes", "names", "tuned", "said"),
    [
        ({}, ("updown",), ["updown"], []),
        ({}, ("updown", "m2"), ["updown"], ["untuned: m2: 'mine' has no tuned values"]),
        ({}, ("m2",), [], ["untuned: m2: 'mine' has no tuned values"]),
        ({"data": "coco#1"}, ("updown",), [], ["of other conditions (data coco#1, here scenes#"]),
        ({"features": "r101"}, ("updown",), [], ["of other conditions (features r101, here "]),
        ({"tuned": "3x2#000000"}, ("updown",), [], ["of other conditions (preset 3x2#000000, here 3x2#"]),
    ],
)  # fmt: skip
def test_shipped_values_are_for_their_conditions_and_models(
    changes: dict[str, Any],
    names: Sequence[str],
    tuned: list[str],
    said: list[str],
    small: RunContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.benchmark.tune.chosen.list_tuned", lambda: ["mine"])
    monkeypatch.setattr("harness.benchmark.tune.chosen.shipped_tuned", lambda _: dumped(tuned_file(small), **changes))
    find = shipped_for(small.preset.model_copy(update={"tuned": "mine"}))
    assert find is not None
    console = Console(file=StringIO(), width=400)
    found = find(small, requested(*names), Reporter(console))
    assert ([] if found is None else list(found.values)) == tuned
    lines = [line for line in console.file.getvalue().splitlines() if line.startswith("untuned")]  # type: ignore[attr-defined]
    assert len(lines) == len(said)
    assert all(part in line for part, line in zip(said, lines, strict=True))


def test_a_preset_that_names_no_values_has_its_own(small: RunContext) -> None:
    assert shipped_for(small.preset) is None
    with pytest.raises(BenchError, match="no values ship under the name 'none'") as caught:
        shipped_for(small.preset.model_copy(update={"tuned": "none"}))
    assert "--untuned" in str(caught.value.hint)


def test_where_values_come_from_is_in_no_digest() -> None:
    plain, named = (load_preset("small", changes) for changes in ((), ("tuned=small",)))
    assert "tuned" not in plain.model_dump(mode="json")
    assert preset_digest(named) == preset_digest(plain)
    assert tuned_field(SearchSpace(), BUDGET, named) == tuned_field(SearchSpace(), BUDGET, plain)
    assert shipped_preset(named)["deviations"] == []
    assert named.untuned() == plain
