"""Backbones: timm models with weights from a file, and messages for what does not fit."""

import json
import math
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from harness.benchmark.models import model_arguments
from harness.config.features import FeatureConfig
from harness.data.backbones import opening
from harness.data.backbones.backbone import Backbone, TrainableBackbone
from harness.data.backbones.timm_backbone import preprocessing_doubts
from harness.utils.errors import BenchError
from zoo import ZooError

NAME = "mobilenetv3_small_050"


def open_backbone(name: str, **settings: Any) -> Backbone:
    return opening.open_backbone(FeatureConfig(backbone=name, **settings))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights with classifier, in half precision."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "half.safetensors"
    state = timm.create_model(NAME, pretrained=False).state_dict()
    save_file({key: value.half() if value.is_floating_point() else value for key, value in state.items()}, path)
    return path


@pytest.fixture(scope="module")
def backbone(weights: Path) -> Backbone:
    return open_backbone(NAME, weights=weights, image_size=64, normalisation="half")


def test_a_timm_model_gives_its_last_map_as_cells(backbone: Backbone, weights: Path) -> None:
    model = timm.create_model(NAME, pretrained=False).eval()
    model.load_state_dict({key: value.to(torch.float32) for key, value in load_file(weights).items()})
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model.forward_features(pixels)
    found = backbone(pixels)
    assert (backbone.grid, backbone.dim) == ((2, 2), wanted.shape[1])
    assert found.dtype == torch.float32
    assert not found.requires_grad
    assert torch.allclose(found[:, 1], wanted[:, :, 0, 1], atol=1e-4)
    assert torch.allclose(found[:, 2], wanted[:, :, 1, 0], atol=1e-4)


def test_a_level_is_the_last_map_of_its_stride() -> None:
    """Level 4 of a ResNet-50 is "res4f": 14 x 14 cells of 1,024 channels, the output of torchvision's `layer3`."""
    found = open_backbone("resnet50", weights="random", options={"level": "4"})
    assert (found.preprocessing.size, found.grid, found.dim) == (224, (14, 14), 1024)
    model = timm.create_model("resnet18", pretrained=False, num_classes=0)
    last, third = (
        open_backbone("resnet18", weights="random", image_size=64, options=options) for options in ({}, {"level": "4"})
    )
    model.load_state_dict(third.state_dict())  # type: ignore[attr-defined]  # of a backbone that can be trained
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model.eval().maxpool(model.act1(model.bn1(model.conv1(pixels))))
        wanted = model.layer3(model.layer2(model.layer1(wanted)))
    assert (third.grid, third.dim) == ((4, 4), 256)
    torch.testing.assert_close(third(pixels), wanted.flatten(2).transpose(1, 2), atol=1e-4, rtol=0)
    assert third.digest != last.digest
    assert third.describe().startswith("resnet18 level 4[random#")
    copy: Backbone = pickle.loads(pickle.dumps(third))  # noqa: S301  # made here
    assert torch.equal(copy(pixels), third(pixels))
    assert isinstance(third, TrainableBackbone)
    with pytest.raises(BenchError, match="not those of level 4"):
        model_arguments("expansionnet_v2/end-to-end", {}, third)


@pytest.mark.parametrize(
    ("level", "message"),
    [("four", "is no level"), ("0", "is no level"), ("6", "resnet18 .*level 6.* 2, 4, 8")],
)
def test_levels_that_are_not_there_are_named(level: str, message: str) -> None:
    with pytest.raises(BenchError, match=message) as caught:
        open_backbone("resnet18", weights="random", image_size=64, options={"level": level})
    assert re.search("level=[45]", caught.value.hint or "")


def test_another_process_gets_the_same_backbone(backbone: Backbone) -> None:
    copy: Backbone = pickle.loads(pickle.dumps(backbone))  # noqa: S301  # made here
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    assert torch.equal(copy(pixels), backbone(pixels))
    assert (copy.digest, copy.grid, copy.dim) == (backbone.digest, backbone.grid, backbone.dim)


def test_the_digest_follows_the_numbers_not_the_container(backbone: Backbone, weights: Path, tmp_path: Path) -> None:
    state = load_file(weights)
    torch.save({"epoch": 3, "state_dict": {f"module.{key}": value for key, value in state.items()}}, tmp_path / "a.pth")
    same = open_backbone(NAME, weights=tmp_path / "a.pth", image_size=64)
    assert same.digest == backbone.digest
    state["conv_stem.weight"][0, 0, 0, 0] += 1
    torch.save({"model": state}, tmp_path / "b.pth")
    assert open_backbone(NAME, weights=tmp_path / "b.pth", image_size=64).digest != backbone.digest
    assert open_backbone(NAME, weights=weights, image_size=64, options={"pad_type": "same"}).digest != backbone.digest
    assert "a.pth" in same.describe()


def test_features_in_half_the_bits_are_near_and_never_taken_for_the_others(backbone: Backbone, weights: Path) -> None:
    made = {"weights": weights, "image_size": 64, "normalisation": "half"}
    quick = open_backbone(NAME, options={"precision": "bf16"}, **made)
    assert open_backbone(NAME, options={"precision": "fp32"}, **made).digest == backbone.digest
    assert quick.digest != backbone.digest
    assert quick.describe().endswith("@64 bf16")
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    wanted, found = backbone(pixels), quick(pixels)
    assert found.dtype == torch.float32
    assert 0 < float((found - wanted).norm() / wanted.norm()) < 0.05
    with pytest.raises(BenchError, match="'fp8'"):
        open_backbone(NAME, options={"precision": "fp8"}, **made)


