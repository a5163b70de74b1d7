"""`bench run` under papers' recipes and ablations, at a tiny size, beside printed numbers."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from harness.benchmark.context import RunContext, open_context
from harness.benchmark.rows import resolve_models, within_recipe
from harness.config.features import FeatureConfig
from harness.config.load import PRESETS, load_preset, preset_digest, shipped_preset
from harness.config.preset import Preset
from harness.config.run import Conditions, RunData
from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.utils.errors import BenchError
from harness.utils.progress import silent
from harness.utils.workspace import Workspace
from results import Store
from results.published.scores import (
    PublishedMatch,
    ablation_tables,
    best_match,
    chosen_by,
    measured_conditions,
    recipes,
    scores,
)
from results.runs.leaderboard import leaderboard
from results.runs.reading import described_config, one_run
from tests.harness.benchmark.small_runs import planner
from tests.harness.conftest import DrawScenes, bench_ok, bench_or_raise, groups_in, run_words, tables_of
from zoo import list_models

SMALL = {
    "size.d_model": 16, "size.d_ff": 16, "size.n_heads": 2, "size.n_encoder_layers": 1, "size.n_decoder_layers": 1,
    "small_models": True, "decoding.max_len": 5, "decoding.beam_size": 2, "latency_repeats": 2,
    "vocabulary.min_count": 2,
    **{f"schedule.stages.{at}.epochs": 1 for at in range(4)},
    **{f"schedule.stages.{at}.batch_size": 8 for at in range(4)},
    **{f"schedule.stages.{at}.validation_beam_size": 1 for at in range(4)},
    **{f"schedule.stages.{at}.self_critical.max_len": 6 for at in (2, 3)},
    "schedule.stages.0.learning_rate.warmup_steps": 3, "schedule.stages.0.learning_rate.peak": 0.01,
}  # fmt: skip


@pytest.fixture(scope="module")
def data(draw_scenes: DrawScenes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set with one grey picture."""
    folder = draw_scenes(train=16, val=4, test=5, nocaps_per_domain=1, copy_to=tmp_path_factory.mktemp("data"))
    grey = folder / "images" / "000000.png"
    with Image.open(grey) as picture:
        picture.convert("L").save(grey)
    return folder


def test_the_four_steps_train_score_and_caption(data: Path, tmp_path: Path) -> None:
    words = run_words(data, tmp_path, "expansionnet_v2/end-to-end", SMALL)
    seeing = ("--backbone", "test_resnet", "--backbone-weights", "random", "--image-size", 64)
    with pytest.raises(BenchError, match=r"swin_large_patch4_window12_384\.ms_in22k.* test_resnet"):
        bench_or_raise(*words, "--preset", "expansionnet-v2-paper", *seeing)
    seeing = (*seeing, "--set", "recipe.backbone=test_resnet")
    done = bench_ok(*words, "--preset", "expansionnet-v2-paper", *seeing)
    for stage in ("A-xe-frozen", "B-xe-trained", "C-scst-frozen", "D-scst-trained"):
        assert f"{stage} epoch 1" in done.stdout
    with Store(tmp_path / "bench.sqlite", read_only=True) as store:
        [group] = [group for group in leaderboard(store) if group.split == "test"]
        config = one_run(store, group.rows[0].keys[0]).config
    assert group.track == "paper"
    assert config["evaluated"] == {"test": 5, "nocaps": 3}
    named = {deviation.partition(":")[0] for deviation in config["shipped_preset"]["deviations"]}
    assert named <= SMALL.keys()
    assert {"size.d_model", "decoding.beam_size", "schedule.stages.3.batch_size"} <= named
    assert "gradients=summed" in group.signature["recipe"]
    assert group.signature["vocab"].startswith("expansionnet,min2#")
    [row] = group.rows
    assert row.scores["CIDEr-D"].mean is not None

    [run] = (tmp_path / "runs").iterdir()
    assert json.loads((run / "vocabulary.json").read_text())["preparation"] == "expansionnet"
    assert json.loads((run / "run.json").read_text())["preprocessing"]["non_rgb"] == "black"
    images = sorted((data / "images").glob("*.png"))[:3]
    assert len(bench_ok("caption", *images, "--run", run.name, "--workspace", tmp_path).stdout.splitlines()) == 3


