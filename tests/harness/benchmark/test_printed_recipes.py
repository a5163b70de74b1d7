"""Paper presets beside printed numbers: the same recipe as they come, another with any `--set`, which is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.benchmark.context import RunContext, open_context
from harness.benchmark.identity.signature import model_signature
from harness.benchmark.models import resolve_models
from harness.benchmark.plan import plan_runs
from harness.benchmark.run_config import Opening
from harness.config.features import FeatureConfig
from harness.config.load import list_presets, load_preset, preset_digest, shipped_preset
from harness.config.preset import Preset
from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.metrics.signature import EvaluationSettings
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.published import best_match, measured_conditions, scores
from results.published.matching import PublishedMatch, recipes
from zoo import list_models

PAPER = [name for name in list_presets() if load_preset(name).recipe is not None]
OTHERS_CODE = {
    "dlct-paper", "expansionnet-v1-paper", "gcn-lstm-paper", "object-relation-luo", "rstnet-paper", "sgae-paper",
    "updown-paper",
}  # fmt: skip
NOT_PRINTED = {"grit-paper", "m2-paper", "noam-paper"}
ONE_A_ROOM = {
    "size.d_model=16": "size.d_model: the model's own → 16",
    "small_models=true": "small_models: false → true",
    "vocabulary.min_count=9": "vocabulary.min_count: {} → 9",
    "decoding.max_len=8": "decoding.max_len: {} → 8",
    "schedule.stages.0.epochs=1": "schedule.stages.0.epochs: {} → 1",
    "schedule.stages.1.learning_rate.peak=0.5": "schedule.stages.1.learning_rate.peak: {} → 0.5",
    "recipe.non_rgb={}": "recipe.non_rgb: {} → {}",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """A few scenes that are called coco, as every model would meet them."""
    folder = tmp_path_factory.mktemp("tiny")
    data = prepare_scenes(folder, ScenesConfig(train=2, val=1, test=1, nocaps_per_domain=1))
    [file] = data.glob("dataset*.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"dataset": "coco"}))
    with Reporter() as reporter:
        opening = Opening(data=str(data), preset=load_preset("smoke"), features=FeatureConfig(), sees={})
        return open_context(opening, Workspace(folder / "workspace"), reporter)


def beside(preset: Preset, tiny: RunContext, tmp_path: Path) -> dict[str, PublishedMatch]:
    """The printed CIDEr-D that a run of each of the recipe's models would stand beside, where there is one."""
    assert preset.recipe is not None
    signature = model_signature(
        preset, data=tiny.signature["data"], nrefs="5", evaluation=EvaluationSettings(), features="f", vocabulary="v",
        precision="fp32",
    )  # fmt: skip
    workspace = Workspace(tmp_path)
    models = resolve_models([name for name in list_models() if preset.recipe.covers(name)], workspace)
    specs = plan_runs(models, 1, replace(tiny, preset=preset, signature=signature), workspace)
    matches = {
        spec.model: best_match(spec.model, "CIDEr-D", measured_conditions("test", spec.signature, spec.config))
        for spec in specs
    }
    return {model: match for model, match in matches.items() if match is not None}


def recipe(match: PublishedMatch) -> str:
    """What a match says of the recipe, "" where it is the same."""
    return " ".join(each for each in (*match.differing, *match.unclear, *match.unstated) if each.startswith("recipe"))


@pytest.mark.parametrize("name", PAPER)
def test_a_paper_preset_as_it_comes_is_the_recipe_of_its_rows(name: str, tiny: RunContext, tmp_path: Path) -> None:
    preset = load_preset(name)
    assert shipped_preset(preset) == {"digest": recipes()[name].digest, "deviations": []}, (
        f"{name} has changed: write its digest into recipes(), unless it is no longer the recipe of those rows"
    )
    matches = beside(preset, tiny, tmp_path)
    assert bool(matches) == (name not in NOT_PRINTED)
    own = {model for model, match in matches.items() if recipes()[name].made(match.score)}
    assert {model for model, match in matches.items() if not recipe(match)} == own
    assert bool(own) == (name not in OTHERS_CODE | NOT_PRINTED)
    if name != "expansionnet-v2-paper-frozen":  # whose end-to-end row was trained by two more steps
        assert own in (set(matches), set())
    for model in matches.keys() - own:
        assert recipes()[name].whose in recipe(matches[model])


@pytest.mark.parametrize("name", PAPER)
def test_any_one_set_makes_another_recipe_and_is_named(name: str, tiny: RunContext, tmp_path: Path) -> None:
    as_it_comes = load_preset(name)
    assert as_it_comes.recipe is not None
    other = "convert" if as_it_comes.recipe.non_rgb == "black" else "black"
    stages = len(as_it_comes.schedule.stages)
    for change, said in ONE_A_ROOM.items():
        if stages == 1 and "stages.1." in change:
            continue
        override = change.format(other)
        first, _, last = said.partition("{}")
        for match in beside(load_preset(name, (override,)), tiny, tmp_path).values():
            assert first in recipe(match), override
            assert last.format(other) in recipe(match), override


def test_what_scores_do_not_depend_on_is_no_deviation() -> None:
    changes = ("summary=mine", "latency_repeats=3", "energy_seconds=0", "schedule.summary=mine")
    changed = load_preset("aoanet-paper", (*changes, "recipe.models=[aoanet]", "recipe.published=null"))
    assert shipped_preset(changed)["deviations"] == []
    assert preset_digest(changed) == recipes()["aoanet-paper"].digest


def test_stages_and_settings_within_them_are_named() -> None:
    one = load_preset("cgru-paper")
    fewer = one.model_copy(update={"schedule": one.schedule.model_copy(update={"stages": one.schedule.stages[:1]})})
    assert shipped_preset(fewer)["deviations"] == ["schedule.stages: xe, reinforce → xe"]
    nested = load_preset("aoanet-paper", ("schedule.stages.0.scheduled_sampling=null", "decoding.beam_size=3"))
    assert shipped_preset(nested)["deviations"] == [
        "decoding.beam_size: 2 → 3",
        'schedule.stages.0.scheduled_sampling: {"every":5,"most":0.5,"start":0,"step":0.05} → null',
    ]
    assert shipped_preset(load_preset("quick", ("decoding.beam_size=3",)))["deviations"] == []


def test_a_preset_that_does_not_ship_differs_as_a_whole() -> None:
    mine = load_preset("aoanet-paper").model_copy(update={"name": "mine"})
    assert shipped_preset(mine) == {"digest": None, "deviations": ["preset: mine does not ship with the harness"]}


@pytest.mark.parametrize("name", PAPER)
def test_target_scores_of_a_recipe_are_printed_ones(name: str) -> None:
    target = getattr(load_preset(name).recipe, "published", None)
    for metric, value in target.scores.items() if target else ():
        wanted = (target.split, metric, value, False, "RL")
        printed = [each for each in scores() if recipes()[name].made(each)]
        assert wanted in [(each.split, each.metric, each.value, each.ensemble, each.objective) for each in printed]
