"""The three kinds of equal: one width for all, as many parameters for all, each model's published size."""

from typing import Any

import pytest

from harness.benchmark.signature import DataFields, model_signature
from harness.config.load import load_preset
from harness.config.preset import Preset
from zoo.errors import ZooError
from zoo.width import count_parameters

COUNTED = {
    # model: (parameters, rows of the vocabulary, channels), as printed or as counted on the authors' code
    "adaptive_attention": (17_339_665, 9_488, 2048),
    "aoanet": (87_369_858, 10_370, 2048),  # printed: 87 M
    "att2all": (15_239_953, 9_488, 2048),
    "att2in": (15_762_193, 9_488, 2048),
    "att2in/embedded": (14_451_985, 9_488, 2048),
    "cgru/paper-size": (2_460_490, 5_066, 1024),  # printed: 2.46 M
    "dlct": (63_036_424 - 28_160, 10_201, 2048),
    "expansionnet_v2": (38_604_560, 10_000, 1536),  # printed: 38 M; its Table VII cuts its own 38.6 off
    "expansionnet_v2/end-to-end": (38_604_560, 10_000, 1536),
    "get": (37_279_744 - 28_160, 10_201, 2048),  # the authors' count has their frozen table of positions
    "get/no-fusion": (35_178_496 - 28_160, 10_201, 2048),
    "image_transformer": (82_121_858, 10_370, 2048),
    "m2": (38_439_424 - 28_160, 10_201, 2048),  # the authors' count has their frozen table of positions
    "puret": (34_212_968 - 51_200, 9_488, 1536),  # with their frozen table of positions; printed: 34 M
    "puret/end-to-end": (34_212_968 - 51_200, 9_488, 1536),
    "rstnet": (46_419_976, 10_201, 2048),  # its signal has embeddings in place of the authors' BERT
    "show_tell": (12_871_440, 9_488, 2048),
    "show_tell/fc": (13_400_848, 9_488, 2048),
    "transformer": (54_914_832, 9_488, 2048),
    "updown": (52_125_025, 9_488, 2048),
    "x_lan": (75_189_781, 9_488, 2048),
    "x_transformer": (137_521_826, 9_488, 2048),
}


def signed_size(preset: Preset) -> str:
    return model_signature(preset, DataFields("d", "5", "f", "v"), precision="fp32")["size"]


@pytest.mark.parametrize("model", COUNTED)
def test_own_size_has_as_many_parameters_as_the_authors(model: str) -> None:
    expected, words, channels = COUNTED[model]
    sizes = {"vocab_size": words, "visual_dim": channels}
    assert count_parameters(model, **sizes, **load_preset("own-size").model_arguments(model, **sizes)) == expected


def test_matched_width_gives_every_model_the_same_sizes() -> None:
    preset = load_preset("matched-width")
    assert preset.model_arguments("updown") == preset.model_arguments("m2") == preset.size


def test_matched_parameters_records_the_width_that_it_found() -> None:
    preset = load_preset("matched-parameters")
    sizes: dict[str, Any] = {"vocab_size": 9_000, "visual_dim": 512}
    arguments = preset.model_arguments("updown", **sizes)
    assert set(arguments) == {"max_len", "d_model", "d_attention"}
    assert count_parameters("updown", **sizes, **arguments) == pytest.approx(40e6, rel=0.02)


def test_models_of_different_widths_share_the_signed_size() -> None:
    signed = signed_size(load_preset("matched-parameters"))
    assert signed.startswith("matched-parameters:40M#")
    assert signed_size(load_preset("matched-parameters", ("parameters=20000000",))).startswith(
        "matched-parameters:20M#"
    )
    assert signed_size(load_preset("small", ("parameters=8000000",))).startswith("small:8M#")
    assert signed_size(load_preset("own-size")).startswith("own-size#")
    assert signed_size(load_preset("matched-width")).startswith("matched-width#")


def test_a_target_takes_the_proportions_of_the_preset() -> None:
    preset = load_preset("small", ("parameters=8000000",))
    sizes: dict[str, Any] = {"vocab_size": 2_600, "visual_dim": 512}
    arguments = preset.model_arguments("transformer_base", **sizes)
    assert arguments["d_ff"] / arguments["d_model"] == pytest.approx(512 / 256, rel=0.1)
    assert arguments["n_encoder_layers"] == 2
    assert count_parameters("transformer_base", **sizes, **arguments) == pytest.approx(8e6, rel=0.02)


@pytest.mark.parametrize("name", ["matched-parameters", "matched-parameters-scst", "own-size", "own-size-scst"])
def test_models_of_the_new_families_keep_their_own_dropout(name: str) -> None:
    stages = load_preset(name).schedule.stages
    kept_dropout = {"cross_entropy": 1.0, "self_critical": 0.0}
    assert all((stage.dropout, stage.dropout_scale) == (None, kept_dropout[stage.objective]) for stage in stages)
    shared = load_preset(f"matched-width{'-scst' * name.endswith('-scst')}").schedule.stages
    kept = [stage.model_dump(exclude={"dropout", "dropout_scale"}) for stage in stages]
    assert kept == [stage.model_dump(exclude={"dropout", "dropout_scale"}) for stage in shared]


def test_a_model_may_say_how_many_parameters_all_others_have() -> None:
    preset = load_preset("quick", ("size.d_model=48",))
    sizes: dict[str, Any] = {"vocab_size": 118, "visual_dim": 64}
    target = count_parameters("transformer_base", **sizes, **preset.size)
    widths, why = preset.matched_widths("cgru", **sizes)
    assert why == ""
    assert count_parameters("cgru", **sizes, **preset.model_arguments("cgru", **sizes)) == pytest.approx(target, 0.02)
    assert widths["d_model"] != 48
    assert signed_size(preset).startswith("quick:transformer_base#")
    with pytest.raises(ZooError, match="no model named 'nobody'"):
        load_preset("quick", ("parameters=nobody",)).model_arguments("cgru", **sizes)


def test_a_model_that_no_width_fits_keeps_the_presets_sizes() -> None:
    preset = load_preset("quick", ("size.d_model=8", "size.d_ff=8"))
    sizes: dict[str, Any] = {"vocab_size": 118, "visual_dim": 64}
    assert preset.model_arguments("dlct", **sizes)["d_model"] == 8
    widths, why = preset.matched_widths("dlct", **sizes)
    assert widths == {}
    assert "4,446 parameters" in why
    with pytest.raises(ZooError, match="dlct cannot have"):  # a preset without a width promises the number
        load_preset("matched-parameters", ("parameters=4000",)).model_arguments("dlct", **sizes)
