"""The encoder of X-LAN and X-Transformer: a global vector that attends to the regions, and regions that read it.

Y. Pan, T. Yao, Y. Li, T. Mei: "X-Linear Attention Networks for Image Captioning", CVPR 2020, section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from zoo.layers.fusion import Fusion
from zoo.layers.residual import ResidualLayer
from zoo.layers.x_linear import Seen, XLinearAttention
from zoo.recurrent import mean_of_valid


@dataclass(frozen=True, slots=True)
class XLinearDropouts:
    """Rates after each attention (and in a feed-forward), on the bilinear products, and where a vector is fused."""

    branch: float
    attention: float
    fusion: float


class XLinearEncoderLayer(ResidualLayer):
    """g <- dropout(attention(g, x)) without a residual, x <- fusion(x, g), then feed-forward unless `d_ff` is None."""

    def __init__(
        self, d_model: int, n_heads: int, d_attention: int | None, d_ff: int | None, dropouts: XLinearDropouts
    ) -> None:
        super().__init__(dropouts.branch, post_norm=True)
        self.attention = XLinearAttention(d_model, n_heads, d_attention, dropouts.attention)
        self.fusion = Fusion(d_model, dropouts.fusion)
        self.add_feed_forward(d_model, d_ff, nn.LayerNorm)

    def forward(self, vector: Tensor, x: Tensor, seen: Seen) -> tuple[Tensor, Tensor]:
        """(B, D) and (B, L, D) to the same."""
        vector = self.dropout(self.attention(vector[:, None], *self.attention.project(x), seen))
        return vector[:, 0], self.feed(self.fusion(x, self.fusion.project(vector)))


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

    def forward(self, x: Tensor, mask: Tensor, seen: Seen) -> tuple[Tensor, Tensor]:
        """Regions (B, L, D), their mask (B, L) and what `seen_where` makes of it to regions and the vector (B, D)."""
        vectors = [mean_of_valid(x.masked_fill(~mask[..., None], 0.0), mask)]
        for layer in self.layers:
            vector, x = layer(vectors[-1], x, seen)
            vectors.append(vector)
        return x, self.norm(self.output(torch.cat(vectors, -1)))
