"""Read cached features image by image, without loading the array into memory."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.utils.errors import BenchError
from results.files import check_regular, read_text
from zoo.captioner import Visual, VisualSpec

ARRAY = "features.npy"
META = "meta.json"
ROWS_AT_ONCE = 64

Half = np.ndarray[Any, np.dtype[np.float16]]
Single = np.ndarray[Any, np.dtype[np.float32]]


class NullSource:
    """Visual input of models that see nothing, without any features."""

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:
        """One zero per image; BenchError if the model needs visual input."""
        if spec.kind != "none":
            raise BenchError(f"the model needs visual input of kind {spec.kind}, but no features were made")
        return unseen(len(image_ids))


def unseen(count: int) -> Visual:
    """Input of a model without visual input: one zero per image."""
    return Visual(features=torch.zeros(count, 1, 1), mask=torch.ones(count, 1, dtype=torch.bool))


def array_header(shape: tuple[int, ...]) -> bytes:
    """The header of an .npy file with a C-ordered little-endian half-precision array of this shape."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f2", "fortran_order": False, "shape": shape})
    return head.getvalue()


def map_array(path: Path, dtype: str, shape: tuple[int, ...], offset: int = 0) -> np.ndarray[Any, Any]:
    """A memory-mapped array of a cache; BenchError if its file was removed since it was opened."""
    try:
        return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)
    except (OSError, ValueError) as error:  # no file, or one that was cut
        raise BenchError(
            f"the feature cache {path.parent} was removed or changed during the run: {error}",
            "run the same command again: features are extracted anew, and training goes on from its last checkpoint",
        ) from error


class Features:
    """Features (N, L, C) of N images as `harness.data.feature_cache.extract_features` left them in a folder.

    Every read maps the file afresh and copies the rows asked for, so that the memory of this process does not grow
    with the data set. Safe to share between threads.

    Attributes:
        dim: channels C.
        grid: cells (h, w); L = h * w, row by row from the top left.
        image_ids: in the array's order.
        digest: hex, over everything that determines the features.

    Raises:
        BenchError: on opening, where files of the cache are missing, unreadable or of the wrong size.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._path = folder, folder / ARRAY
        try:
            self._meta: dict[str, Any] = json.loads(read_text(folder / META))
            images, cells, self.dim = self._shape = tuple(int(side) for side in self._meta["shape"])
            height, width = self._meta["grid"]
            self.image_ids: tuple[int, ...] = tuple(self._meta["image_ids"])
            self.digest: str = self._meta["key"]
            self._offset = len(array_header(self._shape))
            size = check_regular(self._path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damage(f"{type(error).__name__}: {error}") from error
        self.grid: tuple[int, int] = (height, width)
        self._rows = {image_id: row for row, image_id in enumerate(self.image_ids)}
        wanted = self._offset + images * cells * self.dim * 2
        if size != wanted or len(self._rows) != images or height * width != cells:
            raise self._damage(f"{size} bytes and {len(self._rows)} images instead of {wanted} and {images}")

    def __len__(self) -> int:
        """Number of images."""
        return len(self.image_ids)

    def grid_features(self, image_ids: Sequence[int]) -> Half:
        """Cells (B, L, C) of the images, in the order asked for."""
        try:
            rows = [self._rows[image_id] for image_id in image_ids]
        except KeyError as error:
            raise BenchError(f"no features for image {error.args[0]}", hint="it was skipped or is not listed") from None
        array: Half = map_array(self._path, "<f2", self._shape, self._offset)
        return np.array(array[rows], dtype=np.float16)

    def pooled(self, image_ids: Sequence[int]) -> Single:
        """Means over the cells (B, C), in single precision."""
        means = np.empty((len(image_ids), self.dim), dtype=np.float32)
        for start in range(0, len(image_ids), ROWS_AT_ONCE):
            group = slice(start, start + ROWS_AT_ONCE)
            means[group] = self.grid_features(image_ids[group]).mean(axis=1, dtype=np.float32)
        return means

    def typical(self, image_ids: Sequence[int]) -> int:
        """The image whose costs are measured; all have the same number of cells."""
        return image_ids[0]

    def cell_boxes(self) -> Single:
        """Boxes (L, 4) of the cells: x1, y1, x2, y2 in [0, 1] of the image."""
        height, width = self.grid
        y, x = np.indices((height, width), dtype=np.float32).reshape(2, -1)
        return np.stack((x / width, y / height, (x + 1) / width, (y + 1) / height), axis=1)

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:
        """Visual input of the images for this `VisualSpec`: float32 tensors on the CPU.

        "regions" are the cells with their boxes. "none" gets one zero per image.
        """
        if spec.dim != (self.dim if spec.kind in {"grid", "regions", "pooled"} else 0):
            raise BenchError(f"the model expects {spec.dim} visual channels, but the features have {self.dim}")
        if spec.kind == "pixels":
            raise BenchError("the model needs pixels, but these are cached features")
        count = len(image_ids)
        if spec.kind == "none":
            return unseen(count)
        if spec.kind == "pooled":
            features = torch.from_numpy(self.pooled(image_ids)).unsqueeze(1)
        else:
            features = torch.from_numpy(self.grid_features(image_ids)).float()
        boxes = None
        if spec.kind == "regions":
            boxes = torch.from_numpy(self.cell_boxes()).expand(count, -1, -1).contiguous()
        return Visual(features=features, mask=torch.ones(features.shape[:2], dtype=torch.bool), boxes=boxes)

    def _damage(self, what: str) -> BenchError:
        folder = self._path.parent
        return BenchError(
            f"the feature cache {folder} is damaged: {what}", hint=f"remove it and run again: rm -r {folder}"
        )
