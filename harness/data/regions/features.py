"""Read cached region features: the number of regions varies by image, and batches are padded and masked."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.features import CachedFeatures, Features, Half, Single, copy_all, map_array, rows_of
from harness.utils.errors import BenchError
from results.files import check_regular, read_text
from zoo.captioner import Visual, VisualSpec

FEATURES, BOXES, INDEX, META = "features.f16", "boxes.f32", "index.npy", "meta.json"
COLUMNS = 5  # columns of the index: image id, first row, number of regions, width and height (0 where unknown)


class RegionFeatures(CachedFeatures):
    """Regions of N images in a folder that `harness.data.regions.cache.prepare_regions` wrote.

    `bad` has the errors of images that are not among `image_ids`. Some models need `has_boxes`. `whole_images` counts
    images without any box, whose only region is the whole image. BenchError as in `Features`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._meta: dict[str, Any] = json.loads(read_text(folder / META))
            self.dim = int(self._meta["dim"])
            self.digest = str(self._meta["digest"])
            self.has_boxes = bool(self._meta["has_boxes"])
            self.whole_images = int(self._meta["whole_images"])
            self.bad = {int(image_id): str(reason) for image_id, reason in self._meta["bad"].items()}
            check_regular(folder / INDEX)
            index = np.load(folder / INDEX, allow_pickle=False)
            self._total = int(self._meta["rows"])
            sizes = [check_regular(folder / name) for name in (FEATURES, BOXES)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self.damage(f"{type(error).__name__}: {error}") from error
        expected = [self._total * self.dim * 2, self._total * 16 * self.has_boxes]
        if sizes != expected or index.ndim != 2 or index.shape[1] != COLUMNS:
            raise self.damage(f"files of {sizes} bytes instead of {expected}")
        self.image_ids: tuple[int, ...] = tuple(index[:, 0].tolist())
        self._rows = {image_id: (start, count) for image_id, start, count in index[:, :3].tolist()}

    @property
    def grid(self) -> tuple[int, int]:
        """Cells (h, w) of regions that are square grids."""
        side = math.isqrt(max(self.counts(self.image_ids), default=0))
        return side, side

    def describe(self) -> str:
        """Source, settings, digest and numbers of regions, as a score's signature shows them."""
        counts = self.counts(self.image_ids) or (0,)
        spread = f"{min(counts)}-{max(counts)}" if min(counts) != max(counts) else str(max(counts))
        suffix = f",whole:{self.whole_images}" if self.whole_images else ""
        return f"regions[{self._meta['settings']}]#{self.digest[:8]},{spread}{suffix}"

    def counts(self, image_ids: Sequence[int]) -> tuple[int, ...]:
        """The number of regions of each image."""
        return tuple(count for _, count in rows_of(self._rows, image_ids))

    def typical(self, image_ids: Sequence[int]) -> int:
        """The image for which costs are measured: the first with the median number of regions."""
        counts = self.counts(image_ids)
        return image_ids[counts.index(sorted(counts)[len(counts) // 2])]

    def padded(self, image_ids: Sequence[int]) -> tuple[Half, np.ndarray, Single | None]:
        """See `CachedFeatures`."""
        ranges = rows_of(self._rows, image_ids)  # first row and number of regions
        longest = max((count for _, count in ranges), default=0)
        features = np.zeros((len(ranges), longest, self.dim), dtype=np.float16)
        boxes = np.zeros((len(ranges), longest, 4), dtype=np.float32)
        mask = np.zeros((len(ranges), longest), dtype=bool)
        stored: Half = self._map(FEATURES, "<f2", self.dim)
        stored_boxes = self._map(BOXES, "<f4", 4) if self.has_boxes else None
        for row, (start, count) in enumerate(ranges):
            mask[row, :count] = True
            if stored_boxes is not None:
                boxes[row, :count] = stored_boxes[start : start + count]
        copy_all(
            [features[row, :count] for row, (_, count) in enumerate(ranges)],
            [stored[start : start + count] for start, count in ranges],
        )
        return features, mask, boxes if self.has_boxes else None

    def pooled(self, image_ids: Sequence[int]) -> Single:
        """See `CachedFeatures`."""
        stored: Half = self._map(FEATURES, "<f2", self.dim)
        means = np.empty((len(image_ids), self.dim), dtype=np.float32)
        for row, (start, count) in enumerate(rows_of(self._rows, image_ids)):
            means[row] = stored[start : start + count].mean(axis=0, dtype=np.float32)
        return means

    def _map(self, name: str, dtype: str, width: int) -> np.ndarray[Any, Any]:
        return map_array(self.folder / name, dtype, (self._total, width))


VisualFeatures = Features | RegionFeatures


@dataclass(frozen=True, slots=True)
class RegionsAndGrid:
    """The regions of images, and the grid of cells of their feature map."""

    regions: RegionFeatures
    grid: VisualFeatures

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:
        """The visual input of the images for this `VisualSpec` of both; BenchError if channels differ."""
        regions = self.regions.visual(image_ids, VisualSpec("regions", spec.dim))
        cells = self.grid.visual(image_ids, VisualSpec("grid", spec.grid_dim)).features
        assert cells is not None, "features of a grid have cells"
        return replace(regions, grid=cells.view(len(image_ids), *self.grid.grid, -1))


def both_streams(features: VisualFeatures | None, grid: VisualFeatures | None) -> RegionsAndGrid:
    """The regions and grid as one input; BenchError if boxes or the grid are missing."""
    if isinstance(features, RegionFeatures) and features.has_boxes and grid is not None:
        return RegionsAndGrid(features, grid)
    available = "regions from files" if isinstance(features, RegionFeatures) else "grid cells alone"
    raise BenchError(
        f"the model needs regions with boxes and the grid that they are cut from, but the features are {available}",
        "add --regions boxes, where the data have boxes, --regions FILE with boxes as JSON, or an HDF5 file with "
        "ID_features, ID_boxes and ID_grids; or leave the model out",
    )
