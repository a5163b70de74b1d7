"""Pre-norm encoder and decoder layers around any token mixer, and what ends a stack of them.

A mixer is a `SelfAttention`, a `StaticExpansion` or a `DynamicExpansion`; each residual branch is
x + dropout(f(norm(x))).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.layers.attention import Cache, MultiHeadAttention, SelfAttention
from zoo.layers.dynamic_expansion import DynamicExpansion
from zoo.layers.feed_forward import FeedForward
from zoo.layers.static_expansion import StaticExpansion


class EncoderLayer(nn.Module):
    """Mix the visual tokens, then feed forward."""

    def __init__(
        self, mixer: SelfAttention | StaticExpansion | DynamicExpansion, d_model: int, d_ff: int, dropout: float
    ) -> None:
        super().__init__()
        self.mixer_norm = nn.LayerNorm(d_model)
        self.mixer = mixer
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at valid tokens."""
        x = x + self.dropout(self.mixer(self.mixer_norm(x), mask))
        mixed: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return mixed


class DecoderLayer(nn.Module):
    """Mix the words so far, look at the image, then feed forward."""

    def __init__(
        self, mixer: SelfAttention | DynamicExpansion, d_model: int, d_ff: int, n_heads: int, dropout: float
    ) -> None:
        super().__init__()
        self.mixer_norm = nn.LayerNorm(d_model)
        self.mixer = mixer
        self.cross_norm = nn.LayerNorm(d_model)
        self.cross_attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, memory_mask: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """(B * n, T, D) to the same; keys and values of `cross_attention.project`, `mask` (B * n, T) of the words."""
        x = x + self.dropout(self.mixer(self.mixer_norm(x), mask))
        return self._look(x, keys, values, memory_mask)

    def step(
        self,
        x: Tensor,
        keys: Tensor,
        values: Tensor,
        memory_mask: Tensor,
        cache: Cache,
        projection: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Cache]:
        """One position: x (R, 1, D) with the mixer's cache of R rows and its `projection`."""
        mixed, cache = self.mixer.step(self.mixer_norm(x), cache, projection)
        return self._look(x + self.dropout(mixed), keys, values, memory_mask), cache

    def _look(self, x: Tensor, keys: Tensor, values: Tensor, memory_mask: Tensor | None) -> Tensor:
        x = x + self.dropout(self.cross_attention(self.cross_norm(x), keys, values, memory_mask))
        looked: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return looked


class StackOutput(nn.Module):
    """What leaves a stack: norm(x_N), or with `reduce` norm(x_N + dropout(W [x_1; ...; x_N])) over all its layers."""

    def __init__(self, d_model: int, n_layers: int, dropout: float, reduce: bool) -> None:
        super().__init__()
        self.reduce = nn.Linear(n_layers * d_model, d_model) if reduce else None
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """The outputs (..., D) of all layers, first to last, to (..., D)."""
        x = layers[-1]
        if self.reduce is not None:
            x = x + self.dropout(self.reduce(torch.cat(tuple(layers), -1)))
        normed: Tensor = self.norm(x)
        return normed
