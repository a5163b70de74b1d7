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

    code: (B, N, D) of each place; weights: of each pair, of `PairWeights`, rows of regions (B, H, R, N) and of cells
    (B, H, G, N); mask: (B, N), true where valid; aligned: (B, R, G), of `alignment`.
    """

    code: Tensor
    weights: tuple[Tensor, Tensor]
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
        boxes: (B, R, 4); cells: (B or 1, G, 4), of a grid over the whole image; x1, y1, x2, y2 in [0, 1].

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
        count, code, mask = places.aligned.shape[1], places.code, places.mask
        levels = list(zip((slice(None, count), slice(count, None)), places.weights, strict=True))
        within = [
            layer(x[:, level], mask[:, level], code[:, level], weights[..., level])
            for layer, (level, weights) in zip((self.regions, self.grid), levels, strict=True)
        ]
        x = torch.cat(within, 1)
        across = [
            layer(x[:, level], seen, code[:, level], weights, x, code)
            for layer, seen, (level, weights) in zip(
                (self.region_to_grid, self.grid_to_region), neighbours, levels, strict=True
            )
        ]
        return torch.cat(across, 1)
