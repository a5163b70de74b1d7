"""Attention within windows of a grid, plain or shifted, around one global token that all windows share.

Z. Liu et al.: "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows", ICCV 2021, section 3.2, in the
form of Y. Wang, J. Xu, Y. Sun: "End-to-End Transformer Based Model for Image Captioning", AAAI 2022. Tokens need not
fill the grid: regions lie in the cells of their boxes' centres, several in a cell or none.

The authors cut the grid into windows; here all pairs are scored and those of two windows masked, which gives the same
numbers, takes any places, and costs 3 % more at the released size.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.layers.attention import MultiHeadAttention


class Neighbours(NamedTuple):
    """Of each pair of tokens (B or 1, L, L): whether it is `visible`, and its `offset`, a row of the bias table."""

    visible: Tensor
    offset: Tensor


def square_cells(count: int, device: torch.device) -> Tensor:
    """Row and column (1, L, 2) of the cells of a square grid, row by row; ZooError if `count` is that of none."""
    side = math.isqrt(count)
    if side * side != count:
        raise ZooError(
            f"windows need a square grid or boxes, and got {count} tokens without boxes",
            "use a backbone with as many rows as columns, or regions with boxes",
        )
    places = torch.arange(count, device=device)
    return torch.stack((places // side, places % side), -1)[None]


def box_cells(boxes: Tensor, grid: int) -> Tensor:
    """Row and column (B, L, 2) of the cells of a square grid that contain the centres of boxes (B, L, 4) in [0, 1]."""
    left, top, right, bottom = boxes.unbind(-1)
    centres = torch.stack((top + bottom, left + right), -1) / 2
    return (centres * grid).long().clamp(0, grid - 1)


def neighbours(cells: Tensor, grid: int, window: int, shift: int) -> Neighbours:
    """The pairs that share a window, after the grid is rolled by `shift` up and to the left.

    The roll carries the first rows round to the last window, whose own they do not see; columns alike. There is no
    shift where one window holds the whole grid.
    """
    shift = shift if window < grid else 0
    rolled = (cells - shift) % grid
    groups = torch.cat((rolled // window, rolled >= grid - shift), -1)
    visible = (groups[:, :, None] == groups[:, None]).all(-1)
    within = rolled % window
    rows, columns = (within[:, :, None] - within[:, None] + window - 1).unbind(-1)
    return Neighbours(visible, rows * (2 * window - 1) + columns)


class WindowAttention(MultiHeadAttention):
    """Self-attention of tokens to their window and the global token, which stands last and attends to all tokens.

    Scores between tokens have a learned bias by the difference of their places in the window.
    """

    def __init__(self, d_model: int, n_heads: int, window: int) -> None:
        super().__init__(d_model, n_heads)
        self.bias_table = nn.Parameter(torch.empty((2 * window - 1) ** 2, n_heads))
        nn.init.trunc_normal_(self.bias_table, std=0.02)

    def forward(  # type: ignore[override]
        self, x: Tensor, mask: Tensor, near: Neighbours, global_weight: float
    ) -> Tensor:
        """Attend.

        Args:
            x: (B, L + 1, D).
            mask: (B, L), true at valid tokens.
            near: which of the L tokens see each other.
            global_weight: factor of what the global token takes from itself, after its softmax.

        Returns:
            (B, L + 1, D).
        """
        queries, keys, values = self.project_all(x)
        bias = self.bias_table[near.offset].permute(0, 3, 1, 2).masked_fill(~near.visible[:, None], -torch.inf)
        scores = queries * queries.shape[-1] ** -0.5 @ keys.transpose(-1, -2)
        hidden = nn.functional.pad(~mask, (0, 1), value=False)[:, None, None]
        weights = (scores + nn.functional.pad(bias, (0, 1, 0, 1))).masked_fill(hidden, -torch.inf).softmax(-1)
        attended = weights.to(values.dtype) @ values
        if global_weight != 1:
            extra = (global_weight - 1) * weights[:, :, -1:, -1:].to(values.dtype) * values[:, :, -1:]
            attended = torch.cat((attended[:, :, :-1], attended[:, :, -1:] + extra), 2)
        return self._merge(attended, x)
