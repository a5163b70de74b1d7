"""Attention with the positions of visual tokens: by the geometry of each pair of boxes, and by a code of each position.

H. Hu et al.: "Relation Networks for Object Detection", CVPR 2018 (equations 3 to 5);
S. Herdade et al.: "Image Captioning: Transforming Objects into Words", NeurIPS 2019 (equations 5 to 8);
Y. Luo et al.: "Dual-Level Collaborative Transformer for Image Captioning", AAAI 2021 (arXiv:2101.06462), comprehensive
relation attention; the grid-augmented attention of X. Zhang et al.: "RSTNet", CVPR 2021, is the same on a grid.
"""

import math

import torch
from torch import Tensor, nn

from zoo.layers.attention import MultiHeadAttention, attend

GEOMETRY_DIM = 64
_WAVE_LENGTH, _STRETCH = 1000.0, 100.0
_MIN_OFFSET = 1e-3  # relative: a box has an offset of 0 to itself, which has no logarithm
_MIN_SIDE = 1e-6
"""Minimum side of a box as a share of the picture's: boxes are checked when features are prepared, but rounding may
still collapse a very thin one."""


def pair_geometry(boxes: Tensor, others: Tensor, *, pixel_sizes: bool = False) -> Tensor:
    """Geometry (B, N, M, 64) of boxes n in `others` (B, M, 4) relative to boxes m in `boxes` (B, N, 4).

    (log |dx| / w_m, log |dy| / h_m, log w_n / w_m, log h_n / h_m), each as sines and cosines of 8 wave lengths;
    invariant to a common shift or scaling of all boxes of an image. Boxes are x1, y1, x2, y2, all of them valid, and in
    at least float32, since half precision would round large phases to noise; see `fill_padded_boxes`.

    Args:
        pixel_sizes: as in released codes: 1 is added to width and height, as if boxes were in pixels, and their ratios
            are inverted. All boxes in [0, 1] then have nearly the same size.
    """
    centre, size = _centre_and_size(boxes, pixel_sizes)
    other_centre, other_size = _centre_and_size(others, pixel_sizes)
    size = size[:, :, None]
    other_size = other_size[:, None]
    ratio = size / other_size if pixel_sizes else other_size / size
    offset = (other_centre[:, None] - centre[:, :, None]).abs() / size
    relative = torch.cat((offset.clamp(min=_MIN_OFFSET), ratio), -1).log()
    steps = torch.arange(GEOMETRY_DIM // 8, dtype=boxes.dtype, device=boxes.device) / (GEOMETRY_DIM // 8)
    phases = (_STRETCH * relative[..., None] / _WAVE_LENGTH**steps).flatten(-2)
    return torch.cat((phases.sin(), phases.cos()), -1)


def _centre_and_size(boxes: Tensor, pixel_sizes: bool) -> tuple[Tensor, Tensor]:
    low, high = boxes.chunk(2, -1)
    size = high - low + 1 if pixel_sizes else (high - low).clamp(min=_MIN_SIDE)
    return (low + high) / 2, size


def fill_padded_boxes(boxes: Tensor, mask: Tensor) -> Tensor:
    """Boxes (B, L, 4) in at least float32, where padding has the box of the whole image."""
    boxes = boxes.to(torch.promote_types(boxes.dtype, torch.float32))
    whole_image = (torch.arange(4, device=boxes.device) > 1).to(boxes.dtype)  # 0, 0, 1, 1
    return torch.where(mask[..., None], boxes, whole_image)


class GeometricAttention(MultiHeadAttention):
    """Self-attention of regions with w_G exp(w_A) / sum w_G exp(w_A) in place of a softmax.

    w_A is the scaled product of query and key, w_G = relu(W_G geometry) one number per head and pair of boxes.
    """

    def __init__(self, d_model: int, n_heads: int, *, dropout: float | None = None) -> None:
        super().__init__(d_model, n_heads, dropout=dropout)
        self.geometry = nn.Linear(GEOMETRY_DIM, n_heads)

    def forward(self, x: Tensor, mask: Tensor | None, geometry: Tensor) -> Tensor:  # type: ignore[override]
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at valid regions, `geometry` is from `pair_geometry`."""
        # log w_G is added to w_A before the softmax; clamping from below includes the relu.
        weights = self.geometry(geometry.to(self.geometry.weight.dtype)).clamp(min=1e-6)
        bias = weights.log().permute(0, 3, 1, 2)
        heads = self._heads(self.query(x))
        return self._output(attend(heads, *self.project(x), mask, self._rate(), bias), x)


_MIN_WEIGHT = 1e-6
_AUTHORS_SCALE = 1 + 1e-6 / 7  # the authors divide row and column of their grid of 7 by 7 + 1e-6


def grid_cells(height: int, width: int, *, like: Tensor) -> Tensor:
    """Boxes (height * width, 4) of a grid's cells, row by row: x1, y1, x2, y2 in [0, 1] of the image.

    They have the type and device of `like`.
    """
    rows, columns = (torch.arange(side, dtype=like.dtype, device=like.device) for side in (height, width))
    y = rows[:, None].expand(height, width)
    x = columns.expand(height, width)
    return torch.stack((x / width, y / height, (x + 1) / width, (y + 1) / height), -1).flatten(0, 1)


def corner_code(boxes: Tensor, d_model: int) -> Tensor:
    """Sines and cosines (..., D) of the lower right corners of boxes, y2 before x2.

    For the cells of a grid, this is the position encoding of N. Carion et al.: "End-to-End Object Detection with
    Transformers", ECCV 2020.

    Args:
        boxes: (..., 4), x1, y1, x2, y2 in [0, 1].
    """
    halves = (d_model - d_model // 2, d_model // 2)
    return torch.cat([_waves(boxes[..., side], width) for side, width in zip((3, 2), halves, strict=True)], -1)


def _waves(positions: Tensor, width: int) -> Tensor:
    """Positions (...) in [0, 1] to (..., width): alternating sines and cosines, in pairs of one wave length."""
    channel = torch.arange(width, device=positions.device)
    rates = 10_000.0 ** (-2 * (channel // 2) / width).to(positions.dtype)
    phases = (2 * math.pi / _AUTHORS_SCALE * positions)[..., None] * rates
    return torch.where(channel % 2 == 0, phases.sin(), phases.cos())


class PairWeights(nn.Module):
    """log max(W_G geometry + b, 1e-6) of every pair of boxes, one number per head, with `pair_geometry`."""

    def __init__(self, n_heads: int, *, pixel_sizes: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(GEOMETRY_DIM, n_heads)
        self.pixel_sizes = pixel_sizes

    def forward(self, boxes: Tensor, others: Tensor) -> Tensor:
        """The attention bias (B, H, T, L) of boxes (B, T, 4) that attend to others (B, L, 4)."""
        geometry = pair_geometry(boxes, others, pixel_sizes=self.pixel_sizes)
        weights: Tensor = self.linear(geometry.to(self.linear.weight.dtype))
        return weights.clamp(min=_MIN_WEIGHT).log().permute(0, 3, 1, 2)


class RelationAttention(MultiHeadAttention):
    """Attention whose queries and keys include a code of their positions, and values do not.

    The `gate` gets the query with its code.
    """

    def forward(  # type: ignore[override]
        self, x: Tensor, mask: Tensor | None, code: Tensor, weights: Tensor, *memory: Tensor
    ) -> Tensor:
        """(B, T, D) to (B, T, D).

        Args:
            x, code: (B, T, D).
            mask: (B, L), or (B, T, L) where tokens differ; true where a token is visible.
            weights: (B, H, T, L), from `PairWeights`.
            memory: the tokens to attend to and their code, both (B, L, D); x and its code if not given.
        """
        queries = x + code
        content, content_code = memory or (x, code)
        heads = self._heads(self.query(queries))
        keys = self._heads(self.key(content + content_code))
        attended = attend(heads, keys, self._heads(self.value(content)), mask, self._rate(), weights)
        return self._output(attended, queries)


class PlacedCrossAttention(MultiHeadAttention):
    """Attention of words to visual tokens, whose keys include the code of their position and whose values do not."""

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, L, d_k) of tokens and their code, concatenated to (B, L, 2 D)."""
        content, code = memory.chunk(2, -1)
        return self._heads(self.key(content + code)), self._heads(self.value(content))
