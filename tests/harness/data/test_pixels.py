"""Pictures served as pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from harness.data import pixels
from harness.data.dataset import Dataset, Sample
from harness.data.images import ImagePreprocessing, load_image
from harness.data.pixels import PixelSource
from harness.utils.errors import BenchError
from zoo.captioner import VisualSpec

PIXELS = VisualSpec("pixels", 0)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    for number, shade in enumerate((10, 120, 250)):
        Image.new("RGB", (20, 10), (shade, 0, 255 - shade)).save(tmp_path / f"{number}.png")
    samples = tuple(Sample(number, f"{number}.png", "train", ("a",)) for number in range(3))
    return Dataset("d", tmp_path, samples, "d")


def test_pixels_have_requested_order_and_backbone_preprocessing(dataset: Dataset) -> None:
    preprocessing = ImagePreprocessing(8)
    found = PixelSource(dataset, preprocessing).visual([2, 0, 2], PIXELS)
    assert found.features is None
    assert found.pixels is not None
    expected = [preprocessing(load_image(dataset.root / f"{number}.png")) for number in (2, 0, 2)]
    assert torch.equal(found.pixels, torch.from_numpy(np.stack(expected)))


def test_images_stay_in_memory_as_far_as_it_is_meant_to_go(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels, "KEPT_BYTES", 2 * 3 * 8 * 8 * 4)
    source = PixelSource(dataset, ImagePreprocessing(8))
    first = source.visual([0, 1, 2, 0], PIXELS)
    for number in (0, 1):
        (dataset.root / f"{number}.png").unlink()
    again = source.visual([1, 2, 0, 0], PIXELS)
    assert first.pixels is not None
    assert again.pixels is not None
    assert torch.equal(again.pixels, first.pixels[[1, 2, 0, 3]])
    (dataset.root / "2.png").unlink()
    with pytest.raises(BenchError, match=r"2\.png"):
        source.visual([2], PIXELS)


def test_all_unreadable_pictures_of_a_batch_are_named(dataset: Dataset) -> None:
    for number in (0, 2):
        (dataset.root / f"{number}.png").write_bytes(b"no picture")
    with pytest.raises(BenchError, match=r"0\.png.*2\.png"):
        PixelSource(dataset, ImagePreprocessing(8)).visual([0, 1, 2], PIXELS)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "I;16"])
def test_non_rgb_images_are_black_where_recipe_says_so(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("p.tiff" if mode == "CMYK" else "p.png")
    source = Image.new("L", (6, 4), 200)
    (Image.new("I;16", (6, 4), 40_000) if mode == "I;16" else source.convert("RGB").convert(mode)).save(path)
    usual, black = ImagePreprocessing(4), ImagePreprocessing(4, non_rgb="black")
    assert usual(load_image(path)).max() > 0
    nothing = usual(Image.new("RGB", (6, 4)))
    assert np.array_equal(black(load_image(path)), nothing)


def test_rgb_pictures_stay_as_they_are_under_that_recipe(tmp_path: Path) -> None:
    Image.new("RGB", (6, 4), "red").save(tmp_path / "p.jpg")
    picture = load_image(tmp_path / "p.jpg")
    usual, black = ImagePreprocessing(4), ImagePreprocessing(4, non_rgb="black")
    assert np.array_equal(black(picture), usual(picture))
    assert usual.key() in black.key()
    assert usual.key() != black.key()
