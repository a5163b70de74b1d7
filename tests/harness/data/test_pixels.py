"""Pictures served as pixels, and features held on a device: equal to their source, and kept only where they fit."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from harness.data import pixels
from harness.data.batches import images_of
from harness.data.dataset import Dataset, Sample
from harness.data.features import NullSource
from harness.data.images import ImagePreprocessing, Interpolation, load_image
from harness.data.pixels import IMAGES_AT_ONCE, PixelSource, ResidentSource, hold, resident
from harness.utils.errors import BenchError
from zoo import Visual, VisualSpec

PIXELS = VisualSpec("pixels", 0)
CPU = torch.device("cpu")


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    for number, shade in enumerate((10, 120, 250)):
        Image.new("RGB", (20, 10), (shade, 0, 255 - shade)).save(tmp_path / f"{number}.png")
    return Dataset("d", tmp_path, tuple(Sample(number, f"{number}.png", "train", ("a",)) for number in range(3)), "d")


def test_pixels_have_requested_order_and_backbone_preprocessing(dataset: Dataset) -> None:
    preprocessing = ImagePreprocessing(8)
    found = PixelSource(dataset, preprocessing, CPU).visual([2, 0, 2], PIXELS)
    assert found.features is None
    expected = [preprocessing(load_image(dataset.root / f"{number}.png")) for number in (2, 0, 2)]
    assert torch.equal(found.pixels, torch.from_numpy(np.stack(expected)))


@pytest.mark.parametrize("change", [{}, {"non_rgb": "black"}, {"size": (5, 9)}, {"interpolation": "bilinear"}])
def test_pixels_that_go_to_a_gpu_in_8_bits_get_the_same_values_there(dataset: Dataset, change: dict[str, Any]) -> None:
    noise(20, 10).save(dataset.root / "0.png")
    noise(20, 10).convert("L").save(dataset.root / "1.png")
    preprocessing = replace(ImagePreprocessing(8), **change)
    wanted = PixelSource(dataset, preprocessing, CPU).visual([0, 1, 2], PIXELS)
    stored = PixelSource(dataset, preprocessing, torch.device("cuda")).visual([0, 1, 2], PIXELS)
    assert stored.pixels.dtype == torch.uint8
    for part, rows in ((stored, slice(None)), (images_of(stored, 1, 3), slice(1, 3))):
        seen = part.to("cpu")
        assert seen.levels is None
        assert seen.pixels is not None
        assert wanted.pixels is not None
        assert torch.equal(seen.pixels, wanted.pixels[rows])


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resized_pixels_are_within_one_level_of_pillows(interpolation: Interpolation) -> None:
    image = noise(200, 150)
    found = ImagePreprocessing((48, 64), interpolation=interpolation).eight_bits(image).astype(int)
    resampling = Image.Resampling.BILINEAR if interpolation == "bilinear" else Image.Resampling.BICUBIC
    wanted = np.asarray(image.resize((64, 48), resampling)).transpose(2, 0, 1).astype(int)
    assert abs(found - wanted).max() <= 1
    assert (found != wanted).mean() < 0.05


def test_images_stay_in_memory_as_far_as_it_is_meant_to_go(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels, "KEPT_BYTES", 2 * 3 * 8 * 8 * 4)
    source = PixelSource(dataset, ImagePreprocessing(8), CPU)
    first = source.visual([0, 1, 2, 0], PIXELS)
    for number in (0, 1):
        (dataset.root / f"{number}.png").unlink()
    assert torch.equal(source.visual([1, 2, 0, 0], PIXELS).pixels, first.pixels[[1, 2, 0, 3]])
    (dataset.root / "2.png").unlink()
    with pytest.raises(BenchError, match=r"2\.png"):
        source.visual([2], PIXELS)


@pytest.mark.parametrize(("free", "kept"), [([100, 51, 51, 49], {0, 1}), ([100, 49], set()), ([None], set())])
def test_images_for_a_gpu_stay_in_memory_while_half_of_it_is_free(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, free: list[int | None], kept: set[int]
) -> None:
    told = iter(free)
    monkeypatch.setattr(pixels, "KEPT_BYTES", 0)
    monkeypatch.setattr(pixels, "free_memory", lambda _: next(told, free[-1]))
    source = PixelSource(dataset, ImagePreprocessing(8), torch.device("cuda"))
    source.visual([0, 1, 2], PIXELS)
    for number in range(3):
        (dataset.root / f"{number}.png").unlink()
    for number in range(3):
        if number in kept:
            assert source.visual([number], PIXELS).pixels is not None
        else:
            with pytest.raises(BenchError, match=rf"{number}\.png"):
                source.visual([number], PIXELS)


def test_all_unreadable_pictures_of_a_batch_are_named(dataset: Dataset) -> None:
    for number in (0, 2):
        (dataset.root / f"{number}.png").write_bytes(b"no picture")
    with pytest.raises(BenchError, match=r"0\.png.*2\.png"):
        PixelSource(dataset, ImagePreprocessing(8), CPU).visual([0, 1, 2], PIXELS)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "I;16"])
def test_non_rgb_images_are_black_where_recipe_says_so(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("p.tiff" if mode == "CMYK" else "p.png")
    source = Image.new("L", (6, 4), 200)
    (Image.new("I;16", (6, 4), 40_000) if mode == "I;16" else source.convert("RGB").convert(mode)).save(path)
    usual, black = ImagePreprocessing(4), ImagePreprocessing(4, non_rgb="black")
    assert usual(load_image(path)).max() > 0
    assert np.array_equal(black(load_image(path)), usual(Image.new("RGB", (6, 4))))


def test_rgb_pictures_stay_as_they_are_under_that_recipe(tmp_path: Path) -> None:
    Image.new("RGB", (6, 4), "red").save(tmp_path / "p.jpg")
    picture = load_image(tmp_path / "p.jpg")
    usual, black = ImagePreprocessing(4), ImagePreprocessing(4, non_rgb="black")
    assert np.array_equal(black(picture), usual(picture))
    assert usual.key() in black.key()
    assert usual.key() != black.key()


def test_squash_uses_the_whole_picture_and_the_crop_its_centre() -> None:
    image = Image.new("RGB", (30, 10), (0, 0, 0))
    image.paste((255, 255, 255), (10, 0, 20, 10))  # the centre square is white
    plain = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    cropped = ImagePreprocessing(10, "shortest-centre-crop", **plain)(image)
    squashed = ImagePreprocessing(10, "squash", **plain)(image)
    assert cropped.shape == squashed.shape == (3, 10, 10)
    assert cropped.dtype == np.float32
    assert cropped.min() == 1.0
    assert squashed.min() == 0.0
    assert squashed.mean() == pytest.approx(1 / 3, abs=0.02)


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


def test_keys_differ_where_numbers_would() -> None:
    base = ImagePreprocessing(96)
    assert base.key() == ImagePreprocessing((96, 96)).key()
    others = [
        ImagePreprocessing((96, 97)),
        ImagePreprocessing(96, "shortest-centre-crop"),
        ImagePreprocessing(96, interpolation="bilinear"),
        ImagePreprocessing(96, mean=(0.5, 0.456, 0.406)),
        ImagePreprocessing(96, std=(0.5, 0.224, 0.225)),
        ImagePreprocessing(96, non_rgb="black"),
    ]
    assert len({base.key(), *(other.key() for other in others)}) == 7
    assert base.key().endswith("std=0.229,0.224,0.225"), "keys of features that are cached already stay the same"


REGIONS = VisualSpec("regions+grid", 4, 3)
IMAGES = list(range(100, 100 + IMAGES_AT_ONCE + 3))  # more than are read at once


class Regions:
    """Regions with boxes, and a grid beside them: the longest image is of the second chunk, one has no region."""

    def __init__(self, exact_in_half: bool = True) -> None:
        random = torch.Generator().manual_seed(0)
        counts = {image: 1 + image % 5 for image in IMAGES} | {IMAGES[2]: 0, IMAGES[-1]: 9}
        self.features = {
            image: torch.randn(count, 4, generator=random).half().float() for image, count in counts.items()
        }
        self.boxes = {image: torch.rand(count, 4, generator=random) for image, count in counts.items()}
        self.grid = {image: torch.randn(2, 3, 3, generator=random).half().float() for image in IMAGES}
        if not exact_in_half:
            self.features[IMAGES[-2]] += 1e-4

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:  # noqa: ARG002
        """Padded to the longest of the images."""
        features = [self.features[image] for image in image_ids]
        return Visual(
            features=torch.nn.utils.rnn.pad_sequence(features, batch_first=True),
            mask=torch.nn.utils.rnn.pad_sequence([torch.ones(len(each)) for each in features], batch_first=True).bool(),
            boxes=torch.nn.utils.rnn.pad_sequence([self.boxes[image] for image in image_ids], batch_first=True),
            grid=torch.stack([self.grid[image] for image in image_ids]),
        )


@pytest.mark.parametrize("exact", [True, False], ids=["half", "single"])
@pytest.mark.parametrize("chosen", [IMAGES[:5], [IMAGES[-1], IMAGES[-2], IMAGES[0]], [IMAGES[2]]])
def test_batches_equal_those_of_the_source(exact: bool, chosen: list[int]) -> None:
    source = Regions(exact)
    held = hold(source, IMAGES, REGIONS, CPU, 10**6)
    expected, found = source.visual(chosen, REGIONS).parts(), held.visual(chosen, REGIONS).parts()
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert value.dtype == found[name].dtype, name
        assert torch.equal(value, found[name]), name
    features, grid, boxes_and_mask = len(IMAGES) * 9 * 4, len(IMAGES) * 18 * 2, len(IMAGES) * 9 * (16 + 1)
    assert held.nbytes == features * (2 if exact else 4) + grid + boxes_and_mask


def test_features_are_held_only_where_they_fit() -> None:
    held = hold(Regions(), IMAGES, REGIONS, CPU, 10**6)
    assert hold(Regions(), IMAGES, REGIONS, CPU, held.nbytes) is not None
    assert hold(Regions(), IMAGES, REGIONS, CPU, held.nbytes - 1) is None


def test_half_of_the_free_memory_is_for_features(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    source, held = Regions(), hold(Regions(), IMAGES, REGIONS, CPU, 10**6)
    monkeypatch.setattr(pixels, "device_memory", lambda _: 2 * held.nbytes)
    assert isinstance(resident(source, IMAGES, REGIONS, CPU, said.append), ResidentSource)
    monkeypatch.setattr(pixels, "device_memory", lambda _: 2 * held.nbytes - 2)
    assert resident(source, IMAGES, REGIONS, CPU, said.append) is source
    assert ["are on the device" in line for line in said] == [True, False]
    assert "read batch by batch" in said[1]


def test_nothing_is_moved_on_a_processor_nor_for_models_without_features(monkeypatch: pytest.MonkeyPatch) -> None:
    source, blind = Regions(), NullSource()
    assert resident(source, IMAGES, REGIONS, CPU, pytest.fail) is source
    monkeypatch.setattr(pixels, "device_memory", lambda _: 2**30)
    assert resident(source, IMAGES, VisualSpec("none", 0), CPU, pytest.fail) is source
    assert resident(blind, IMAGES, REGIONS, CPU, pytest.fail) is blind
