"""Caches of the positions that a decoder has seen, those of all its layers in one tensor.

A step without gradients makes room in it once, and every layer writes what it adds. With gradients nothing is written
in place: every layer joins its own part, and the parts are stacked.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

Cache = dict[str, Tensor]  # tensors of one layer, (R, S, ...) for R beams, or of N layers, (R, S, N, ...)
_LAYERS = 2  # rows and streams, or heads, stay next to each other for products of all of them


def for_layers(cache: Cache, count: int) -> Cache:
    """The empty cache of one layer as that of `count` layers."""
    return {name: torch.stack([part] * count, _LAYERS) for name, part in cache.items()}


def of_layer(caches: Cache, index: int) -> Cache:
    """The part of one layer."""
    return {name: part.select(_LAYERS, index) for name, part in caches.items()}


def together(widened: Cache, layers: Sequence[Cache]) -> Cache:
    """The caches of all layers after a step, from those before it, see `widen`, and from what the layers return."""
    if not torch.is_grad_enabled():
        return widened
    return {name: torch.stack([layer[name] for layer in layers], _LAYERS) for name in widened}


def widen(past: Tensor) -> Tensor:
    """`past` (..., T, D) with room for one more position; itself with gradients."""
    if torch.is_grad_enabled():
        return past
    *others, length, width = past.shape
    wider = past.new_empty(*others, length + 1, width)
    wider[..., :length, :].copy_(past)
    return wider


def widen_pairs(past: Tensor) -> Tensor:
    """`past` (..., T, T, D) with zeros for the pairs of one more position; itself with gradients."""
    return past if torch.is_grad_enabled() else F.pad(past, (0, 0, 0, 1, 0, 1))


def append(past: Tensor, new: Tensor) -> Tensor:
    """What `widen` gives, with the entry of the next position (..., 1, D)."""
    if torch.is_grad_enabled():
        return torch.cat((past, new.to(past.dtype)), -2)
    past[..., -1:, :].copy_(new)
    return past