@pytest.mark.parametrize(
    ("name", "size", "settings"),
    [
        ("vit_tiny_patch16_224", 32, {"embed_dim": 48, "depth": 1, "num_heads": 3}),
        ("swin_tiny_patch4_window7_224", 64, {"embed_dim": 12, "window_size": 2}),
    ],
)
def test_token_models_give_cells_without_class_tokens(
    name: str, size: int, settings: dict[str, int], tmp_path: Path
) -> None:
    model = timm.create_model(name, pretrained=False, img_size=size, **settings).eval()
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    options = {key: str(value) for key, value in settings.items()}
    backbone = open_backbone(name, weights=tmp_path / "weights.pth", image_size=size, options=options)
    pixels = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model.forward_features(pixels)
    wanted = wanted[:, 1:] if wanted.ndim == 3 else wanted.flatten(1, 2)
    assert backbone.grid == (2, 2)
    assert torch.allclose(backbone(pixels), wanted, atol=1e-4)


def test_weights_that_do_not_fit_are_named(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"half\.safetensors .*missing .*(unexpected|more)"):
        open_backbone("resnet10t", weights=weights)
    state = load_file(weights)
    state["conv_stem.weight"] = state["conv_stem.weight"][:4].clone()
    save_file(state, tmp_path / "short.safetensors")
    with pytest.raises(BenchError, match=r"conv_stem\.weight .*\(4, 3, 3, 3\).* \(16, 3, 3, 3\)"):
        open_backbone(NAME, weights=tmp_path / "short.safetensors")


def test_weights_that_are_no_numbers_are_named(weights: Path, tmp_path: Path) -> None:
    state = load_file(weights)
    state["conv_stem.weight"][0, 0, 0, 0] = math.inf
    save_file(state, tmp_path / "broken.safetensors")
    with pytest.raises(ZooError, match=r"broken\.safetensors: .*conv_stem\.weight"):
        open_backbone(NAME, weights=tmp_path / "broken.safetensors")


def test_unreadable_weights_run_no_code(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path(tmp_path / "ran").touch, ())

    (tmp_path / "harmful.pth").write_bytes(pickle.dumps({"state_dict": Harmful()}, protocol=2))
    (tmp_path / "noise.safetensors").write_bytes(b"not tensors")
    (tmp_path / "empty.pth").touch()
    (tmp_path / "text.pth").write_text("no torch file")
    torch.save([1, 2], tmp_path / "list.pth")
    for name in ("harmful.pth", "noise.safetensors", "empty.pth", "text.pth", "list.pth", "absent.pth"):
        with pytest.raises((BenchError, ZooError), match=name) as caught:
            open_backbone(NAME, weights=tmp_path / name)
        assert "weights_only" not in str(caught.value), "torch's advice to run what lies in the file"
    assert not (tmp_path / "ran").exists()


def test_without_weights_and_network_the_message_asks_for_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model

    def offline(name: str, pretrained: bool = False, **arguments: object) -> torch.nn.Module:
        if pretrained:
            raise ConnectionError("name resolution failed")
        return create(name, pretrained=False, **arguments)

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(BenchError, match="name resolution failed") as caught:
        open_backbone(NAME)
    assert "--backbone-weights" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"options": {"checkpoint_path": "x.pth"}}, "set by the benchmark itself"),
        ({"options": {"bogus": "1"}}, "cannot be built with options bogus=1"),
        ({"options": {"pretrained_strict": "false"}}, "has no option pretrained_strict"),
    ],
)
def test_wrong_settings_are_named(arguments: dict[str, object], message: str, weights: Path) -> None:
    with pytest.raises(BenchError, match=message):
        open_backbone(NAME, weights=weights, **arguments)


def test_random_weights_are_taken_on_demand_and_always_the_same() -> None:
    before = torch.random.get_rng_state()
    first = open_backbone(NAME, weights="random", image_size=64)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(9)
    assert open_backbone(NAME, weights="random", image_size=64).digest == first.digest
    assert first.describe().startswith(f"{NAME}[random#")
    assert isinstance(first, TrainableBackbone)
    assert not isinstance(open_backbone("filterbank"), TrainableBackbone)


def test_swins_own_checkpoints_are_read_as_timms(tmp_path: Path) -> None:
    options = {"embed_dim": "12", "window_size": "2"}
    state = timm.create_model(
        "swin_tiny_patch4_window7_224", num_classes=0, img_size=64, embed_dim=12, window_size=2
    ).state_dict()
    save_file(state, tmp_path / "timm.safetensors")
    theirs = {
        re.sub(r"layers\.(\d)\.downsample", lambda at: f"layers.{int(at[1]) - 1}.downsample", key): value
        for key, value in state.items()
    }
    theirs |= {
        "head.weight": torch.ones(3, 96),
        "layers.0.blocks.0.attn.relative_position_index": torch.ones(4, 4).long(),
    }
    torch.save({"model": theirs}, tmp_path / "swin.pth")
    first, second = (
        open_backbone("swin_tiny_patch4_window7_224", weights=tmp_path / name, options=options, image_size=64)
        for name in ("timm.safetensors", "swin.pth")
    )
    assert first.digest == second.digest


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
    said = preprocessing_doubts(
        FeatureConfig(backbone=name, weights=weights, options=options, normalisation=normalisation)
    )
    assert [doubt.rpartition("add ")[2] for doubt in said] == wanted


def test_a_configuration_beside_the_weights_goes_first(tmp_path: Path) -> None:
    described = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
    config = {"architecture": "tf_efficientnet_b0", "pretrained_cfg": described}
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = tmp_path / "model.safetensors"
    chosen = FeatureConfig(backbone="efficientnet_b0.ra_in1k", weights=weights)
    assert [doubt.rpartition("add ")[2] for doubt in preprocessing_doubts(chosen)] == [PADDING, HALF]
    (tmp_path / "config.json").write_text("[1]")
    assert preprocessing_doubts(chosen) == []
