"""Layer normalisation as in "The Annotated Transformer" (Rush 2018), which the code of older captioners uses."""

import torch
from torch import Tensor, nn

EPSILON = 1e-6


class AnnotatedNorm(nn.Module):
    """gain * (x - mean) / (std + eps) + shift, with the unbiased deviation and eps (`EPSILON`) outside the root.

    `nn.LayerNorm` divides by the root of the biased variance plus eps. Half-precision input is normalised in float32.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.shift = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        x = x.to(self.gain.dtype)
        deviation, mean = torch.std_mean(x, -1, keepdim=True)
        return torch.addcmul(self.shift, self.gain, (x - mean) / (deviation + EPSILON))
