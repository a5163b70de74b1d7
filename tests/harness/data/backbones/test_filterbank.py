"""The backbones that come along: a filterbank, and a small network that knows the scenes."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from torch import Tensor
from torchvision.ops import roi_align

from benchmarks.train_scenesnet import QUESTIONS, Scenes, draw
from harness.config.features import FeatureConfig
from harness.data.backbones.filterbank import FilterBank, _of_strongest_channel
from harness.data.backbones.opening import open_backbone
from harness.data.backbones.scenesnet import STRIDE, ScenesNet
from harness.utils.errors import BenchError

SHAPES = ("circle", "square", "triangle", "cross")
COLOURS = ((200, 40, 40), (40, 160, 60), (50, 70, 200), (220, 200, 50))


def drawn(shape: str, colour: tuple[int, int, int], x: float, y: float, radius: float, noise: int) -> Tensor:
    """A noisy 96 x 96 picture of one object, as pixels (3, 96, 96) in [-1, 1]."""
    image = Image.new("RGB", (96, 96), (235, 235, 225))
    pen = ImageDraw.Draw(image)
    box = (x - radius, y - radius, x + radius, y + radius)
    if shape == "circle":
        pen.ellipse(box, fill=colour)
    elif shape == "square":
        pen.rectangle(box, fill=colour)
    elif shape == "triangle":
        pen.polygon([(x, y - radius), (x + radius, y + radius), (x - radius, y + radius)], fill=colour)
    else:
        pen.rectangle((x - radius, y - radius / 3, x + radius, y + radius / 3), fill=colour)
        pen.rectangle((x - radius / 3, y - radius, x + radius / 3, y + radius), fill=colour)
    pixels = np.asarray(image, dtype=np.float32) + np.random.default_rng(noise).normal(0, 6, (96, 96, 3))
    return torch.from_numpy((pixels / 127.5 - 1).astype(np.float32).transpose(2, 0, 1).copy())


def accuracy(features: Tensor, wanted: Tensor, ridge: float) -> float:
    """The share that a linear classifier reads of the last quarter, fitted to the others."""
    features = torch.cat((features, torch.ones(len(features), 1)), dim=1).double()
    targets, fitted = torch.nn.functional.one_hot(wanted).double(), len(wanted) * 3 // 4
    seen = features[:fitted]
    weights = torch.linalg.solve(seen.T @ seen + ridge * torch.eye(seen.shape[1]), seen.T @ targets[:fitted])
    return float(((features[fitted:] @ weights).argmax(1) == wanted[fitted:]).double().mean())


def test_linear_classifier_reads_shape_and_colour_of_centre_cell() -> None:
    bank = FilterBank()
    random = np.random.default_rng(0)
    pixels, cells, labels = [], [], []
    for number in range(480):
        shape, colour = int(random.integers(4)), int(random.integers(4))
        radius = random.uniform(10, 22)
        x, y = random.uniform(radius, 96 - radius, size=2)
        pixels.append(drawn(SHAPES[shape], COLOURS[colour], x, y, radius, number))
        cells.append(int(y // 12) * 8 + int(x // 12))
        labels.append((shape, colour))
    features = torch.cat([bank(torch.stack(pixels[start : start + 32])) for start in range(0, 480, 32)])
    described = features[torch.arange(480), torch.tensor(cells)]
    for shape_or_colour in torch.tensor(labels).T:
        assert accuracy(described, shape_or_colour, ridge=10) > 0.93


def test_values_are_finite_of_unit_scale_and_repeatable() -> None:
    bank = FilterBank()
    batch = torch.stack([drawn("circle", COLOURS[number % 4], 40, 50, 15, number) for number in range(6)])
    features = bank(batch)
    assert features.shape == (6, 64, bank.dim)
    assert features.dtype == torch.float32
    assert torch.isfinite(features).all()
    assert 0.3 < features.std() < 1.5
    assert features.abs().max() < 20
    assert torch.equal(features, bank(batch))
    assert torch.allclose(features[2:3], bank(batch[2:3]), atol=1e-5)


def test_settings_are_in_the_digest_and_sizes_are_checked() -> None:
    assert FilterBank(grid=4, image_size=48).digest != FilterBank().digest
    assert FilterBank(grid=4, image_size=48).grid == (4, 4)
    with pytest.raises(BenchError, match="multiple of 6 x grid") as caught:
        FilterBank(grid=8, image_size=100)
    assert "--image-size 96" in (caught.value.hint or "")


@torch.no_grad()
def test_gradients_are_those_of_the_strongest_channel_and_of_the_first_of_equals() -> None:
    draw = torch.Generator().manual_seed(0)
    across, down = (torch.randint(-2, 3, (2, 3, 40, 40), generator=draw).float() for _ in range(2))  # with many ties
    strength = (across.square() + down.square()).numpy()
    strongest = np.argmax(strength, axis=1, keepdims=True)  # numpy's is the first
    assert (np.sort(strength, axis=1)[:, 1] == strength.max(1)).mean() > 0.1
    for found, of in zip(_of_strongest_channel(across, down), (across, down), strict=True):
        np.testing.assert_array_equal(found.numpy(), np.take_along_axis(of.numpy(), strongest, axis=1))


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    """Scenes that the network was not trained on."""
    return draw(240, "test")


@pytest.fixture(scope="module")
def objects(scenes: Scenes) -> Tensor:
    """A feature of each object: the mean over its box."""
    net = ScenesNet()
    maps = torch.cat([net(pixels) for pixels in scenes.pixels.split(40)]).transpose(1, 2)
    return roi_align(maps.reshape(len(scenes), net.dim, *net.grid), scenes.boxes, 1, aligned=True).flatten(1)


@pytest.mark.parametrize(("question", "least"), [("shape", 0.85), ("colour", 0.95), ("background", 0.97)])
def test_linear_classifier_reads_each_objects_attributes(
    scenes: Scenes, objects: Tensor, question: str, least: float
) -> None:
    assert accuracy(objects, torch.cat(scenes.answers)[:, list(QUESTIONS).index(question)], ridge=1) > least


def test_features_have_about_unit_scale_on_objects(objects: Tensor) -> None:
    assert objects.mean(dim=0).abs().max() < 0.5
    assert objects.std(dim=0).min() > 0.6
    assert objects.std(dim=0).max() < 1.6


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
        ("filterbank", {"options": {"grid": "999"}}),
        ("filterbank", {"weights": "random"}),
    ],
)
def test_what_is_fixed_cannot_be_set(name: str, settings: dict[str, object]) -> None:
    with pytest.raises(BenchError, match=name):
        open_backbone(FeatureConfig(backbone=name, **settings))
