"""RoIAlign: region features pooled by boxes from a frozen backbone's feature map.

He et al., "Mask R-CNN", ICCV 2017. A region's feature is the mean over its box, sampled bilinearly about once a cell;
with several bins a side, the means of the bins, one after the other within each channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
from torchvision.ops import roi_align

from harness.data.features import Features
from harness.data.regions.contract import Numbers, Regions

AT_ONCE = 32


def cut_regions(
    found: Iterator[tuple[int, Regions | str]], grid: Features, bins: int
) -> Iterator[tuple[int, Regions | str]]:
    """Give every image with boxes its features (K, C * bins * bins); errors are passed on."""
    while group := list(islice(found, AT_ONCE)):
        boxes = {image_id: regions.boxes for image_id, regions in group if not isinstance(regions, str)}
        cut = _cut(grid, {image_id: rows for image_id, rows in boxes.items() if rows is not None}, bins)
        for image_id, regions in group:
            yield image_id, regions if isinstance(regions, str) else replace(regions, features=cut[image_id])


def _cut(grid: Features, boxes: dict[int, Numbers], bins: int) -> dict[int, Numbers]:
    if not boxes:
        return {}
    height, width = grid.grid
    maps = torch.from_numpy(grid.grid_features(list(boxes))).float()
    maps = maps.transpose(1, 2).reshape(len(boxes), -1, height, width)
    scale = np.array((width, height, width, height), dtype=np.float32)
    rois = [torch.from_numpy(np.asarray(rows * scale, dtype=np.float32)) for rows in boxes.values()]
    pooled = roi_align(maps, rois, bins, spatial_scale=1.0, sampling_ratio=-1, aligned=True)
    parts = pooled.flatten(1).split([len(rows) for rows in rois])
    return {image_id: part.numpy() for image_id, part in zip(boxes, parts, strict=True)}
