"""The paper track: what a recipe allows, where it is refused, and how a signature shows it."""

from __future__ import annotations

import pytest

from harness.benchmark.identity.signature import model_signature, reference_signature
from harness.config.load import list_presets, list_schedules, load_preset, load_schedule
from harness.config.preset import Preset
from harness.metrics.signature import EvaluationSettings
from harness.utils.errors import BenchError
from tests.harness.conftest import bench

CONDITIONS = {
    "data": "d", "nrefs": "5", "evaluation": EvaluationSettings(), "features": "f", "vocabulary": "v",
    "precision": "fp32",
}  # fmt: skip


def test_the_papers_recipe_names_every_deviation_in_its_signature() -> None:
    signature = model_signature(load_preset("expansionnet-v2-paper"), **CONDITIONS)
    assert signature["track"] == "paper"
    assert signature["recipe"].split(",") == [
        "captions=expansionnet", "non-rgb=black", "optimiser=radam_liu", "warmup=hyperbolic", "gradients=summed",
        "ranking=count-bos", "unfinished=cut",
    ]  # fmt: skip
    assert reference_signature(signature, nrefs="4")["recipe"] == "none"


def test_a_recipe_that_is_not_its_authors_says_whose() -> None:
    borrowed = load_preset("object-relation-luo")
    assert "by=luo" in model_signature(borrowed, **CONDITIONS)["recipe"].split(",")
    assert "by" not in load_preset("noam-paper").model_dump()["recipe"]


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ("recipe.non_rgb=convert", "non-rgb=black"),
        ("decoding.count_bos=false", "ranking=count-bos"),
        ("recipe.captions=words", "captions=expansionnet"),
    ],
)
def test_a_setting_that_is_taken_back_leaves_the_signature(change: str, gone: str) -> None:
    whole = model_signature(load_preset("expansionnet-v2-paper"), **CONDITIONS)["recipe"]
    less = model_signature(load_preset("expansionnet-v2-paper", (change,)), **CONDITIONS)["recipe"]
    assert set(whole.split(",")) - set(less.split(",")) == {gone}


def test_the_controlled_track_has_no_recipe_in_its_signature() -> None:
    signature = model_signature(load_preset("quick"), **CONDITIONS)
    assert signature["track"] == "controlled"
    assert "recipe" not in signature
    assert "recipe" not in reference_signature(signature, nrefs="4")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("decoding.count_bos=true", "ranking=count-bos"),
        ("decoding.cut_unfinished=true", "unfinished=cut"),
        ("decoding.banned=[<unk>]", "banned=<unk>"),
        ("decoding.release_finished=true", "finished=released"),
        ("decoding.bad_endings=[a, of]", r"never-last=a\+of"),
        ("decoding.trigram_penalty=1.5", "trigrams-1.5"),
        ("schedule.stages.0.optimiser.name=radam_liu", "radam_liu"),
        ("schedule.stages.0.learning_rate.warmup=hyperbolic", "warmup=hyperbolic"),
        ("schedule.stages.0.accumulation.gradients=summed", "gradients=summed"),
    ],
)
def test_the_controlled_track_refuses_them(change: str, named: str) -> None:
    with pytest.raises(BenchError, match=named) as caught:
        load_preset("matched-width", (change,))
    assert "paper track" in str(caught.value)


def test_a_recipe_is_for_its_papers_models() -> None:
    preset = load_preset("expansionnet-v2-paper")
    assert preset.model_arguments("expansionnet_v2/end-to-end") == {"max_len": 74}
    with pytest.raises(BenchError, match="for other models than transformer_base"):
        preset.model_arguments("transformer_base")


def test_a_preset_may_take_some_of_a_schedules_stages() -> None:
    frozen = load_preset("expansionnet-v2-paper-frozen")
    assert [stage.name for stage in frozen.schedule.stages] == ["A-xe-frozen", "C-scst-frozen"]
    assert all(stage.backbone == "frozen" for stage in frozen.schedule.stages)


@pytest.mark.parametrize("name", list_presets())
def test_presets_survive_their_dump(name: str) -> None:
    preset = load_preset(name)
    assert Preset.model_validate(preset.model_dump(mode="json")) == preset


def test_schedules_are_listed_and_shown() -> None:
    listed = bench("schedules")
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in list_schedules())
    shown = bench("schedules", "expansionnet-v2-4step")
    assert "warmup: hyperbolic" in shown.stdout
    assert "name: D-scst-trained" in shown.stdout
    with pytest.raises(BenchError, match="unknown schedule 'x'"):
        load_schedule("x")
