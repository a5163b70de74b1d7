"""Caches of the positions that a decoder has processed, of all its layers in one tensor.

A step without gradients extends the tensor once, and every layer writes its new entries into it. With gradients nothing
is written in place: every layer concatenates its own part, and the parts are stacked.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

Cache = dict[str, Tensor]  # tensors of one layer, (R, S, ...) for R beams, or of N layers, (R, S, N, ...)
_LAYERS = 2  # rows and streams, or heads, stay next to each other for products of all of them


def for_layers(cache: Cache, count: int) -> Cache:
    """The cache of `count` layers, given the empty cache of one."""
    return {name: torch.stack([tensor] * count, _LAYERS) for name, tensor in cache.items()}


def of_layer(caches: Cache, index: int) -> Cache:
    """The cache of one layer, a view of that of all layers."""
    return {name: tensor.select(_LAYERS, index) for name, tensor in caches.items()}


def stack_caches(widened: Cache, layers: Sequence[Cache]) -> Cache:
    """The cache of all layers after a step: with gradients a stack of the `layers`' caches, else `widened` itself."""
    if not torch.is_grad_enabled():
        return widened
    return {name: torch.stack([layer[name] for layer in layers], _LAYERS) for name in widened}


def widen(past: Tensor) -> Tensor:
    """Extend `past` (..., T, D) by one position, not yet filled; with gradients, return it unchanged."""
    if torch.is_grad_enabled():
        return past
    *batch_shape, length, width = past.shape
    wider = past.new_empty(*batch_shape, length + 1, width)
    wider[..., :length, :].copy_(past)
    return wider


def widen_pairs(past: Tensor) -> Tensor:
    """Extend `past` (..., T, T, D) by zeros for the pairs of one position; with gradients, return it unchanged."""
    return past if torch.is_grad_enabled() else F.pad(past, (0, 0, 0, 1, 0, 1))


def append(past: Tensor, new: Tensor) -> Tensor:
    """Add the entry of the next position (..., 1, D) to the result of `widen`."""
    if torch.is_grad_enabled():
        return torch.cat((past, new.to(past.dtype)), -2)
    past[..., -1:, :].copy_(new)
    return past
