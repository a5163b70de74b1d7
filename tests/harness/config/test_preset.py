"""Presets, what overrides of them are refused, and recipes of the paper track with their signatures."""

from pathlib import Path

import pytest

from harness.benchmark.signature import DataFields, model_signature, reference_signature
from harness.config.features import feature_config
from harness.config.load import PRESETS, load_preset, load_schedule
from harness.config.preset import Preset
from harness.utils.errors import BenchError


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_whole_and_leaves_room_for_its_captions(name: str) -> None:
    preset = load_preset(name)
    assert Preset.model_validate(preset.model_dump(mode="json")) == preset
    assert preset.summary
    assert preset.size["max_len"] >= max(preset.decoding.max_len, preset.vocabulary.max_len - 1)


def test_a_preset_has_the_settings_of_the_one_that_it_extends() -> None:
    base, extended = (load_preset(name).model_dump() for name in ("matched-width", "matched-width-scst"))
    assert {name for name in base if base[name] != extended[name]} == {"name", "summary", "schedule"}
    own = load_preset("own-size-scst")
    assert (own.parameters, load_preset("matched-parameters-scst").parameters) == (None, 40_000_000)


def test_a_stage_changes_that_of_its_name_in_the_schedule_that_is_extended() -> None:
    shared, own = (load_schedule(name).stages for name in ("shared-xe-scst", "shared-xe-scst-own-dropout"))
    for before, after in zip(shared, own, strict=True):
        changed = {name for name, value in dict(before).items() if value != dict(after)[name]}
        assert changed == {"dropout", "dropout_scale"}
        assert after.dropout is None


def test_overrides_reach_nested_settings_and_lists() -> None:
    preset = load_preset("quick", ("schedule.stages.0.epochs=3", "size.d_model=64", "decoding.beam_size=2"))
    assert (preset.schedule.stages[0].epochs, preset.size["d_model"], preset.decoding.beam_size) == (3, 64, 2)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("size.d_model", "no '='"),
        ("schedule.stages.9.epochs=2", "no such setting"),
        ("schedule.stages.-1.epochs=2", "no such setting"),
        ("schedule.stages.-1={name: xe}", "no such setting"),
        ("schedule.stages.0.epoch=2", "schedule.stages.0.epoch"),
        ("size.d_model=wide", "size.d_model"),
        ("decoding.beam_size=0", "decoding.beam_size"),
        ("decoding=[", "is not a YAML value"),
        ("schedule=null", "schedule: "),
        ("schedule.stages=3", "schedule.stages: "),
        ("schedule.stages.0=5", "schedule.stages.0: "),
    ],
)
def test_wrong_overrides_are_named(override: str, named: str) -> None:
    for more in ((), ("stages=[xe]",)):
        with pytest.raises(BenchError, match=named.replace(".", r"\.")):
            load_preset("quick", (override, *more))


def test_stages_are_kept_by_name_whatever_the_order_of_overrides() -> None:
    changes = ("stages=[scst]", "schedule.stages.1.epochs=3")
    for overrides in (changes, changes[::-1]):
        [stage] = load_preset("quick-scst", overrides).schedule.stages
        assert (stage.name, stage.epochs) == ("scst", 3)
    with pytest.raises(BenchError, match="'sct'"):
        load_preset("quick-scst", ("stages=sct",))


def test_captions_are_no_longer_than_models_take() -> None:
    with pytest.raises(BenchError, match=r"decoding\.max_len 99 .*max_len 24"):
        load_preset("quick", ("decoding.max_len=99",)).check_lengths()
    with pytest.raises(BenchError, match=r"stages\.1\.self_critical\.max_len 20"):
        load_preset("quick-scst", ("decoding.max_len=9", "size.max_len=19")).check_lengths()


def test_model_arguments_add_what_a_glob_matches() -> None:
    preset = load_preset("small")
    assert "static_lengths" in preset.model_arguments("expansionnet_v2")
    assert "static_lengths" not in preset.model_arguments("transformer_base")


def test_feature_options_need_equals_sign_and_known_normalisation() -> None:
    assert feature_config("resnet18", Path("w.pth"), ("pad_type=same",), 224, "half").options == {"pad_type": "same"}
    with pytest.raises(BenchError, match="no '='"):
        feature_config("resnet18", None, ("pad_type",), None, None)
    with pytest.raises(BenchError, match="normalisation"):
        feature_config("resnet18", None, (), None, "coco")


FIELDS = DataFields(data="d", nrefs="5", features="f", vocabulary="v")


def test_the_papers_recipe_names_every_deviation_in_its_signature() -> None:
    signature = model_signature(load_preset("expansionnet-v2-paper"), FIELDS, precision="fp32")
    assert signature["track"] == "paper"
    assert signature["recipe"].split(",") == [
        "captions=expansionnet", "non-rgb=black", "optimiser=radam_liu", "warmup=hyperbolic", "gradients=summed",
        "ranking=count-bos", "unfinished=cut",
    ]  # fmt: skip
    assert reference_signature(signature, nrefs="4")["recipe"] == "none"


def test_a_recipe_that_is_not_its_authors_says_whose() -> None:
    signature = model_signature(load_preset("object-relation-luo"), FIELDS, precision="fp32")
    assert "by=luo" in signature["recipe"].split(",")
    assert "by" not in load_preset("noam-paper").model_dump()["recipe"]


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
