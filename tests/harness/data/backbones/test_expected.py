"""What is known of a backbone's weights, against the settings that were chosen for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.data.backbones.timm_backbone import preprocessing_doubts

PADDING, HALF, IMAGENET = "--backbone-option pad_type=same", "--normalisation half", "--normalisation imagenet"
SAME = {"pad_type": "same"}
TF = Path("mobilenetv2_100_tf_in1k_fp16.pth")


@pytest.mark.parametrize(
    ("name", "weights", "options", "normalisation", "wanted"),
    [
        ("mobilenetv2_100", TF, {}, None, [PADDING, HALF]),
        ("mobilenetv2_100", TF, {}, "half", [PADDING]),
        ("mobilenetv2_100", TF, SAME, "imagenet", [HALF]),
        ("mobilenetv2_100", TF, SAME, "half", []),
        ("mobilenetv2_100", Path("mobilenetv2_100_ra-b33bc2c4.pth"), {}, None, []),
        ("mobilenetv2_100", Path("mobilenetv2_100_ra-b33bc2c4.pth"), {}, "half", [IMAGENET]),
        ("mobilenetv2_100", Path("mobilenetv2_100.ra_in1k.safetensors"), {}, "clip", [IMAGENET]),
        ("efficientnet_b0", Path("tf_efficientnet_b0_ns-c0e6a31c.pth"), {}, None, [PADDING]),
        ("tf_efficientnet_b0", Path("tf_efficientnet_b0_ns-c0e6a31c.pth"), {}, None, []),
        ("mobilenetv2_100", None, {}, "half", [IMAGENET]),
        ("mobilenetv2_100.ra_in1k", Path("weights.pth"), {}, "half", [IMAGENET]),
        # A name that says nothing, a family without weights of TensorFlow's, and what is no pretrained model's.
        ("mobilenetv2_100", Path("mobilenetv2.pth"), {}, "half", []),
        ("resnet50", Path("resnet50_tf.pth"), {}, "half", []),
        ("mobilenetv2_100", "random", {}, "half", []),
        ("filterbank", None, {}, None, []),
    ],
)
def test_settings_that_contradict_the_weights_are_told_with_the_option(
    name: str, weights: Any, options: dict[str, str], normalisation: str | None, wanted: list[str]
) -> None:
    said = preprocessing_doubts(name, weights, options, normalisation)
    assert [doubt.rpartition("add ")[2] for doubt in said] == wanted


def test_a_configuration_beside_the_weights_goes_first(tmp_path: Path) -> None:
    described = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
    config = {"architecture": "tf_efficientnet_b0", "pretrained_cfg": described}
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = tmp_path / "model.safetensors"
    said = preprocessing_doubts("efficientnet_b0.ra_in1k", weights, {}, None)
    assert [doubt.rpartition("add ")[2] for doubt in said] == [PADDING, HALF]
    (tmp_path / "config.json").write_text("[1]")
    assert preprocessing_doubts("efficientnet_b0.ra_in1k", weights, {}, None) == []
