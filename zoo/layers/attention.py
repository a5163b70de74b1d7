"""Multi-head attention (Vaswani et al. 2017, section 3.2) with keys shared by all captions or beams of an image."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.errors import ZooError
from zoo.layers.cache import Cache, append, widen
from zoo.precision import product_type

_FUSED: ContextVar[dict[tuple[int, ...], tuple[Tensor, Tensor]] | None] = ContextVar("fused", default=None)
"""The results of `fuse_linears` by the identities of its layers, within `cache_fused_linears`."""


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, T, D) to (B, H, T, D / H)."""
    return x.view(x.shape[0], x.shape[1], n_heads, -1).transpose(1, 2)


def head_width(d_model: int, n_heads: int) -> int:
    """D / H; ZooError where D is not a multiple of H."""
    if d_model % n_heads:
        raise ZooError(f"d_model {d_model} is not a multiple of n_heads {n_heads}")
    return d_model // n_heads


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, dropout: float = 0.0, bias: Tensor | None = None
) -> Tensor:
    """softmax(Q K^T / sqrt(d_k) + bias) V (B, H, T, d_k), with dropout on the probabilities.

    Args:
        queries: (B, H, T, d_k).
        keys, values: (B, H, L, d_k).
        mask: (B, L), or (B, T, L) where queries differ; true where a key is visible. A query without visible keys
            attends to all of them evenly, except for the bias. Or the result of `mask_to_bias`, then without a `bias`.
        bias: (B, H, T, L), added to the scores.
    """
    if mask is not None and mask.dtype == torch.bool:
        mask = mask[:, None, None] if mask.dim() == 2 else mask[:, None]
        sees_nothing = ~mask.any(-1, keepdim=True)
        queries = queries.masked_fill(sees_nothing, 0.0)
        mask = mask | sees_nothing
    elif mask is not None and dropout:  # the layout affects rounding: use that of the branch above
        queries = queries.contiguous()
    if bias is not None:
        bias = bias.to(queries.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    return F.scaled_dot_product_attention(queries, keys, values, mask, dropout)


def mask_to_bias(mask: Tensor, keys: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Convert a mask to an attention bias, once for many queries of the same keys.

    Args:
        mask: (B, L), true where a key is visible.
        keys: (B, H, L, d_k), of one layer or of several.

    Returns:
        The attention bias (B, 1, 1, L), and the keys. Images without a visible key get zero keys and no bias, so that
        their queries attend to all keys evenly, as in `attend`.
    """
    sees_something = mask.any(-1)[:, None, None, None]
    hidden = mask[:, None, None] != sees_something
    attention_bias = torch.zeros_like(hidden, dtype=keys[0].dtype).masked_fill_(hidden, -torch.inf)
    return attention_bias, [torch.where(sees_something, layer_keys, 0.0) for layer_keys in keys]


def fuse_linears(*layers: nn.Linear | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Weight and bias of one linear layer that computes several layers of the same input side by side.

    A layer may be given as its weight and bias. The backward pass of three fused layers takes half as many kernels.
    """
    cache = _FUSED.get()
    if cache is None or not all(isinstance(layer, nn.Linear) for layer in layers):
        return _concatenate(layers)
    key = tuple(id(layer) for layer in layers)
    if key not in cache:
        weight, bias = _concatenate(layers)
        cache[key] = weight.to(product_type(weight)), bias.to(product_type(bias))
    return cache[key]


@contextmanager
def cache_fused_linears() -> Iterator[None]:
    """Compute each result of `fuse_linears` once within this context, where neither weights nor autocast may change."""
    token = _FUSED.set({})
    try:
        yield
    finally:
        _FUSED.reset(token)


def _concatenate(layers: Sequence[nn.Linear | tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    parts = [(layer.weight, layer.bias) if isinstance(layer, nn.Linear) else layer for layer in layers]
    return torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts])


class MultiHeadAttention(nn.Module):
    """softmax(Q K^T / sqrt(d_k)) V over `n_heads` heads.

    Args:
        dropout: rate on the probabilities; None for no dropout module, so that `Captioner.set_dropout` cannot set one.
        gate: replaces W_O: maps the concatenated heads and the queries, both (B, T, D), to the output; see
            `zoo.layers.aoa`.
    """

    def __init__(
        self, d_model: int, n_heads: int, *, dropout: float | None = None, gate: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.d_head = head_width(d_model, n_heads)
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        if gate is None:
            self.output = nn.Linear(d_model, d_model)
        self.gate = gate
        self.dropout = nn.Dropout(dropout) if dropout is not None else None

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, L, d_k) of a memory (B, L, D)."""
        return self._heads(self.key(memory)), self._heads(self.value(memory))

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend: (B * n, T, D), as the queries.

        Args:
            queries: (B * n, T, D); the n rows of an image are adjacent and share its keys.
            keys, values: (B, H, L, d_k), from `project`.
            mask: (B, L), or (B, n * T, L) where queries differ; true where a key is visible. Or of `mask_to_bias`.
        """
        heads = self._heads(self.query(queries).view(keys.shape[0], -1, queries.shape[-1]))
        return self._output(attend(heads, keys, values, mask, self._rate()), queries)

    def project_all(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (B, H, T, d_k) of one input (B, T, D)."""
        layers = (self.query, self.key, self.value)
        if torch.is_grad_enabled():
            queries, keys, values = F.linear(x, *fuse_linears(*layers)).chunk(3, -1)
        else:
            queries, keys, values = (layer(x) for layer in layers)
        return self._heads(queries), self._heads(keys), self._heads(values)

    def _rate(self) -> float:
        return self.dropout.p if self.dropout is not None and self.training else 0.0

    def _heads(self, x: Tensor) -> Tensor:
        return split_heads(x, self.n_heads)

    def _output(self, heads: Tensor, queries: Tensor) -> Tensor:
        """The output, in the shape of `queries`, from the heads' results (B, H, T, d_k)."""
        concatenated = heads.transpose(1, 2).reshape(queries.shape)
        output: Tensor = self.output(concatenated) if self.gate is None else self.gate(concatenated, queries)
        return output


class SelfAttention(MultiHeadAttention):
    """Self-attention; `causal` hides later positions."""

    def __init__(
        self, d_model: int, n_heads: int, causal: bool, *, dropout: float | None = None, gate: nn.Module | None = None
    ) -> None:
        super().__init__(d_model, n_heads, dropout=dropout, gate=gate)
        self.causal = causal

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """(B, T, D) to (B, T, D); `mask` (B, T) is true at visible positions, of no causal mixer."""
        heads, keys, values = self.project_all(x)
        if self.causal:
            attended = F.scaled_dot_product_attention(heads, keys, values, None, self._rate(), is_causal=True)
        else:
            attended = attend(heads, keys, values, mask, self._rate())
        return self._output(attended, x)

    def start(self, like: Tensor) -> Cache:
        """The cache before the first position, for the batch size, device and type of `like` (B, ..., D)."""
        # Keys and values in one tensor, which is concatenated and reordered in half the time of two.
        shape = (like.shape[0], 2 * self.n_heads, 0, self.d_head)
        return {"keys_values": like.new_zeros(shape, dtype=product_type(like))}

    def widen(self, caches: Cache) -> Cache:
        """The cache, of one layer or several, extended by one position."""
        return {"keys_values": widen(caches["keys_values"])}

    def projection(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of one linear layer for queries, keys and values."""
        weight, bias = (part.to(product_type(part)) for part in fuse_linears(self.query, self.key, self.value))
        return weight, bias

    def step(self, x: Tensor, cache: Cache, projection: tuple[Tensor, ...]) -> tuple[Tensor, Cache]:
        """One position: x (R, 1, D) with the cache of R rows, after `widen`, and the result of `projection`."""
        width = x.shape[-1]
        queries, new = torch.split(F.linear(x, *projection), [width, 2 * width], -1)
        keys_values = append(cache["keys_values"], split_heads(new, 2 * self.n_heads))
        keys, values = keys_values.chunk(2, 1)
        attended = F.scaled_dot_product_attention(self._heads(queries).to(keys.dtype), keys, values, None, self._rate())
        return self._output(attended, x), {"keys_values": keys_values}
