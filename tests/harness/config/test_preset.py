"""Presets, overrides and what they reject."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.config.features import feature_config
from harness.config.load import list_presets, load_preset
from harness.utils.errors import BenchError


@pytest.mark.parametrize("name", list_presets())
def test_every_preset_is_valid_and_leaves_room_for_its_captions(name: str) -> None:
    preset = load_preset(name)
    assert preset.size["max_len"] >= max(preset.decoding.max_len, preset.vocabulary.max_len - 1)


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
    ],
)
def test_wrong_overrides_are_named(override: str, named: str) -> None:
    with pytest.raises(BenchError, match=named.replace(".", r"\.")):
        load_preset("quick", (override,))


def test_stages_are_kept_by_name_whatever_the_order_of_overrides() -> None:
    changes = ("stages=[scst]", "schedule.stages.1.epochs=3")
    for overrides in (changes, changes[::-1]):
        [stage] = load_preset("quick-scst", overrides).schedule.stages
        assert (stage.name, stage.epochs) == ("scst", 3)
    with pytest.raises(BenchError, match="'sct' is not a list of this schedule's stages"):
        load_preset("quick-scst", ("stages=sct",))


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(BenchError) as caught:
        load_preset("quikc")
    assert "quick" in (caught.value.hint or "")


def test_model_arguments_add_what_a_glob_matches() -> None:
    preset = load_preset("quick")
    assert "static_lengths" in preset.model_arguments("expansionnet_v2")
    assert "static_lengths" not in preset.model_arguments("transformer_base")


def test_feature_options_need_equals_sign_and_known_normalisation() -> None:
    config = feature_config("resnet18", Path("w.pth"), ("pad_type=same",), 224, "half")
    assert config.options == {"pad_type": "same"}
    with pytest.raises(BenchError, match="no '='"):
        feature_config("resnet18", None, ("pad_type",), None, None)
    with pytest.raises(BenchError, match="normalisation"):
        feature_config("resnet18", None, (), None, "coco")
