"""Encoder layers over two levels of an image at once: its regions and the cells of a grid.

Y. Luo et al.: "Dual-Level Collaborative Transformer for Image Captioning", AAAI 2021 (arXiv:2101.06462), section 3.
Code: https://github.com/luo3300612/image-captioning-DLCT (BSD-3-Clause).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Places:
    """Where the R regions and the G cells of a batch lie; N = R + G, the regions first.

    code: (B, N, D) of each place; weights: (B, H, N, N) of each pair, of `PairWeights`; mask: (B, N), true where valid;
    aligned: (B, R, G), of `alignment`.
    """

    code: Tensor
    weights: Tensor
    mask: Tensor
    aligned: Tensor

    def neighbours(self) -> tuple[Tensor, Tensor]:
        """What a region sees of all N, itself and its cells (B, R, N); and a cell, itself and its regions (B, G, N)."""
        regions, cells = self.aligned.shape[1:]
        own_region, own_cell = (
            torch.eye(count, dtype=torch.bool, device=self.mask.device).expand(len(self.mask), -1, -1)
            for count in (regions, cells)
        )
        return torch.cat((own_region, self.aligned), 2), torch.cat((self.aligned.transpose(1, 2), own_cell), 2)


def alignment(boxes: Tensor, cells: Tensor) -> Tensor:
    """Which cells a box reaches: those between its corners' cells, where an edge on a line belongs to the next cell.

    Args:
        boxes: (B, R, 4); cells: (B, G, 4), of a grid over the whole image; x1, y1, x2, y2 in [0, 1].

    Returns:
        (B, R, G) bool.
    """
    low, high = boxes[:, :, None, :2], boxes[:, :, None, 2:]
    near, far = cells[:, None, :, :2], cells[:, None, :, 2:]
    return (((far > low) | (far >= 1)) & (near <= high)).all(-1)


class DualLevelLayer(nn.Module):
    """Comprehensive relation attention within each level, then locality-constrained attention across.

    Each of the four is an encoder layer around a `RelationAttention`.
    """

    def __init__(
        self, regions: nn.Module, grid: nn.Module, region_to_grid: nn.Module, grid_to_region: nn.Module
    ) -> None:
        super().__init__()
        self.regions, self.grid = regions, grid
        self.region_to_grid, self.grid_to_region = region_to_grid, grid_to_region

    def forward(self, x: Tensor, places: Places, neighbours: tuple[Tensor, Tensor]) -> Tensor:
        """Regions and cells (B, N, D) to the same; `neighbours` are those of the places."""
        count, code, weights, mask = places.aligned.shape[1], places.code, places.weights, places.mask
        regions, cells = slice(None, count), slice(count, None)
        x = torch.cat(
            [
                within(x[:, part], mask[:, part], code[:, part], weights[:, :, part, part])
                for within, part in ((self.regions, regions), (self.grid, cells))
            ],
            1,
        )
        return torch.cat(
            [
                across(x[:, part], seen, code[:, part], weights[:, :, part], x, code)
                for across, part, seen in (
                    (self.region_to_grid, regions, neighbours[0]),
                    (self.grid_to_region, cells, neighbours[1]),
                )
            ],
            1,
        )
