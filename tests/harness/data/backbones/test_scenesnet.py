"""The network that ships for the embedded data: what its features say, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torchvision.ops import roi_align

from benchmarks.train_scenesnet import QUESTIONS, Scenes, draw
from harness.config.features import FeatureConfig
from harness.data.backbones.backbone import open_backbone
from harness.data.backbones.scenesnet import STRIDE, ScenesNet
from harness.utils.errors import BenchError


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    """Scenes that the network was not trained on."""
    return draw(240, "test")


def objects(scenes: Scenes) -> torch.Tensor:
    """A feature of each object: the mean over its box, and a one."""
    net = ScenesNet()
    maps = torch.cat([net(pixels) for pixels in scenes.pixels.split(40)]).transpose(1, 2)
    pooled = roi_align(maps.reshape(len(scenes), net.dim, *net.grid), scenes.boxes, 1, aligned=True).flatten(1)
    return torch.cat((pooled, torch.ones(len(pooled), 1)), dim=1).double()


@pytest.mark.parametrize(("question", "least"), [("shape", 0.85), ("colour", 0.95), ("background", 0.97)])
def test_linear_classifier_reads_each_objects_attributes(scenes: Scenes, question: str, least: float) -> None:
    features, number = objects(scenes), list(QUESTIONS).index(question)
    wanted = torch.cat(scenes.answers)[:, number]
    train_part = slice(0, len(wanted) * 3 // 4)
    test_part = slice(len(wanted) * 3 // 4, len(wanted))
    targets = torch.nn.functional.one_hot(wanted, len(QUESTIONS[question])).double()
    ridge = torch.eye(features.shape[1], dtype=torch.float64)
    seen = features[train_part]
    weights = torch.linalg.solve(seen.T @ seen + ridge, seen.T @ targets[train_part])
    accuracy = ((features[test_part] @ weights).argmax(1) == wanted[test_part]).double().mean()
    assert accuracy > least


def test_features_have_about_unit_scale_on_objects(scenes: Scenes) -> None:
    features = objects(scenes)[:, :-1]
    assert features.mean(dim=0).abs().max() < 0.5
    assert features.std(dim=0).min() > 0.6
    assert features.std(dim=0).max() < 1.6


def test_backbone_is_opened_by_name_and_cuts_cells_of_eight_pixels() -> None:
    net = open_backbone(FeatureConfig(backbone="scenesnet", image_size=64))
    assert net.grid == (64 // STRIDE, 64 // STRIDE)
    assert net(torch.zeros(2, 3, 64, 64)).shape == (2, 64, net.dim)
    assert net.describe().startswith(f"scenesnet#{net.digest[:8]}@64")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("scenesnet", {"image_size": 100}),
        ("scenesnet", {"options": {"grid": "8"}}),
        ("scenesnet", {"normalisation": "half"}),
        ("scenesnet", {"weights": "random"}),
        ("filterbank", {"options": {"cells": "4"}}),
        ("filterbank", {"options": {"grid": "x"}}),
        ("filterbank", {"weights": "random"}),
    ],
)
def test_what_is_fixed_cannot_be_set(name: str, settings: dict[str, object]) -> None:
    with pytest.raises(BenchError, match=name):
        open_backbone(FeatureConfig(backbone=name, **settings))
