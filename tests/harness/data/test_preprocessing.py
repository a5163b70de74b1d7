"""Resizing, cropping, normalising and the controls of images' preprocessing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from harness.data.images import ImagePreprocessing, Interpolation


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


@pytest.mark.parametrize("size", [(2000, 1), (1, 2000), (37, 91)])
def test_extreme_shapes_are_cropped_without_a_giant_in_between(size: tuple[int, int]) -> None:
    assert ImagePreprocessing((64, 96), "shortest-centre-crop")(Image.new("RGB", size)).shape == (3, 64, 96)


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


@pytest.mark.parametrize(("own", "other"), [("bilinear", "bicubic"), ("bicubic", "bilinear")])
def test_a_control_swaps_the_filter_of_images_that_are_resized(own: Interpolation, other: Interpolation) -> None:
    swapped = ImagePreprocessing(16, interpolation=own, control="other-filter")
    assert swapped.described_control() == other
    np.testing.assert_array_equal(swapped(noise(40, 30)), ImagePreprocessing(16, interpolation=other)(noise(40, 30)))
    np.testing.assert_array_equal(swapped(noise(16, 16)), ImagePreprocessing(16, interpolation=own)(noise(16, 16)))


def test_a_rescaling_control_changes_unresized_images_in_place() -> None:
    plain = ImagePreprocessing(100, interpolation="bilinear", mean=(0, 0, 0), std=(1, 1, 1))
    rescaled = replace(plain, control="rescaled")
    assert rescaled.described_control() == "rescaled:1.02"
    image = noise(100, 100)
    expected = image.resize((102, 102), Image.Resampling.BICUBIC).resize((100, 100), Image.Resampling.BICUBIC)
    np.testing.assert_allclose(rescaled(image), np.asarray(expected, np.float32).transpose(2, 0, 1) / 255, atol=1e-6)
    assert not np.array_equal(rescaled(image), plain(image))
    halves = Image.new("RGB", (100, 100))
    halves.paste((255, 255, 255), (50, 0, 100, 100))
    assert rescaled(halves)[0, 50, :48].max() < 0.1 < 0.9 < rescaled(halves)[0, 50, 52:].min(), "nothing has moved"


def test_normalisation_is_per_channel() -> None:
    preprocessing = ImagePreprocessing(2, mean=(0.0, 0.5, 1.0), std=(1.0, 0.5, 0.25))
    pixels = preprocessing(Image.new("RGB", (2, 2), (255, 255, 0)))
    np.testing.assert_allclose(pixels[:, 0, 0], [1.0, 1.0, -4.0])


def test_keys_differ_where_numbers_would() -> None:
    base = ImagePreprocessing(96)
    assert base.key() == ImagePreprocessing((96, 96)).key()
    others = [
        ImagePreprocessing((96, 97)),
        ImagePreprocessing(96, "shortest-centre-crop"),
        ImagePreprocessing(96, interpolation="bilinear"),
        ImagePreprocessing(96, mean=(0.5, 0.456, 0.406)),
        ImagePreprocessing(96, std=(0.5, 0.224, 0.225)),
        ImagePreprocessing(96, control="other-filter"),
        ImagePreprocessing(96, control="rescaled"),
    ]
    assert len({base.key(), *(other.key() for other in others)}) == 8
    assert base.key().endswith("std=0.229,0.224,0.225"), "keys of features that are cached already stay the same"


@pytest.mark.parametrize("wrong", [{"size": 0}, {"std": (1, 1, 0)}])
def test_impossible_preprocessing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ImagePreprocessing(**{"size": 96, **wrong})  # type: ignore[arg-type]
