"""RoIAlign over a map whose numbers are known, and boxes from every place they may lie in."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness.data.dataset import Dataset
from harness.data.features import ARRAY, META, Features
from harness.data.regions.cache import pool_regions
from harness.data.regions.opening import CocoBoxes, DatasetBoxes, Windows, open_source
from harness.data.regions.regions import Regions, read_regions
from harness.utils.errors import BenchError

HEIGHT, WIDTH, CHANNELS = 4, 6, 3
Make = Callable[..., Dataset]


@pytest.fixture
def grid(tmp_path: Path) -> Features:
    """Maps of three images; channel 0 is each cell's column, channel 1 its row, channel 2 noise."""
    maps = np.random.default_rng(0).normal(size=(3, HEIGHT, WIDTH, CHANNELS)).astype(np.float16)
    maps[..., 0], maps[..., 1] = np.arange(WIDTH), np.arange(HEIGHT)[:, None]
    (tmp_path / "grid").mkdir()
    np.save(tmp_path / "grid" / ARRAY, maps.reshape(3, -1, CHANNELS))
    meta = {"key": "k", "shape": [3, HEIGHT * WIDTH, CHANNELS], "grid": [HEIGHT, WIDTH], "image_ids": [1, 2, 3]}
    (tmp_path / "grid" / META).write_text(json.dumps(meta))
    return Features(tmp_path / "grid")


def cut(grid: Features, boxes: dict[int, Any], bins: int = 1) -> dict[int, np.ndarray[Any, Any]]:
    found = ((image_id, Regions(None, np.array(rows, np.float32))) for image_id, rows in boxes.items())
    return {image_id: regions.features for image_id, regions in pool_regions(found, grid, bins)}  # type: ignore[union-attr, misc]


def test_boxes_along_cells_give_the_plain_mean(grid: Features) -> None:
    whole, corner = (0, 0, 1, 1), (1 / 3, 0.5, 1, 1)
    found = cut(grid, {2: [whole, corner], 1: [whole]})
    cells = grid.grid_features([2])[0].astype(np.float32).reshape(HEIGHT, WIDTH, CHANNELS)
    np.testing.assert_allclose(found[2][0], cells.mean(axis=(0, 1)), atol=1e-5)
    np.testing.assert_allclose(found[2][1], cells[2:, 2:].mean(axis=(0, 1)), atol=1e-5)
    np.testing.assert_allclose(found[1][0], grid.pooled([1])[0], atol=1e-5)


def test_bins_are_the_means_of_the_parts(grid: Features) -> None:
    [found] = cut(grid, {1: [(0, 0, 1, 1)]}, bins=2)[1]
    assert found.shape == (CHANNELS * 4,)
    np.testing.assert_allclose(found[:4], [1, 4, 1, 4], atol=1e-5)
    np.testing.assert_allclose(found[4:8], [0.5, 0.5, 2.5, 2.5], atol=1e-5)


def test_own_boxes_and_the_whole_image_where_there_are_none(make_dataset: Make) -> None:
    dataset = make_dataset((1, 2, 3), b1=((10.0, 0.0, 20.0, 15.0),), b2=())
    found = dict(read_regions(DatasetBoxes(dataset), dataset))
    assert [(regions.boxes.tolist(), regions.whole) for regions in found.values()] == [  # type: ignore[union-attr]
        ([[0.25, 0, 0.5, 0.5]], False),
        ([[0, 0, 1, 1]], True),
        ([[0, 0, 1, 1]], True),
    ]


def test_windows_are_the_whole_image_and_its_tiles_row_by_row(make_dataset: Make) -> None:
    dataset = make_dataset((1, 2))
    dataset.path(dataset.samples[1]).write_bytes(b"no picture")
    source = open_source("windows:2", dataset)
    assert isinstance(source, Windows)
    assert source.fingerprint == "windows:2"
    found = dict(read_regions(source, dataset))
    assert found[1].boxes.tolist() == [  # type: ignore[union-attr]
        [0, 0, 1, 1], [0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1],
    ]  # fmt: skip
    assert "its image file" in str(found[2])


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_coco_instances_and_results(make_dataset: Make, tmp_path: Path) -> None:
    dataset = make_dataset((1, 2, 3))
    entries = [{"image_id": 1, "bbox": [10, 0, 10, 15], "score": 0.5}, {"image_id": 9, "bbox": [0, 0, 1, 1]}]
    images = [{"id": 1, "width": 80, "height": 60}, {"id": 2}]
    instances = CocoBoxes(
        write(tmp_path / "i.json", {"images": images, "annotations": entries[1:] + entries[:1]}), dataset
    )
    results = CocoBoxes(write(tmp_path / "r.json", entries), dataset)
    (_, first), (_, second) = instances.read((1, 2))
    assert first.boxes.tolist() == [[10, 0, 20, 15]]
    assert first.size == (80, 60)
    assert len(second.boxes) == 0
    [(_, detected)] = results.read((1,))
    assert detected.scores.tolist() == [0.5]
    assert detected.size is None


@pytest.mark.parametrize("told_by", ["boxes", "data set"])
@pytest.mark.parametrize(("size", "is_sound"), [((30, 40), False), ((40, 30), True)])
def test_boxes_of_a_picture_before_exif_turns_it_are_refused(
    make_dataset: Make, tmp_path: Path, told_by: str, size: tuple[int, int], is_sound: bool
) -> None:
    dataset = make_dataset((1,))
    exif = Image.Exif()
    exif[274] = 6  # the orientation: turn by 90 degrees
    Image.new("RGB", (30, 40)).save(dataset.path(dataset.samples[0]), exif=exif)  # 40 x 30 upright
    images = [{"id": 1} | ({"width": size[0], "height": size[1]} if told_by == "boxes" else {})]
    content = {"images": images, "annotations": [{"image_id": 1, "bbox": [0, 0, 20, 20]}]}
    if told_by == "data set":
        dataset = replace(dataset, sizes={1: size})
    [(_, regions)] = read_regions(CocoBoxes(write(tmp_path / "i.json", content), dataset), dataset)
    assert isinstance(regions, Regions) == is_sound


@pytest.mark.parametrize(
    "entry", [{"bbox": [1, 2, 3]}, {"bbox": "1234"}, {"bbox": None}, {"bbox": [0, 0, 1, 1], "score": float("nan")}]
)
def test_malformed_boxes_name_their_image(make_dataset: Make, tmp_path: Path, entry: dict[str, Any]) -> None:
    source = CocoBoxes(write(tmp_path / "r.json", [{"image_id": 1} | entry]), make_dataset([1]))
    [(image_id, complaint)] = source.read((1,))
    assert image_id == 1
    assert "bbox or score that is not a number" in str(complaint)


@pytest.mark.parametrize(
    "content", [{}, {"annotations": 3}, [{"bbox": [0, 0, 1, 1]}], [1], {"annotations": [], "images": 1}]
)
def test_other_json_is_refused(make_dataset: Make, tmp_path: Path, content: object) -> None:
    with pytest.raises(BenchError, match="no boxes in COCO's format"):
        CocoBoxes(write(tmp_path / "x.json", content), make_dataset([1]))


def test_json_of_another_data_set_is_refused(make_dataset: Make, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="no image of tiny has a box"):
        CocoBoxes(write(tmp_path / "x.json", [{"image_id": 5, "bbox": [0, 0, 1, 1]}]), make_dataset([1]))
    (tmp_path / "y.json").write_text("{")
    with pytest.raises(BenchError, match="not valid JSON"):
        CocoBoxes(tmp_path / "y.json", make_dataset([1]))
