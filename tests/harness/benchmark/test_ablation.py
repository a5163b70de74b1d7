"""`bench run` of a paper's ablation at a tiny size: the rows that it trains, beside the paper's table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.benchmark.models import resolve_models, within_recipe
from harness.config.load import list_presets, load_preset
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results.published.matching import ablation_tables, recipes
from tests.harness.conftest import DrawScenes, bench, run_words
from zoo import list_models

SMALL = {
    "size.d_model": 16, "size.d_ff": 16, "size.n_heads": 2, "size.n_encoder_layers": 1, "size.n_decoder_layers": 1,
    "decoding.max_len": 8, "decoding.beam_size": 2, "latency_repeats": 2, "energy_seconds": 0,
    "vocabulary.min_count": 2, "schedule.stages.0.epochs": 1, "schedule.stages.0.batch_size": 8,
    "schedule.stages.0.validation_beam_size": 1, "size.max_len": 12, "vocabulary.max_len": 10,
}  # fmt: skip


def test_rows_stand_beside_the_papers_table(draw_scenes: DrawScenes, tmp_path: Path) -> None:
    data = draw_scenes(train=4, val=2, test=3, nocaps_per_domain=1)
    words = run_words(data, tmp_path, "transformer_base,expansionnet_v1/rel*", SMALL)
    done = bench(*words, "--preset", "expansionnet-v2-ablation", "--backbone", "filterbank", env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert "recipe for other models: expansionnet_v1/released, expansionnet_v1/released-no-reduce" in done.output
    shown = done.output[done.output.index("\nTable ") :].partition("\n1 finished")[0]
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
    assert set(list_presets()) >= set(ABLATIONS) == {name for name in list_presets() if name.endswith("-ablation")}
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
    with pytest.raises(BenchError, match="recipe for other models than expansionnet_v1/released"):
        preset.check_model("expansionnet_v1/released")
