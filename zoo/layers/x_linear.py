"""X-linear attention: spatial and channel weights from bilinear products of query and keys.

Y. Pan, T. Yao, Y. Li, T. Mei: "X-Linear Attention Networks for Image Captioning", CVPR 2020, section 3.1; and the
encoder of X-LAN and X-Transformer, section 3.2: a global vector attends to the regions, which are then fused with it.
This follows the authors' code (https://github.com/JDAI-CV/image-captioning, no licence stated), which uses CELU and
group normalisation where the paper has ELU.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.attention import head_width, split_heads
from zoo.layers.pooling import mean_of_valid
from zoo.layers.residual import ResidualLayer


class Fusion(nn.Module):
    """norm(x + dropout(ReLU(W [g; x] + b))).

    The product with g is separate, so that it is computed once for all rows with the same g.
    """

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * d_model, d_model)
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def project(self, vectors: Tensor) -> Tensor:
        """The part of the product that depends on the vectors g (B, T, D), of the same shape."""
        return F.linear(vectors, self.linear.weight.chunk(2, 1)[0])

    def forward(self, x: Tensor, projected: Tensor) -> Tensor:
        """Fuse rows x (B * n, T, D) with `project` of one vector per image (B, 1, D), or of one per row."""
        product = F.linear(x, self.linear.weight.chunk(2, 1)[1], self.linear.bias)
        product = (product.view(projected.shape[0], -1, x.shape[-1]) + projected).view(x.shape)
        fused: Tensor = self.norm(x + self.dropout(product.relu()))
        return fused


ALPHA = 1.3
Visibility = tuple[Tensor, Tensor]
"""The keys that queries may attend to: an attention bias, and weights of a mean over them; each (B, 1, Q or 1, L)."""


def visibility(mask: Tensor, dtype: torch.dtype) -> Visibility:
    """The `Visibility` of a mask (B, L), or (B, Q, L) where queries differ.

    Queries without a visible key attend to all keys evenly.
    """
    mask = mask[:, None, None] if mask.dim() == 2 else mask[:, None]
    # The lowest number, not minus infinity: a softmax over hidden keys only is then uniform.
    attention_bias = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    return attention_bias, mask.to(dtype) / mask.sum(-1, keepdim=True).clamp(min=1)


class TwoProjections(nn.Module):
    """GroupNorm(CELU(W x + b)) with two sets of weights, as one product; a group is one head of one row."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, 2 * d_model)
        self.matrices_in = {"linear": 2}
        self.norm = nn.GroupNorm(2 * n_heads, 2 * d_model)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, D) to (B, H, T, d_k) each."""
        normed = self.norm(F.celu(self.linear(x.flatten(0, 1)), ALPHA)).view(*x.shape[:2], -1)
        first, second = split_heads(normed, self.norm.num_groups).chunk(2, 1)
        return first, second


class XLinearAttention(nn.Module):
    """v1 * (sum_j b_j v2_j) * c, with weights b over keys and c over channels, both from q * k_j; no output matrix.

    With J_j = dropout(ReLU(W_J (q * k_j))), a head's b = softmax_j(w_b J_j) and c = sigmoid(W_c mean_j J_j). `query`
    gives q and v1, `memory` k and v2. W_J, w_b and W_c are those of all heads.

    Args:
        d_attention: width of J; half of a head's width if not given.
        dropout: rate on J.
    """

    def __init__(self, d_model: int, n_heads: int, d_attention: int | None = None, dropout: float = 0.1) -> None:
        super().__init__()
        width = head_width(d_model, n_heads)
        d_attention = d_attention or max(width // 2, 1)
        self.query = TwoProjections(d_model, n_heads)
        self.memory = TwoProjections(d_model, n_heads)
        self.joint = nn.Linear(width, d_attention)
        self.spatial = nn.Linear(d_attention, 1)
        self.channel = nn.Linear(d_attention, width)
        self.dropout = nn.Dropout(dropout)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, L, d_k) of a memory (B, L, D), which do not depend on the query."""
        projected: tuple[Tensor, Tensor] = self.memory(memory)
        return projected

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, visible: Visibility | None = None) -> Tensor:
        """Attend: (B * n, T, D), as the queries.

        Args:
            queries: (B * n, T, D); the n rows of an image are adjacent and share its keys.
            keys, values: from `project`.
            visible: see `visibility`; of B images or of one for all, with Q of n * T or 1. All keys if not given.
        """
        rows = queries.reshape(keys.shape[0], -1, queries.shape[-1])
        query, query_values = self.query(rows)  # q, v1
        products = query[:, :, :, None] * keys[:, :, None]
        joint = self.dropout(self.joint(products).relu())
        scores = self.spatial(joint).squeeze(-1)
        if visible is None:
            mean = joint.mean(-2)
        else:
            attention_bias, share = visible
            scores = scores + attention_bias
            mean = (joint * share[..., None]).sum(-2)
        weights = scores.softmax(-1).to(values.dtype)
        gate = self.channel(mean).sigmoid()
        attended: Tensor = query_values * (weights @ values) * gate
        return attended.transpose(1, 2).reshape(queries.shape)


@dataclass(frozen=True, slots=True)
class XLinearDropouts:
    """Dropout rates.

    Attributes:
        branch: after each attention, and in a feed-forward.
        attention: on the bilinear products.
        fusion: where a vector is fused.
    """

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
        self.build_feed_forward(d_model, d_ff, nn.LayerNorm)

    def forward(self, vector: Tensor, x: Tensor, visible: Visibility) -> tuple[Tensor, Tensor]:
        """The global vector (B, D) and regions (B, L, D) to the same."""
        vector = self.dropout(self.attention(vector[:, None], *self.attention.project(x), visible))
        return vector[:, 0], self.feed_forward_branch(self.fusion(x, self.fusion.project(vector)))


class XLinearEncoder(nn.Module):
    """Layers over regions and a global vector g, which starts as their mean g_0; it ends as norm(W [g_0; ..; g_N])."""

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

    def forward(self, x: Tensor, mask: Tensor, visible: Visibility) -> tuple[Tensor, Tensor]:
        """Regions (B, L, D), their mask (B, L) and its `visibility`, to regions and the global vector (B, D)."""
        vectors = [mean_of_valid(x.masked_fill(~mask[..., None], 0.0), mask)]
        for layer in self.layers:
            vector, x = layer(vectors[-1], x, visible)
            vectors.append(vector)
        return x, self.norm(self.output(torch.cat(vectors, -1)))
