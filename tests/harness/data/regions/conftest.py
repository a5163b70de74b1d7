"""Region files as users hold them, written for one test."""

import base64
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness.data.dataset import Dataset, Sample

WIDTH, HEIGHT, CHANNELS = 40, 30, 4
Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def sound_regions(image_id: int, count: int, channels: int = CHANNELS) -> Arrays:
    """Features and boxes in pixels that tell their image."""
    random = np.random.default_rng(image_id)
    corners = random.uniform((0, 0), (WIDTH / 2, HEIGHT / 2), (count, 2))
    boxes = np.concatenate((corners, corners + random.uniform(5, 15, (count, 2))), axis=1).astype(np.float32)
    return random.normal(image_id, 1, (count, channels)).astype(np.float32), boxes


def tsv_line(image_id: int, features: np.ndarray[Any, Any], boxes: np.ndarray[Any, Any]) -> bytes:
    """A line as the bottom-up converters write it."""
    coded = [base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()) for array in (boxes, features)]
    head = "\t".join(map(str, (image_id, WIDTH, HEIGHT, len(boxes))))
    return b"\t".join([head.encode(), *coded]) + b"\n"


def write_folder(root: Path, images: Iterable[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]]) -> Path:
    """`bu_att/ID.npz` and `bu_box/ID.npy` below `root`; gives the first folder."""
    for name in ("bu_att", "bu_box"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for image_id, features, boxes in images:
        np.savez_compressed(root / "bu_att" / f"{image_id}.npz", feat=features)
        np.save(root / "bu_box" / f"{image_id}.npy", boxes)
    return root / "bu_att"


@pytest.fixture
def make_dataset(tmp_path: Path) -> Callable[..., Dataset]:
    """A data set of plain pictures with these ids, WIDTH x HEIGHT each."""

    def make(ids: Iterable[int], **boxes: Any) -> Dataset:
        root = tmp_path / "pictures"
        root.mkdir(exist_ok=True)
        samples = []
        for image_id in ids:
            Image.new("RGB", (WIDTH, HEIGHT), (image_id % 256, 90, 200)).save(root / f"{image_id}.png")
            samples.append(
                Sample(image_id, f"{image_id}.png", "train", ("a picture",), None, boxes.get(f"b{image_id}"))
            )
        return Dataset("tiny", root, tuple(samples), "f1ea")

    return make
