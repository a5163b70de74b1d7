"""Rows that read a vector: the step between attention and feed-forward of X-LAN, X-Transformer and PureT."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class Fusion(nn.Module):
    """norm(x + dropout(ReLU(W [g; x] + b))).

    The product with g is one of its own, so that it is done once for all rows that read the same vector.
    """

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * d_model, d_model)
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def project(self, vectors: Tensor) -> Tensor:
        """The part (B, T, D) of the vectors g (B, T, D)."""
        return F.linear(vectors, self.linear.weight.chunk(2, 1)[0])

    def forward(self, x: Tensor, projected: Tensor) -> Tensor:
        """Rows (B * n, T, D), and of `project` one vector for all of an image (B, 1, D), or as many as rows."""
        read = F.linear(x, self.linear.weight.chunk(2, 1)[1], self.linear.bias)
        read = (read.view(projected.shape[0], -1, x.shape[-1]) + projected).view(x.shape)
        fused: Tensor = self.norm(x + self.dropout(read.relu()))
        return fused
