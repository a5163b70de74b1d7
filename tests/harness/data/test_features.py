"""What models see of cached features."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.data import features as module
from harness.data.features import ARRAY, META, Features
from harness.utils.errors import BenchError
from zoo.captioner import VisualSpec

IDS = (7, 3, 11, 5, 2)
GRID = (2, 3)
DIM = 4


@pytest.fixture
def array() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(5, 6, DIM)).astype(np.float16)


@pytest.fixture
def folder(tmp_path: Path, array: np.ndarray) -> Path:
    """A finished cache folder of five images."""
    np.save(tmp_path / ARRAY, array)
    meta = {"key": "abc", "shape": array.shape, "grid": GRID, "image_ids": IDS}
    (tmp_path / META).write_text(json.dumps(meta))
    return tmp_path


@pytest.fixture
def features(folder: Path) -> Features:
    return Features(folder)


def test_cell_boxes_cover_the_image_in_reading_order(features: Features) -> None:
    boxes = features.cell_boxes()
    assert np.allclose(boxes[0], [0, 0, 1 / 3, 1 / 2])
    assert np.allclose(boxes[1], [1 / 3, 0, 2 / 3, 1 / 2])
    assert np.allclose(boxes[-1], [2 / 3, 1 / 2, 1, 1])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    assert np.isclose(areas.sum(), 1)
    assert len({tuple(box) for box in boxes.tolist()}) == 6


def test_every_kind_of_visual(features: Features, array: np.ndarray) -> None:
    stored = torch.from_numpy(array[[2, 0]])
    wanted = stored.float()
    grid = features.visual([11, 7], VisualSpec("grid", DIM))
    assert torch.equal(grid.features, stored)
    assert grid.boxes is None
    regions = features.visual([11, 7], VisualSpec("regions", DIM))
    assert regions.boxes.shape == (2, 6, 4)
    pooled = features.visual([11, 7], VisualSpec("pooled", DIM))
    assert torch.allclose(pooled.features, wanted.mean(dim=1, keepdim=True), atol=1e-6)
    blind = features.visual([11, 7], VisualSpec("none", 0))
    assert torch.equal(blind.features, torch.zeros(2, 1, 1))
    for visual in (grid, regions, pooled, blind):
        assert visual.to("cpu").features.dtype == torch.float32  # type: ignore[union-attr]
        assert visual.mask.shape == visual.features.shape[:2]
        assert visual.mask.all()


def test_much_is_read_by_several_threads(
    features: Features, array: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MUCH", 1)
    np.testing.assert_array_equal(features.grid_features([5, 7, 5]), array[[3, 0, 3]])


def test_damage_is_found(folder: Path) -> None:
    (folder / ARRAY).write_bytes((folder / ARRAY).read_bytes()[:-1])
    with pytest.raises(BenchError, match="damaged") as caught:
        Features(folder)
    assert "rm -r" in (caught.value.hint or "")
    (folder / ARRAY).unlink()
    with pytest.raises(BenchError, match="damaged"):
        Features(folder)
