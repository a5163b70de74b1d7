"""Pooling of visual features."""

from torch import Tensor


def mean_of_valid(features: Tensor, mask: Tensor) -> Tensor:
    """The mean (B, C) over the valid features (B, L, C), which are zero elsewhere; zeros if none is valid."""
    return features.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
