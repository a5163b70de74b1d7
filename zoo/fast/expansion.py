"""Normalised weights, two streams and their gate, with gradients written out, for `zoo.layers.expansion`."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from zoo.fast.looped import product_type

EPSILON = 1e-9


def divide(weights: Tensor, totals: Tensor) -> Tensor:
    """The quotient, in the type of the products that follow: a cast would be a kernel of its own."""
    if (dtype := product_type(weights)) == weights.dtype:
        return weights / totals
    return torch.div(weights, totals, out=weights.new_empty(weights.shape, dtype=dtype))


def group_sums(weights: Tensor, dim: int | tuple[int, ...], groups: Sequence[int]) -> Tensor:
    """The sums by which weights are normalised, one for each weight or broadcast to them."""
    if not groups:
        return weights.sum(dim, keepdim=True)
    parts = torch.split(weights, list(groups), -1)
    return torch.cat([part.sum(-1, keepdim=True).expand_as(part) for part in parts], -1)


def group_totals(weights: Tensor, dim: int | tuple[int, ...], groups: Sequence[int], scale: float) -> Tensor:
    """What weights are divided by: their sums, never 0."""
    sums, count = group_sums(weights, dim, groups), max(len(groups), 1)
    return torch.rsub(sums, count * scale * EPSILON, alpha=-count)  # count * (sums + scale * EPSILON)


class Normalise(torch.autograd.Function):
    """`normalise` with the gradient (g - sum(g * y)) / total, in half of the kernels that the quotient's take."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, dim: int | tuple[int, ...], groups: Sequence[int], scale: float) -> Tensor:
        totals = group_totals(weights, dim, groups, scale)
        normalised = divide(weights, totals)
        ctx.save_for_backward(normalised, totals)
        ctx.dim, ctx.groups = dim, groups
        return normalised

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        normalised, totals = ctx.saved_tensors
        sums = group_sums(gradient * normalised, ctx.dim, ctx.groups)
        return torch.sub(gradient, sums, alpha=max(len(ctx.groups), 1)) / totals, None, None, None


class Weigh(torch.autograd.Function):
    """`GatedStreams.weigh` in half of the passes over the scores, with half of the kernels of its gradient."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, zero: Tensor) -> Tensor:
        """See `GatedStreams.weigh`; what is in half precision is widened on the way, without a kernel of its own."""
        ctx.dtype = scores.dtype
        both = scores.new_empty(2, *scores.shape, dtype=torch.promote_types(scores.dtype, torch.float32))
        torch.maximum(scores, zero, out=both[0])
        torch.sub(both[0], scores, out=both[1])
        ctx.save_for_backward(both)
        return both

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (both,) = ctx.saved_tensors
        to_a, to_b = torch.ops.aten.threshold_backward(gradient, both, 0).unbind()
        return torch.sub(to_a, to_b, out=to_a.new_empty(to_a.shape, dtype=ctx.dtype)), None


class GateStreams(torch.autograd.Function):
    """`gate_streams` with one gradient for both streams, in half of the kernels that the interpolation's takes."""

    @staticmethod
    def forward(ctx: Any, selector: Tensor, streams: Tensor) -> Tensor:
        a, b = streams.chunk(2)
        share = torch.sigmoid(selector)
        ctx.save_for_backward(share, streams)
        return torch.lerp(b, a, share.to(a.dtype))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        share, streams = ctx.saved_tensors
        a, b = streams.chunk(2)
        both = torch.empty_like(streams, memory_format=torch.contiguous_format)
        to_a, to_b = both.chunk(2)
        torch.mul(gradient, share.to(gradient.dtype), out=to_a)
        torch.sub(gradient, to_a, out=to_b)
        to_share = ((a - b) * gradient).to(share.dtype)
        return torch.ops.aten.sigmoid_backward(to_share, share), both