def test_pieces_of_words_and_reinforce_train_score_and_caption(data: Path, tmp_path: Path) -> None:
    small = {
        "size.d_model": 16, "latency_repeats": 2, "vocabulary.merges": 40, "decoding.max_len": 12,
        **{f"schedule.stages.{at}.epochs": 1 for at in range(2)}, "schedule.stages.1.reinforce.max_len": 12,
    }  # fmt: skip
    words = run_words(data, tmp_path, "cgru", small)
    assert "reinforce epoch 1" in bench_ok(*words, "--preset", "cgru-paper", "--backbone", "filterbank").stdout
    [group] = [group for group in groups_in(tmp_path) if group.split == "test"]
    assert group.signature["vocab"].startswith("words,bpe40,min2#")
    assert group.signature["reward"].endswith("linear[nspi1]")
    [run] = (tmp_path / "runs").iterdir()
    assert len(json.loads((run / "vocabulary.json").read_text())["merges"]) == 40
    [image] = sorted((data / "images").glob("*.png"))[:1]
    bench_ok("caption", image, "--run", run.name, "--workspace", tmp_path)


ABLATED = {
    "size.d_model": 16, "size.d_ff": 16, "size.n_heads": 2, "size.n_encoder_layers": 1, "size.n_decoder_layers": 1,
    "decoding.max_len": 8, "decoding.beam_size": 2, "latency_repeats": 2, "energy_seconds": 0,
    "vocabulary.min_count": 2, "schedule.stages.0.epochs": 1, "schedule.stages.0.batch_size": 8,
    "schedule.stages.0.validation_beam_size": 1, "size.max_len": 12, "vocabulary.max_len": 10,
}  # fmt: skip


def test_rows_stand_beside_the_papers_table(draw_scenes: DrawScenes, tmp_path: Path) -> None:
    data = draw_scenes(train=4, val=2, test=3, nocaps_per_domain=1)
    words = run_words(data, tmp_path, "transformer_base,expansionnet_v1/rel*", ABLATED)
    seeing = ("--preset", "expansionnet-v2-ablation", "--backbone", "filterbank", "--set", "recipe.backbone=filterbank")
    bench_ok(*words, *seeing)
    output = tables_of(tmp_path)
    shown = output[output.index("\nTable ") :]
    assert max(map(len, shown.splitlines())) <= 80
    tables = [" ".join(text.split()) for text in shown.split("\nTable ")[1:]]
    assert [text.partition(" of ")[0] for text in tables] == ["2", "I"]
    assert all("printed and measured" in text for text in tables)
    assert "printed on karpathy-test, XE, beam 3; measured on scenes test, beam 2" in tables[0]
    assert "printed on karpathy-val" in tables[1]
    for text in tables:
        assert re.findall(r"\[(\w+)\] printed [\d. ]+ 115\.8 [\d.]+ measured, 1 seed [\d.]+", text) == [
            "transformer_base"
        ]
    full = "G={32, 64, 128, 256, 512}; dynamic NE=16 printed 77.6 62.0 48.2 37.2 29.4 58.1 123.5 22.5"
    assert full in tables[1]
    assert f"{full} measured" not in tables[1], "a row that was not trained"


ABLATIONS = [name for name, recipe in recipes().items() if recipe.ablation]


@pytest.mark.parametrize("preset", ABLATIONS)
def test_every_row_of_a_table_has_a_model_that_the_preset_trains(preset: str) -> None:
    recipe = load_preset(preset).recipe
    assert recipe is not None
    tables = ablation_tables(preset)
    assert tables
    for table in tables:
        for row in table.rows:
            assert any(recipe.covers(model) and model in list_models() for model in row.models), row.name


def test_ablations_are_of_shipped_presets_and_no_others_have_tables() -> None:
    assert set(PRESETS) >= set(ABLATIONS) == {name for name in PRESETS if name.endswith("-ablation")}
    assert ablation_tables("quick") == ()


