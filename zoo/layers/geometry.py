"""Self-attention of regions weighted by the relative geometry of their boxes.

H. Hu et al.: "Relation Networks for Object Detection", CVPR 2018 (equations 3 to 5);
S. Herdade et al.: "Image Captioning: Transforming Objects into Words", NeurIPS 2019 (equations 5 to 8).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zoo.layers.attention import MultiHeadAttention, attend

GEOMETRY_DIM = 64
_WAVE_LENGTH, _STRETCH = 1000.0, 100.0
_NEAREST = 1e-3
"""Minimum relative offset: a box has an offset of 0 to itself, whose logarithm does not exist."""
_THINNEST = 1e-6
"""Of the picture: boxes are checked when features are prepared, but rounding may still collapse a very thin one."""


def box_geometry(boxes: Tensor, mask: Tensor) -> Tensor:
    """Geometry of every box n relative to every box m of its image.

    (log |dx| / w_m, log |dy| / h_m, log w_n / w_m, log h_n / h_m), each as sines and cosines of 8 wave lengths;
    invariant to a common shift or scaling of all boxes of an image.

    Args:
        boxes: (B, L, 4), x1, y1, x2, y2.
        mask: (B, L), true at valid boxes; the others are arbitrary.

    Returns:
        (B, L, L, 64) in at least float32, since half precision would round large phases to noise.
    """
    boxes = whole_where_padded(boxes, mask)
    return pair_geometry(boxes, boxes)


def pair_geometry(boxes: Tensor, others: Tensor, *, pixel_sizes: bool = False) -> Tensor:
    """As `box_geometry`, of every one of `others` (B, M, 4) relative to every one of `boxes` (B, N, 4), all valid.

    With `pixel_sizes` as released codes have it: 1 is added to width and height, as if boxes were in pixels, and their
    ratios are inverted. All boxes are then of nearly the same size.

    Returns:
        (B, N, M, 64), in the precision of the boxes.
    """
    (centre, size), (other_centre, other_size) = (_centre_and_size(each, pixel_sizes) for each in (boxes, others))
    seen_from, seen = size[:, :, None], other_size[:, None]
    ratio = seen_from / seen if pixel_sizes else seen / seen_from
    offset = (other_centre[:, None] - centre[:, :, None]).abs() / seen_from
    relative = torch.cat((offset.clamp(min=_NEAREST), ratio), -1).log()
    steps = torch.arange(GEOMETRY_DIM // 8, dtype=boxes.dtype, device=boxes.device) / (GEOMETRY_DIM // 8)
    phases = (_STRETCH * relative[..., None] / _WAVE_LENGTH**steps).flatten(-2)
    return torch.cat((phases.sin(), phases.cos()), -1)


def _centre_and_size(boxes: Tensor, pixel_sizes: bool) -> tuple[Tensor, Tensor]:
    low, high = boxes.chunk(2, -1)
    return (low + high) / 2, high - low + 1 if pixel_sizes else (high - low).clamp(min=_THINNEST)


def whole_where_padded(boxes: Tensor, mask: Tensor) -> Tensor:
    """Boxes (B, L, 4) in at least float32, with the whole image in place of those of padding."""
    boxes = boxes.to(torch.promote_types(boxes.dtype, torch.float32))
    return torch.where(mask[..., None], boxes, boxes.new_tensor((0.0, 0.0, 1.0, 1.0)))


class GeometricAttention(MultiHeadAttention):
    """Self-attention of regions with w_G exp(w_A) / sum w_G exp(w_A) in place of a softmax.

    w_A is the scaled product of query and key, w_G = relu(W_G geometry) one number per head and pair of boxes.
    """

    def __init__(self, d_model: int, n_heads: int, *, dropout: float | None = None) -> None:
        super().__init__(d_model, n_heads, dropout=dropout)
        self.geometry = nn.Linear(GEOMETRY_DIM, n_heads)

    def forward(self, x: Tensor, mask: Tensor | None, geometry: Tensor) -> Tensor:  # type: ignore[override]
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at valid regions, `geometry` is that of `box_geometry`."""
        # log w_G is added to w_A before the softmax; clamping from below includes the relu.
        weights = self.geometry(geometry.to(self.geometry.weight.dtype)).clamp(min=1e-6)
        bias = weights.log().permute(0, 3, 1, 2)
        heads = self._heads(self.query(x))
        return self._merge(attend(heads, *self.project(x), mask, self._rate(), bias), x)
