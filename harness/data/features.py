"""Read cached features image by image, without loading the array into memory."""

import io
import json
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from harness.config.execution import usable_cores
from harness.utils.errors import BenchError
from results.files import check_regular, read_text
from zoo.captioner import Visual, VisualSpec

ARRAY = "features.npy"
META = "meta.json"
ROWS_AT_ONCE = 64
MUCH = 8 * 2**20  # bytes of a batch's features; less is copied before threads have started

T = TypeVar("T")
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


def readers() -> ThreadPoolExecutor:
    """A thread for every core of this process: Pillow and numpy release the interpreter's lock."""
    return ThreadPoolExecutor(usable_cores(), thread_name_prefix="reader")


def copy_all(targets: Sequence[Half], stored: Sequence[Half]) -> None:
    """Copy the stored arrays of images, in several threads if they are large, since their pages may be on disk."""
    if sum(target.nbytes for target in targets) < MUCH:
        deque(map(np.copyto, targets, stored), 0)
    else:
        with readers() as threads:
            deque(threads.map(np.copyto, targets, stored), 0)


class CachedFeatures:
    """Visual tokens of images in a folder of the cache, safe to share between threads.

    Every read maps the files again and copies the requested rows, so that memory does not grow with the data set.
    """

    folder: Path
    dim: int
    image_ids: tuple[int, ...]
    digest: str

    def __len__(self) -> int:
        """Number of images."""
        return len(self.image_ids)

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:
        """Visual input of the images for this `VisualSpec`: tensors on the CPU, padded to the longest.

        "grid" gets the tokens in half precision, "regions" their boxes too if there are any, "pooled" their mean in
        single precision, "none" a zero. BenchError where the model needs pixels, or another number of channels, or an
        image has no features.
        """
        if spec.kind == "pixels":
            raise BenchError("the model needs pixels, but these are cached features")
        if spec.kind == "none":
            return unseen(len(image_ids))
        if spec.dim != self.dim:
            raise BenchError(f"the model expects {spec.dim} visual channels, but the features have {self.dim}")
        if spec.kind == "pooled":
            means = torch.from_numpy(self.pooled(image_ids)).unsqueeze(1)
            return Visual(features=means, mask=torch.ones(means.shape[:2], dtype=torch.bool))
        features, mask, boxes = self.padded(image_ids)
        return Visual(
            features=torch.from_numpy(features),
            mask=torch.from_numpy(mask),
            boxes=torch.from_numpy(boxes) if spec.kind == "regions" and boxes is not None else None,
        )

    def padded(self, image_ids: Sequence[int]) -> tuple[Half, np.ndarray, Single | None]:
        """Features (B, L, C), in half precision, mask (B, L) and boxes (B, L, 4) if there are any, padded by zeros."""
        raise NotImplementedError

    def pooled(self, image_ids: Sequence[int]) -> Single:
        """Means over the tokens (B, C), in single precision."""
        raise NotImplementedError

    def damage(self, reason: str) -> BenchError:
        """The error for a cache that cannot be read."""
        return BenchError(f"the feature cache {self.folder} is damaged: {reason}", f"run again: rm -r {self.folder}")


def rows_of(rows: Mapping[int, T], image_ids: Sequence[int], noun: str = "features") -> list[T]:
    """The entries of the images; BenchError where one has none."""
    try:
        return [rows[image_id] for image_id in image_ids]
    except KeyError as error:
        raise BenchError(f"no {noun} for image {error.args[0]}", "it was skipped or is not listed") from None


class Features(CachedFeatures):
    """Features (N, L, C) of N images in a folder of `harness.data.feature_cache.extract_features`.

    The `grid` has (h, w) cells, L = h * w, row by row from the top left. Opening raises a BenchError where files of the
    cache are missing, unreadable or of the wrong size.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / ARRAY
        try:
            self._meta: dict[str, Any] = json.loads(read_text(folder / META))
            images, cells, self.dim = self._shape = tuple(int(side) for side in self._meta["shape"])
            height, width = self._meta["grid"]
            self.image_ids: tuple[int, ...] = tuple(self._meta["image_ids"])
            self.digest: str = self._meta["key"]
            self._offset = len(array_header(self._shape))
            size = check_regular(self._path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.damage(f"{type(error).__name__}: {error}") from error
        self.grid: tuple[int, int] = (height, width)
        self._rows = {image_id: row for row, image_id in enumerate(self.image_ids)}
        expected_size = self._offset + images * cells * self.dim * 2
        if size != expected_size or len(self._rows) != images or height * width != cells:
            raise self.damage(f"{size} bytes and {len(self._rows)} images instead of {expected_size} and {images}")

    def grid_features(self, image_ids: Sequence[int]) -> Half:
        """Cells (B, L, C) of the images, in their order."""
        rows = rows_of(self._rows, image_ids)
        array: Half = map_array(self._path, "<f2", self._shape, self._offset)
        cells = np.empty((len(rows), *self._shape[1:]), dtype=np.float16)
        copy_all(list(cells), [array[row] for row in rows])
        return cells

    def pooled(self, image_ids: Sequence[int]) -> Single:
        """Means over the cells (B, C), in single precision."""
        means = np.empty((len(image_ids), self.dim), dtype=np.float32)
        for start in range(0, len(image_ids), ROWS_AT_ONCE):
            group = slice(start, start + ROWS_AT_ONCE)
            means[group] = self.grid_features(image_ids[group]).mean(axis=1, dtype=np.float32)
        return means

    def typical(self, image_ids: Sequence[int]) -> int:
        """An image whose costs are typical; all have the same number of cells."""
        return image_ids[0]

    def cell_boxes(self) -> Single:
        """Boxes (L, 4) of the cells: x1, y1, x2, y2 in [0, 1] of the image."""
        height, width = self.grid
        y, x = np.indices((height, width), dtype=np.float32).reshape(2, -1)
        return np.stack((x / width, y / height, (x + 1) / width, (y + 1) / height), axis=1)

    def padded(self, image_ids: Sequence[int]) -> tuple[Half, np.ndarray, Single]:
        """See `CachedFeatures`; nothing is padded, and boxes are those of the cells."""
        cells = self.grid_features(image_ids)
        boxes = np.broadcast_to(self.cell_boxes(), (*cells.shape[:2], 4)).copy()
        return cells, np.ones(cells.shape[:2], dtype=bool), boxes
