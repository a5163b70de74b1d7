"""HDF5 files of DLCT's and RSTNet's authors: regions in pixels of another size, and the cells of a grid beside them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from harness.config.features import FeatureConfig, RegionConfig
from harness.data.backbones.opening import open_backbone
from harness.data.dataset import Dataset
from harness.data.features import Features
from harness.data.regions.cache import prepare_file_grid, prepare_regions
from harness.data.regions.features import RegionFeatures, both_streams
from tests.harness.data.regions.conftest import sound_regions
from zoo import VisualSpec

RESIZED = (60, 80)  # height and width of what the boxes are in, twice the pictures' 30 x 40
CELLS, CHANNELS = 9, 5
Change = Callable[[h5py.File], None]
Write = Callable[..., RegionConfig]
Read = Callable[[Dataset, RegionConfig, Path], RegionFeatures]


def cells(image_id: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(image_id).normal(image_id, 1, (CELLS, CHANNELS)).astype(np.float32)


@pytest.fixture
def dataset(make_dataset: Callable[..., Dataset]) -> Dataset:
    return make_dataset([1, 2, 3])


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A file of images 1 to 3 with regions, boxes, sizes and grids, changed by `change`."""

    def make(change: Change | None = None) -> RegionConfig:
        path = tmp_path / "coco_all_align.hdf5"
        with h5py.File(path, "w") as file:
            for image_id in (1, 2, 3):
                features, boxes = sound_regions(image_id, image_id + 1)
                parts = {"features": features, "boxes": boxes * 2, "size": np.array(RESIZED), "grids": cells(image_id)}
                for name, part in parts.items():
                    file[f"{image_id}_{name}"] = part
                file[f"{image_id}_mask"] = np.zeros((image_id + 1, CELLS))
            if change is not None:
                change(file)
        return RegionConfig(source=path)

    return make


def without(*names: str) -> Change:
    def change(file: h5py.File) -> None:
        for name in names:
            del file[name]

    return change


def replaced(name: str, part: Any) -> Change:
    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = part

    return change


def regions_of(dataset: Dataset, config: RegionConfig, cache: Path) -> RegionFeatures:
    def no_maps(_bad: object) -> Features:
        raise AssertionError("the file has its own features")

    return prepare_regions(dataset, config, open_backbone(FeatureConfig()), no_maps, cache_dir=cache)


def grid_of(dataset: Dataset, config: RegionConfig, cache: Path) -> RegionFeatures:
    return prepare_file_grid(dataset, config, cache_dir=cache)


def test_boxes_are_in_pixels_of_the_stored_size(write: Write, dataset: Dataset, tmp_path: Path) -> None:
    found = regions_of(dataset, write(), tmp_path)
    assert not found.bad
    for row, image_id in enumerate((1, 2, 3)):
        _, boxes = sound_regions(image_id, image_id + 1)
        np.testing.assert_allclose(
            found.padded([1, 2, 3])[2][row, : image_id + 1], boxes / np.array((40, 30, 40, 30)), atol=1e-6
        )


def test_the_grids_stand_beside_them(write: Write, dataset: Dataset, tmp_path: Path) -> None:
    config = write()
    found = grid_of(dataset, config, tmp_path)
    assert (found.grid, found.dim, found.bad) == ((3, 3), CHANNELS, {})
    np.testing.assert_array_equal(found.padded([3, 1])[0], np.stack((cells(3), cells(1))).astype("f2"))
    again = grid_of(dataset, config, tmp_path)
    assert (again.folder, again.digest) == (found.folder, found.digest)
    both = both_streams(regions_of(dataset, config, tmp_path), found)
    seen = both.visual([3, 1], VisualSpec("regions+grid", 4, CHANNELS)).grid
    np.testing.assert_array_equal(seen[1, 2, 0], cells(1)[6].astype("f2"))


@pytest.mark.parametrize(
    ("read", "change", "reason"),
    [
        (grid_of, without("2_grids"), "coco_all_align.hdf5:grids"),
        (grid_of, replaced("2_grids", np.ones((8, CHANNELS), np.float32)), r"\(8, 5\) in 2_grids, which"),
        (grid_of, replaced("2_grids", np.ones((4, CHANNELS), np.float32)), r"\(4, 5\) in 2_grids, which"),
        (grid_of, replaced("2_grids", np.full((CELLS, CHANNELS), np.nan)), "NaN or infinite values"),
        (grid_of, replaced("2_grids", np.full((CELLS, CHANNELS), 1e6)), "values beyond half precision"),
        (grid_of, replaced("2_grids", np.ones((CELLS, CHANNELS), int)), "2_grids holds int64"),
        (regions_of, without("2_size"), "has features but no 2_size"),
        (regions_of, replaced("2_size", np.array([60, 80, 3])), r"2_size holds \[60, 80, 3\] instead"),
        (regions_of, replaced("2_size", np.array([60, 0])), r"2_size holds \[60, 0\] instead"),
        (regions_of, replaced("2_size", np.array(RESIZED[::-1]) // 2), "lies outside its image of 30 x 40 pixels"),
    ],
)
def test_what_cannot_be_used_is_named(
    write: Write, dataset: Dataset, tmp_path: Path, read: Read, change: Change, reason: str
) -> None:
    found = read(dataset, write(change), tmp_path)
    assert found.image_ids == (1, 3)
    assert re.fullmatch(rf"image 2: .*{reason}.*", found.bad[2])


def test_a_first_grid_that_is_none_does_not_set_the_size(write: Write, dataset: Dataset, tmp_path: Path) -> None:
    config = write(replaced("1_grids", np.ones((8, CHANNELS), np.float32)))
    assert grid_of(dataset, config, tmp_path).image_ids == (2, 3)


def test_without_any_size_boxes_must_be_in_the_pictures_own_pixels(
    write: Write, dataset: Dataset, tmp_path: Path
) -> None:
    found = regions_of(dataset, write(without("1_size", "2_size", "3_size")), tmp_path)
    assert any("lies outside its image of 40 x 30 pixels" in reason for reason in found.bad.values())


def test_without_any_grid_there_is_none(write: Write, dataset: Dataset, tmp_path: Path) -> None:
    assert prepare_file_grid(dataset, write(without("1_grids", "2_grids", "3_grids")), cache_dir=tmp_path) is None


def test_grids_without_regions_are_regions_of_cells(write: Write, dataset: Dataset, tmp_path: Path) -> None:
    config = write(without(*(f"{image_id}_{part}" for image_id in (1, 2, 3) for part in ("features", "boxes", "size"))))
    features, mask, boxes = regions_of(dataset, config, tmp_path).padded([2])
    assert mask.all()
    np.testing.assert_array_equal(features[0], cells(2).astype(np.float16))
    np.testing.assert_allclose(boxes[0, 5], np.array((2, 1, 3, 2)) / 3, atol=1e-6)
    assert prepare_file_grid(dataset, config, cache_dir=tmp_path) is None, "there is nothing that it stands beside"
