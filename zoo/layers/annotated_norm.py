"""Layer normalisation as in "The Annotated Transformer" (Rush 2018), which the code of older captioners uses."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AnnotatedNorm(nn.Module):
    """gain * (x - mean) / (std + eps) + shift, with the unbiased deviation and `eps` outside the root.

    `nn.LayerNorm` divides by the root of the biased variance plus eps. Half-precision input is normalised in float32.
    """

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.shift = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        x = x.to(self.gain.dtype)
        centred = x - x.mean(-1, keepdim=True)
        return self.gain * centred / (x.std(-1, keepdim=True) + self.eps) + self.shift
