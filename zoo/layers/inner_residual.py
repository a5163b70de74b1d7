"""Attention with a residual connection and a norm of its own, inside those of its layer.

Y. Luo et al.: "Dual-Level Collaborative Transformer for Image Captioning", AAAI 2021 (arXiv:2101.06462), whose released
code wraps every attention so; J. Ji et al.: "Improving Image Captioning by Leveraging Intra- and Inter-layer Global
Representation in Transformer Network", AAAI 2021 (arXiv:2012.07061), whose answer is gated too. Code of both:
https://github.com/luo3300612/image-captioning-DLCT (BSD-3-Clause).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class InnerResidual(nn.Module):
    """norm(q + dropout(W_o a)) of the heads' answer a and the query q as it entered; the `gate` of an attention.

    With `glu` the answer is GLU(W_o a), with a W_o of 2 D rows, the information first: the answer is weighed channel by
    channel before it is added (GET's global enhanced attention).
    """

    def __init__(self, d_model: int, dropout: float, *, glu: bool = False) -> None:
        super().__init__()
        self.glu = glu
        self.output = nn.Linear(d_model, 2 * d_model if glu else d_model)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, attended: Tensor, query: Tensor) -> Tensor:
        """Two tensors (..., D) to (..., D)."""
        answer = self.output(attended)
        added: Tensor = self.norm(query + self.dropout(F.glu(answer, -1) if self.glu else answer))
        return added
