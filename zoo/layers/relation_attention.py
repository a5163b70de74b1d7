"""Self-attention that knows where its visual tokens lie: by a code of each place, and by the geometry of each pair.

Y. Luo et al.: "Dual-Level Collaborative Transformer for Image Captioning", AAAI 2021 (arXiv:2101.06462), comprehensive
relation attention; the grid-augmented attention of X. Zhang et al.: "RSTNet", CVPR 2021, is the same on a grid.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from zoo.layers.attention import MultiHeadAttention, attend
from zoo.layers.geometry import GEOMETRY_DIM, pair_geometry

_LEAST_WEIGHT = 1e-6
_AUTHORS_SCALE = 1 + 1e-6 / 7
"""The authors divide row and column of their grid of 7 by 7 + 1e-6."""


def grid_cells(height: int, width: int, *, like: Tensor) -> Tensor:
    """Boxes (height * width, 4) of a grid's cells, row by row: x1, y1, x2, y2 in [0, 1] of the image.

    In the precision of `like`, and where it lies.
    """
    rows, columns = (torch.arange(side, dtype=like.dtype, device=like.device) for side in (height, width))
    y, x = rows[:, None].expand(height, width), columns.expand(height, width)
    return torch.stack((x / width, y / height, (x + 1) / width, (y + 1) / height), -1).flatten(0, 1)


def corner_code(boxes: Tensor, d_model: int) -> Tensor:
    """Sines and cosines of the lower right corners of boxes; those of a grid's cells tell row and column.

    N. Carion et al.: "End-to-End Object Detection with Transformers", ECCV 2020, counts cells alike.

    Args:
        boxes: (..., 4), x1, y1, x2, y2 in [0, 1].

    Returns:
        (..., D), that of y2 before that of x2.
    """
    halves = (d_model - d_model // 2, d_model // 2)
    return torch.cat([_waves(boxes[..., side], width) for side, width in zip((3, 2), halves, strict=True)], -1)


def _waves(places: Tensor, width: int) -> Tensor:
    """(...) in [0, 1] to (..., width): sine and cosine in turn, in pairs of one wave length."""
    channel = torch.arange(width, device=places.device)
    rates = 10_000.0 ** (-2 * (channel // 2) / width).to(places.dtype)
    phases = (2 * math.pi / _AUTHORS_SCALE * places)[..., None] * rates
    return torch.where(channel % 2 == 0, phases.sin(), phases.cos())


class PairWeights(nn.Module):
    """log relu(W_G geometry + b) of every pair of boxes, one number a head; -13.8 where there is nothing to take a
    logarithm of.

    Args:
        n_heads: rows of W_G.
        pixel_sizes: see `pair_geometry`.
    """

    def __init__(self, n_heads: int, *, pixel_sizes: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(GEOMETRY_DIM, n_heads)
        self.pixel_sizes = pixel_sizes

    def forward(self, boxes: Tensor, others: Tensor) -> Tensor:
        """Boxes (B, T, 4) and others (B, L, 4) that they attend to, to (B, H, T, L), added to scores of attention."""
        geometry = pair_geometry(boxes, others, pixel_sizes=self.pixel_sizes)
        weights: Tensor = self.linear(geometry.to(self.linear.weight.dtype))
        return weights.clamp(min=_LEAST_WEIGHT).log().permute(0, 3, 1, 2)


class RelationAttention(MultiHeadAttention):
    """Attention whose queries and keys carry a code of their places, and values do not.

    The `gate` gets the query with its code.
    """

    def forward(  # type: ignore[override]
        self, x: Tensor, mask: Tensor | None, code: Tensor, weights: Tensor, *memory: Tensor
    ) -> Tensor:
        """(B, T, D) to (B, T, D).

        Args:
            x, code: (B, T, D).
            mask: (B, L), or (B, T, L) where tokens differ; true where one is visible.
            weights: (B, H, T, L), of `PairWeights`.
            memory: the tokens to attend to and their code (B, L, D), if these are others.
        """
        placed = x + code
        content, content_code = memory or (x, code)
        heads, keys = self._heads(self.query(placed)), self._heads(self.key(content + content_code))
        answer = attend(heads, keys, self._heads(self.value(content)), mask, self._rate(), weights)
        return self._merge(answer, placed)


class PlacedCrossAttention(MultiHeadAttention):
    """Attention of words to visual tokens, whose keys carry the code of their place and whose values do not."""

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, L, d_k) of tokens and their code, side by side (B, L, 2 D)."""
        content, code = memory.chunk(2, -1)
        return self._heads(self.key(content + code)), self._heads(self.value(content))
