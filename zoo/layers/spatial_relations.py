"""Spatial relations of pairs of boxes as labels of edges, by the 11 classes of GCN-LSTM.

T. Yao, Y. Pan, Y. Li, T. Mei: "Exploring Visual Relationship for Image Captioning", ECCV 2018 (arXiv:1809.07041), as
two later repositories have the rule; no code of the paper's was released. The label of the edge from box i to box j
says how j lies to i: 1 inside it, 2 around it, 3 overlapping it by half of their union, 4 to 11 the octant of the
direction from j to i where their centres are not farther apart than half of the picture's diagonal, else 0 for no edge.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

N_LABELS = 12
"""The 11 classes, and 0."""
N_REGAT_LABELS = 13
"""With 12, of a box and itself."""
_OVERLAP = 0.5
_NEAR = 0.5


def spatial_labels(boxes: Tensor, diagonal: float) -> Tensor:
    """Labels by the rule; the first class that fits, and the opposite one for the reverse edge.

    A box is inside another if none of its sides is outside, and they are not the same. Octants are 45 degrees wide,
    from rightwards on and clockwise, each with its end; the reverse edge has the octant opposite. Boxes with one centre
    have no direction and, unless another class fits, no edge.

    Args:
        boxes: (B, N, 4), x1, y1, x2, y2 in one unit.
        diagonal: of the picture, in the same unit.

    Returns:
        (B, N, N) int64, zero on the diagonal.
    """
    dx, dy = _offsets(boxes).unbind(-1)
    upper = (dy > 0) | ((dy == 0) & (dx < 0))
    across, down = torch.where(upper, dx, -dx), torch.where(upper, dy, -dy)
    octant = 1 + (down > across).long() + (across < 0).long() + (down < -across).long() + 4 * (~upper).long()
    distance = (dx.square() + dy.square()).sqrt()
    near = (distance <= _NEAR * diagonal) & (distance > 0)
    low, high = boxes[..., :2], boxes[..., 2:]
    within = (low[:, None] >= low[:, :, None]).all(-1) & (high[:, None] <= high[:, :, None]).all(-1)
    same = within & within.transpose(1, 2)
    own = torch.eye(boxes.shape[1], dtype=torch.bool, device=boxes.device)
    labels = _labels(within & ~same, _overlaps(boxes, 0.0) >= _OVERLAP, torch.where(near, octant + 3, 0))
    return labels.masked_fill(own, 0)


def regat_labels(boxes: Tensor, diagonal: float) -> Tensor:
    """Labels as ReGAT's released code has them (https://github.com/linjieli222/VQA_ReGAT, MIT), faults included.

    A box is inside another if it touches no side of it, sides are a pixel longer in overlaps, and boxes as far apart as
    half of the diagonal have no edge. Of i < j the edge from i has the octant of the angle of their centres, but 8 and
    9 are exchanged, and an angle of 0 gives 3; the reverse edge has the mirrored octant in place of the opposite one
    where box i is the lower one. Each box has an edge to itself, 12, but one of zeros has none at all. Boxes with one
    centre, for which the code divides by zero, have no edge here.

    Args:
        boxes: (B, N, 4), x1, y1, x2, y2 in pixels.
        diagonal: of the picture, in pixels; the code infers it from the first box.

    Returns:
        (B, N, N) int64.
    """
    dx, dy = _offsets(boxes).unbind(-1)
    distance = (dx.square() + dy.square()).sqrt()
    sine, cosine = dy / distance, dx / distance
    below = torch.where(dx >= 0, sine.arcsin() + 2 * math.pi, 2 * math.pi - sine.arccos())
    angle = torch.where(dy < 0, below, torch.where(dx >= 0, sine.arcsin(), cosine.arccos()))
    reverse = torch.where(dy < 0, angle - math.pi, 2 * math.pi - angle)
    first = torch.ones_like(dx, dtype=torch.bool).triu(1)
    angle = torch.where(first, angle, reverse.transpose(1, 2))
    near = (distance < _NEAR * diagonal) & (distance > 0)
    octant = torch.where(near, (angle / (math.pi / 4)).ceil() + 3, 0).long()
    low, high = boxes[..., :2], boxes[..., 2:]
    within = (low[:, None] > low[:, :, None]).all(-1) & (high[:, None] < high[:, :, None]).all(-1)
    labels = _labels(within, _overlaps(boxes, 1.0) >= _OVERLAP, octant)
    own = torch.eye(boxes.shape[1], dtype=torch.bool, device=boxes.device)
    there = boxes.any(-1)
    return labels.masked_fill(own, N_LABELS) * (there[:, None] & there[:, :, None])


def _offsets(boxes: Tensor) -> Tensor:
    """Centre of i less centre of j, (B, N, N, 2)."""
    centres = (boxes[..., :2] + boxes[..., 2:]) / 2
    return centres[:, :, None] - centres[:, None]


def _overlaps(boxes: Tensor, longer: float) -> Tensor:
    """Intersection over union (B, N, N), with sides `longer` than they are; 0 of boxes without an area."""
    low = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
    shared = (high - low + longer).clamp(min=0).prod(-1)
    area = (boxes[..., 2:] - boxes[..., :2] + longer).prod(-1)
    union = area[:, :, None] + area[:, None] - shared
    return torch.where(union > 0, shared / union, 0.0)


def _labels(within: Tensor, overlapping: Tensor, octant: Tensor) -> Tensor:
    """The first class that fits; `within` at i, j says that j is inside i."""
    overlap = torch.where(overlapping, 3, octant)
    return torch.where(within, 1, torch.where(within.transpose(1, 2), 2, overlap))
