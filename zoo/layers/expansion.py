"""Common parts of static and dynamic expansion (Hu, Cavicchioli, Capotondi, ExpansionNet v2, arXiv:2208.06551).

Both layers expand a sequence to another length and contract it back, in two streams: stream a weighs by relu(Z),
stream b by relu(-Z), where Z (B, N, L) scores N expanded elements against L positions. Here Z is one tensor, never
transposed in memory: the forward step (equation 3 of the paper) normalises it over L, the backward step
(equation 5) over N. The paper's stream 1 is stream b of the authors' code and of this module; its later version
misprints R_bw for R_fw in both equations.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

EPSILON = 1e-9


def full_precision(scores: Tensor) -> Tensor:
    """At least float32: in half precision EPSILON is 0 and an all-zero row would give 0 / 0."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def normalise(weights: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """psi: divide by the sum along `dim`; zeros stay zeros."""
    return weights / (weights.sum(dim, keepdim=True) + EPSILON)


class GatedStreams(nn.Module):
    """The projections of the two streams' values and the gate between their outputs."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.value_a = nn.Linear(d_model, d_model)
        self.value_b = nn.Linear(d_model, d_model)
        self.selector = nn.Linear(d_model, d_model)

    def values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values of stream a and of stream b."""
        return self.value_a(x), self.value_b(x)

    def combine(self, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """sigmoid(S) * a + (1 - sigmoid(S)) * b, elementwise, with S the selector's projection of x."""
        return gate(self.selector(x), a, b)


def gate(selector: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """sigmoid(selector) * a + (1 - sigmoid(selector)) * b, elementwise."""
    return torch.lerp(b, a, torch.sigmoid(selector).to(a.dtype))
