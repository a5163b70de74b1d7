"""Position-wise feed-forward network (Vaswani et al. 2017, equation 2)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class FeedForward(nn.Module):
    """W_2 dropout(relu(W_1 x + b_1)) + b_2."""

    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        y: Tensor = self.outer(self.dropout(F.relu(self.inner(x))))
        return y
