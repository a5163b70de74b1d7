"""X-linear attention: bilinear products of query and keys, from which spatial and channel weights follow.

Y. Pan, T. Yao, Y. Li, T. Mei: "X-Linear Attention Networks for Image Captioning", CVPR 2020, section 3.1. As in the
authors' code (https://github.com/JDAI-CV/image-captioning, no licence stated), which has CELU and group normalisation
where the paper has ELU alone.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.errors import ZooError
from zoo.layers.attention import split_heads
from zoo.layers.looped import Looped, LoopedLinear, SharedMatrix

ALPHA = 1.3
"""Of every CELU."""


Seen = tuple[Tensor, Tensor]
"""The keys that queries see: what is added to their scores, and their weights in a mean; each (B, 1, Q or 1, L)."""


def seen_where(mask: Tensor, dtype: torch.dtype) -> Seen:
    """What queries see by a mask (B, L), or (B, Q, L) where they differ; without any key, all keys alike."""
    mask = mask[:, None, None] if mask.dim() == 2 else mask[:, None]
    # The lowest number, not minus infinity: a softmax over hidden keys alone is then even.
    barrier = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    return barrier, mask.to(dtype) / mask.sum(-1, keepdim=True).clamp(min=1)


class TwoProjections(nn.Module):
    """GroupNorm(CELU(W x + b)) twice, as one product: every head of every row is normalised by itself."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.linear = LoopedLinear(d_model, 2 * d_model)
        self.norm = nn.GroupNorm(2 * n_heads, 2 * d_model)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, D) to (B, H, T, d_k) each."""
        normed = self.norm(F.celu(self.linear(x.flatten(0, 1)), ALPHA)).view(*x.shape[:2], -1)
        first, second = split_heads(normed, self.norm.num_groups).chunk(2, 1)
        return first, second


class XLinearAttention(Looped):
    """v1 * (sum_j b_j v2_j) * c, with weights b over keys and c over channels, both from q * k_j; no output matrix.

    With J_j = dropout(ReLU(W_J (q * k_j))), a head's b = softmax_j(w_b J_j) and c = sigmoid(W_c mean_j J_j). `query`
    gives q and v1, `memory` k and v2. W_J, w_b and W_c are those of all heads.

    Args:
        d_model, n_heads: sizes.
        d_attention: width of J; half of a head's if not given.
        dropout: rate on J.
    """

    def __init__(self, d_model: int, n_heads: int, d_attention: int | None = None, dropout: float = 0.1) -> None:
        super().__init__()
        if d_model % n_heads:
            raise ZooError(f"d_model {d_model} is not a multiple of n_heads {n_heads}")
        width = d_model // n_heads
        d_attention = d_attention or max(width // 2, 1)
        self.query, self.memory = TwoProjections(d_model, n_heads), TwoProjections(d_model, n_heads)
        self.joint = LoopedLinear(width, d_attention)
        self.spatial = LoopedLinear(d_attention, 1)
        self.channel = LoopedLinear(d_attention, width)
        self.dropout = nn.Dropout(dropout)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, L, d_k) of a memory (B, L, D), which do not depend on the query."""
        projected: tuple[Tensor, Tensor] = self.memory(memory)
        return projected

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, seen: Seen | None = None) -> Tensor:
        """Attend.

        Args:
            queries: (B * n, T, D); the n rows of an image are adjacent and share its keys.
            keys, values: from `project`.
            seen: see `seen_where`, of B images or of one for all, Q being n * T or 1; all keys if not given.

        Returns:
            (B * n, T, D).
        """
        rows = queries.reshape(keys.shape[0], -1, queries.shape[-1])
        query, own = self.query(rows)
        products = query[:, :, :, None] * keys[:, :, None]
        # Rows of matrices, since the gradients of a loop are collected in such.
        flat = self.dropout(self.joint(products.flatten(0, -2)).relu())
        joint, scores = flat.view(*products.shape[:-1], -1), self.spatial(flat).view(products.shape[:-1])
        if seen is None:
            mean = joint.mean(-2)
        else:
            barrier, share = seen
            scores = scores + barrier
            mean = (joint * share[..., None]).sum(-2)
        weights = scores.softmax(-1).to(values.dtype)
        gate = self.channel(mean.flatten(0, -2)).sigmoid().view(own.shape)
        summed = self.matrix("values", lambda: SharedMatrix(values.flatten(0, 1).transpose(1, 2)))
        attended: Tensor = own * summed(weights.flatten(0, 1)).view(own.shape) * gate
        return attended.transpose(1, 2).reshape(queries.shape)
