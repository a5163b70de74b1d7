"""The encoder of X-LAN and X-Transformer: a global vector that attends to the regions, and regions that read it.

Y. Pan, T. Yao, Y. Li, T. Mei: "X-Linear Attention Networks for Image Captioning", CVPR 2020, section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.residual import ResidualLayer
from zoo.layers.x_linear import Seen, XLinearAttention, seen_where
from zoo.recurrent import mean_of_valid


@dataclass(frozen=True, slots=True)
class XLinearDropouts:
    """Rates after each attention (and in a feed-forward), on the bilinear products, and where a vector is fused."""

    branch: float
    attention: float
    fusion: float


class Fusion(nn.Module):
    """norm(x + dropout(ReLU(W [g; x]))): rows read a vector that may be the same for several of them."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * d_model, d_model)
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, vector: Tensor) -> Tensor:
        """(B, L, D) and (B, D) or (B, L, D) to (B, L, D)."""
        if vector.dim() == 3:
            read = self.linear(torch.cat((vector, x), -1))
        else:
            of_vector, of_rows = self.linear.weight.chunk(2, 1)
            read = F.linear(x, of_rows, self.linear.bias) + F.linear(vector, of_vector)[:, None]
        fused: Tensor = self.norm(x + self.dropout(read.relu()))
        return fused


class XLinearEncoderLayer(ResidualLayer):
    """g <- dropout(attention(g, x)) without a residual, x <- fusion(x, g), then a feed-forward unless `d_ff` is None."""

    def __init__(
        self, d_model: int, n_heads: int, d_attention: int | None, d_ff: int | None, dropouts: XLinearDropouts
    ) -> None:
        super().__init__(dropouts.branch, post_norm=True)
        self.attention = XLinearAttention(d_model, n_heads, d_attention, dropouts.attention)
        self.fusion = Fusion(d_model, dropouts.fusion)
        self.add_feed_forward(d_model, d_ff, nn.LayerNorm)

    def forward(self, vector: Tensor, x: Tensor, seen: Seen) -> tuple[Tensor, Tensor]:
        """(B, D) and (B, L, D) to the same."""
        vector = self.dropout(self.attention(vector[:, None], *self.attention.project(x), seen))[:, 0]
        return vector, self.feed(self.fusion(x, vector))


class XLinearEncoder(nn.Module):
    """Layers over regions and their mean, and norm(W [g_0; ..; g_N]) over the vectors of all layers, the mean first."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_layers: int,
        dropouts: XLinearDropouts,
        *,
        d_attention: int | None = None,
        d_ff: int | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            XLinearEncoderLayer(d_model, n_heads, d_attention, d_ff, dropouts) for _ in range(n_layers)
        )
        self.output = nn.Linear((n_layers + 1) * d_model, d_model)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Seen]:
        """Regions (B, L, D) and mask (B, L) to regions (B, L, D), the vector (B, D), and the mask as attention has it."""
        seen = seen_where(mask, x.dtype)
        vectors = [mean_of_valid(x.masked_fill(~mask[..., None], 0.0), mask)]
        for layer in self.layers:
            vector, x = layer(vectors[-1], x, seen)
            vectors.append(vector)
        return x, self.norm(self.output(torch.cat(vectors, -1))), seen
