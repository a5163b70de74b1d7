"""Regions and a grid of the same images at once, for models that see both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.data.features import Features, VisualFeatures
from harness.data.regions.features import RegionFeatures
from harness.utils.errors import BenchError
from zoo.captioner import Visual, VisualSpec


@dataclass(frozen=True, slots=True)
class RegionsAndGrid:
    """The regions of images, and the cells of the feature map that they were cut from, or that a file has of it."""

    regions: RegionFeatures
    grid: Features

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:
        """The visual input of the images for this `VisualSpec` of both; BenchError where channels differ."""
        seen = self.regions.visual(image_ids, VisualSpec("regions", spec.dim))
        cells = self.grid.visual(image_ids, VisualSpec("grid", spec.grid_dim)).features
        assert cells is not None, "features of a grid have cells"
        return replace(seen, grid=cells.view(len(image_ids), *self.grid.grid, -1))


def both_streams(features: VisualFeatures | None, grid: Features | None) -> RegionsAndGrid:
    """Regions with boxes and a grid beside them.

    Raises:
        BenchError: one of the two is not there.
    """
    if isinstance(features, RegionFeatures) and features.has_boxes and grid is not None:
        return RegionsAndGrid(features, grid)
    shown = "regions from files" if isinstance(features, RegionFeatures) else "grid cells alone"
    raise BenchError(
        f"the model needs regions with boxes and the grid that they are cut from, and here are {shown}",
        "add --regions boxes, where the data have boxes, --regions FILE with boxes as JSON, or an HDF5 file with "
        "ID_features, ID_boxes and ID_grids; or leave the model out",
    )