def test_a_pattern_leaves_out_what_a_name_is_refused_for(tmp_path: Path) -> None:
    preset, workspace = load_preset("expansionnet-v1-ablation"), Workspace(tmp_path)
    patterns = ["expansionnet_v1/*"]
    kept, left_out = within_recipe(resolve_models(patterns, workspace), patterns, preset)
    assert left_out == ["expansionnet_v1/released", "expansionnet_v1/released-no-reduce"]
    assert "expansionnet_v1/static-64" in [model.name for model in kept]
    for asked in (["expansionnet_v1/released", "expansionnet_v1/s*"], ["aoanet/*"], ["all", "expansionnet_v1/*"]):
        models = resolve_models(asked, workspace)
        assert within_recipe(models, asked, preset) == (models, [])
    with pytest.raises(BenchError, match="expansionnet_v1/released"):
        preset.check_model("expansionnet_v1/released")


PAPER = [name for name in PRESETS if load_preset(name).recipe is not None]
OTHERS_CODE = {
    "dlct-paper", "gcn-lstm-paper", "noam-paper", "object-relation-luo", "rstnet-paper", "sgae-paper",
    "expansionnet-v2-standard", "updown-paper",
}  # fmt: skip
NOT_PRINTED = {"grit-paper", "m2-paper"}
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
    preset = load_preset("smoke")
    conditions = Conditions.of_inputs(str(data), None, FeatureConfig(), described=RunData(), preset=preset)
    return open_context(conditions, Workspace(folder / "workspace"), silent())


def beside(
    preset: Preset, tiny: RunContext, tmp_path: Path, models: Iterable[str] | None = None
) -> dict[str, PublishedMatch]:
    """The printed CIDEr-D that a run of each of the recipe's models would stand beside, where there is one."""
    assert preset.recipe is not None
    fields = replace(tiny.data.fields, nrefs="5", features="f", vocabulary="v")
    context, workspace = replace(tiny, preset=preset, data=replace(tiny.data, fields=fields)), Workspace(tmp_path)
    covered = [name for name in list_models() if preset.recipe.covers(name)] if models is None else list(models)
    matches = {}
    for spec in planner(context, workspace).plan(resolve_models(covered, workspace), 1):
        measured = measured_conditions("test", spec.signature, described_config(spec.config, spec.record))
        matches[spec.model] = best_match(spec.model, "CIDEr-D", measured)
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
    own = {model for model, match in matches.items() if chosen_by(match.score, recipes()[name].rows)}
    assert {model for model, match in matches.items() if not recipe(match)} == own
    assert bool(own) == (name not in OTHERS_CODE | NOT_PRINTED)
    if name != "expansionnet-v2-paper-frozen":  # whose end-to-end row was trained by two more steps
        assert own in (set(matches), set())
    for model in matches.keys() - own:
        assert recipes()[name].whose in recipe(matches[model])


@pytest.mark.parametrize("name", [name for name in PAPER if name not in NOT_PRINTED])
def test_any_one_set_makes_another_recipe_and_is_named(name: str, tiny: RunContext, tmp_path: Path) -> None:
    as_it_comes = load_preset(name)
    assert as_it_comes.recipe is not None
    other = "convert" if as_it_comes.recipe.non_rgb == "black" else "black"
    stages = len(as_it_comes.schedule.stages)
    [model, *_] = beside(as_it_comes, tiny, tmp_path)  # what differs is the preset's, for all of its models
    for change, said in ONE_A_ROOM.items():
        if stages == 1 and "stages.1." in change:
            continue
        override = change.format(other)
        first, _, last = said.partition("{}")
        [match] = beside(load_preset(name, (override,)), tiny, tmp_path, [model]).values()
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
    shipped = shipped_preset(mine)
    assert shipped["digest"] is None
    assert [deviation.split()[:2] for deviation in shipped["deviations"]] == [["preset:", "mine"]]


@pytest.mark.parametrize("name", PAPER)
def test_target_scores_of_a_recipe_are_printed_ones(name: str) -> None:
    target = getattr(load_preset(name).recipe, "published", None)
    for metric, value in target.scores.items() if target else ():
        wanted = (target.split, metric, value, False, "RL")
        printed = [each for each in scores() if chosen_by(each, recipes()[name].rows)]
        assert wanted in [(each.split, each.metric, each.value, each.ensemble, each.objective) for each in printed]
