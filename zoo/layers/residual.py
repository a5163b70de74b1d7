"""Encoder and decoder layers with any token mixer, and the output of a stack of them.

A mixer is a `SelfAttention`, a `StaticExpansion`, a `DynamicExpansion` or another module with their interface; each
residual branch is x + dropout(f(norm(x))), or with `post_norm` norm(x + dropout(f(x))).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.attention import MultiHeadAttention, SelfAttention
from zoo.layers.cache import Cache
from zoo.layers.expansion import DynamicExpansion


class FeedForward(nn.Module):
    """W_2 dropout(relu(W_1 x + b_1)) + b_2 at each position; Vaswani et al. 2017, equation 2."""

    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        y: Tensor = self.outer(self.dropout(F.relu(self.inner(x))))
        return y


NormFactory = Callable[[int], nn.Module]


class ResidualLayer(nn.Module):
    """The residual connections of a layer, with an optional feed-forward branch at the end."""

    def __init__(self, dropout: float, post_norm: bool) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.post_norm = post_norm
        self.feed_forward: FeedForward | None = None

    def branch_input(self, x: Tensor, norm: nn.Module) -> Tensor:
        """The input of a branch: norm(x), or x itself with `post_norm`."""
        branch_input: Tensor = x if self.post_norm else norm(x)
        return branch_input

    def add_branch(self, x: Tensor, branch: Tensor, norm: nn.Module) -> Tensor:
        """The residual stream after a branch: x + dropout(branch), normalised with `post_norm`."""
        x = x + self.dropout(branch)
        return norm(x) if self.post_norm else x

    def build_feed_forward(self, d_model: int, d_ff: int | None, norm: NormFactory) -> None:
        """Create the feed-forward branch, unless `d_ff` is None."""
        if d_ff is not None:
            self.feed_forward_norm = norm(d_model)
            self.feed_forward = FeedForward(d_model, d_ff, self.dropout.p)

    def feed_forward_branch(self, x: Tensor) -> Tensor:
        """The residual stream after the feed-forward branch, if there is one."""
        if self.feed_forward is None:
            return x
        branch = self.feed_forward(self.branch_input(x, self.feed_forward_norm))
        return self.add_branch(x, branch, self.feed_forward_norm)


class EncoderLayer(ResidualLayer):
    """An encoder layer: mixer, then feed-forward unless `d_ff` is None."""

    def __init__(
        self,
        mixer: nn.Module,
        d_model: int,
        d_ff: int | None,
        dropout: float,
        *,
        norm: NormFactory = nn.LayerNorm,
        post_norm: bool = False,
    ) -> None:
        super().__init__(dropout, post_norm)
        self.mixer_norm = norm(d_model)
        self.mixer = mixer
        self.build_feed_forward(d_model, d_ff, norm)

    def forward(self, x: Tensor, mask: Tensor | None = None, *context: Tensor) -> Tensor:
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at valid tokens, `context` is passed to the mixer."""
        mixed = self.mixer(self.branch_input(x, self.mixer_norm), mask, *context)
        return self.feed_forward_branch(self.add_branch(x, mixed, self.mixer_norm))


def attention_mixers(layers: nn.Module) -> list[nn.Module]:
    """The mixers of encoder layers that are attention, which have heads, and not expansion."""
    mixers = [layer.mixer for layer in layers.children() if isinstance(layer, EncoderLayer)]
    return [mixer for mixer in mixers if hasattr(mixer, "n_heads")]


class DecoderLayer(ResidualLayer):
    """A decoder layer: mixer, cross-attention, then feed-forward unless `d_ff` is None."""

    def __init__(
        self,
        mixer: SelfAttention | DynamicExpansion,
        cross_attention: MultiHeadAttention,
        d_model: int,
        d_ff: int | None,
        dropout: float,
        *,
        norm: NormFactory = nn.LayerNorm,
        post_norm: bool = False,
    ) -> None:
        super().__init__(dropout, post_norm)
        self.mixer_norm = norm(d_model)
        self.mixer = mixer
        self.cross_norm = norm(d_model)
        self.cross_attention = cross_attention
        self.build_feed_forward(d_model, d_ff, norm)

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, memory_mask: Tensor | None = None, *context: Tensor
    ) -> Tensor:
        """(B * n, T, D) to the same.

        Args:
            keys, values: from `cross_attention.project`.
            context: further arguments of `cross_attention`.
        """
        mixed = self.mixer(self.branch_input(x, self.mixer_norm))
        return self.after_mixer(x, mixed, keys, values, memory_mask, *context)

    def step(
        self, x: Tensor, keys: Tensor, values: Tensor, memory_mask: Tensor, cache: Cache, projection: tuple[Tensor, ...]
    ) -> tuple[Tensor, Cache]:
        """One position: x (R, 1, D) with the cache of R rows and the `projection` of the mixer."""
        mixed, cache = self.mixer.step(self.branch_input(x, self.mixer_norm), cache, projection)
        return self.after_mixer(x, mixed, keys, values, memory_mask), cache

    def after_mixer(
        self, x: Tensor, mixed: Tensor, keys: Tensor, values: Tensor, memory_mask: Tensor | None, *context: Tensor
    ) -> Tensor:
        """The output of the layer, from its input and the output of its mixer."""
        x = self.add_branch(x, mixed, self.mixer_norm)
        x = self.cross_attention_branch(x, keys, values, memory_mask, *context)
        return self.feed_forward_branch(x)

    def cross_attention_branch(
        self, x: Tensor, keys: Tensor, values: Tensor, memory_mask: Tensor | None, *context: Tensor
    ) -> Tensor:
        """The residual stream (B * n, T, D) after cross-attention."""
        attended = self.cross_attention(self.branch_input(x, self.cross_norm), keys, values, memory_mask, *context)
        return self.add_branch(x, attended, self.cross_norm)


class StackOutput(nn.Module):
    """The output of a stack: norm(x_N), or with `reduce` norm(x_N + dropout(W [x_1; ...; x_N])) over all its layers."""

    def __init__(
        self, d_model: int, n_layers: int, dropout: float, reduce: bool, *, norm: NormFactory = nn.LayerNorm
    ) -> None:
        super().__init__()
        self.reduce = nn.Linear(n_layers * d_model, d_model) if reduce else None
        self.norm = norm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """The outputs (..., D) of all layers, first to last, to (..., D)."""
        x = layers[-1]
        if self.reduce is not None:
            x = x + self.dropout(self.reduce(torch.cat(tuple(layers), -1)))
        normed: Tensor = self.norm(x)
        return normed
