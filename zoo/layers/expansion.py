"""Common parts of static and dynamic expansion (Hu, Cavicchioli, Capotondi, ExpansionNet v2, arXiv:2208.06551).

Both layers expand a sequence to another length and contract it back, in two streams: stream a weighs by relu(Z),
stream b by relu(-Z), where Z (B, N, L) scores N expanded elements against L positions. Here Z is one tensor, never
transposed in memory: the forward step (equation 3 of the paper) normalises it over L, the backward step
(equation 5) over N. The paper's stream 1 is stream b of the authors' code and of this module; its later version
misprints R_bw for R_fw in both equations. Both streams are computed side by side, first a, then b.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPSILON = 1e-9


def full_precision(scores: Tensor) -> Tensor:
    """At least float32: in half precision EPSILON is 0 and an all-zero row would give 0 / 0."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def normalise(weights: Tensor, dim: int | tuple[int, ...], groups: Sequence[int] = (), scale: float = 1.0) -> Tensor:
    """psi: divide by the sum along `dim`; zeros stay zeros.

    `scale` is what weights were to be divided by before: only EPSILON notices that they are not.

    With `groups`, lengths that add up to the last dimension, `dim` is the last: each group is normalised by itself and
    divided by their number, so that they average.
    """
    if torch.is_grad_enabled() and weights.requires_grad and not torch.compiler.is_compiling():
        normalised: Tensor = _Normalise.apply(weights, dim, groups, scale)
        return normalised
    return weights / _totals(weights, dim, groups, scale)


def _sums(weights: Tensor, dim: int | tuple[int, ...], groups: Sequence[int]) -> Tensor:
    """The sums by which weights are normalised, one for each weight or broadcast to them."""
    if not groups:
        return weights.sum(dim, keepdim=True)
    parts = torch.split(weights, list(groups), -1)
    return torch.cat([part.sum(-1, keepdim=True).expand_as(part) for part in parts], -1)


def _totals(weights: Tensor, dim: int | tuple[int, ...], groups: Sequence[int], scale: float) -> Tensor:
    """What weights are divided by: their sums, never 0."""
    sums, count = _sums(weights, dim, groups), max(len(groups), 1)
    return torch.rsub(sums, count * scale * EPSILON, alpha=-count)  # count * (sums + scale * EPSILON)


class _Normalise(torch.autograd.Function):
    """`normalise` with the gradient (g - sum(g * y)) / total, in half of the kernels that the quotient's take."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, dim: int | tuple[int, ...], groups: Sequence[int], scale: float) -> Tensor:
        """See `normalise`."""
        totals = _totals(weights, dim, groups, scale)
        normalised = weights / totals
        ctx.save_for_backward(normalised, totals)
        ctx.dim, ctx.groups = dim, groups
        return normalised

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """The gradient of `weights`."""
        normalised, totals = ctx.saved_tensors
        sums = _sums(gradient * normalised, ctx.dim, ctx.groups)
        return torch.sub(gradient, sums, alpha=max(len(ctx.groups), 1)) / totals, None, None, None


class GatedStreams(nn.Module):
    """The projections of the two streams' values and of the gate between their outputs."""

    signs: Tensor
    bounds: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.value_a = nn.Linear(d_model, d_model)
        self.value_b = nn.Linear(d_model, d_model)
        self.selector = nn.Linear(d_model, d_model)
        self.register_buffer("signs", torch.tensor([1.0, -1.0]), persistent=False)
        bounds = torch.tensor([[0.0, -torch.inf], [torch.inf, 0.0]])
        self.register_buffer("bounds", bounds.view(2, 2, 1, 1, 1), persistent=False)

    def weigh(self, scores: Tensor) -> Tensor:
        """relu(scores) and relu(-scores), (...) to (2, ...)."""
        scores = full_precision(scores)
        if torch.is_grad_enabled() and scores.requires_grad and not torch.compiler.is_compiling():
            weights: Tensor = _Weigh.apply(scores)
            return weights
        return F.relu(scores * self.signs.view(2, *[1] * scores.dim()))


class _Weigh(torch.autograd.Function):
    """`GatedStreams.weigh` in half of the passes over the scores, with half of the kernels of its gradient."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        """See `GatedStreams.weigh`."""
        both = scores.new_empty(2, *scores.shape)
        torch.clamp_min(scores, 0.0, out=both[0])
        torch.sub(both[0], scores, out=both[1])
        ctx.save_for_backward(both)
        return both

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The gradient of the scores."""
        (both,) = ctx.saved_tensors
        to_a, to_b = torch.ops.aten.threshold_backward(gradient, both, 0).unbind()
        to_scores: Tensor = to_a - to_b
        return to_scores


def side_by_side(values: Tensor) -> Tensor:
    """The values of both streams (B, L, 2 * D), one beside the other, as (2 * B, L, D)."""
    return values.view(*values.shape[:2], 2, -1).permute(2, 0, 1, 3).flatten(0, 1)


def gate(selector: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """sigmoid(selector) * a + (1 - sigmoid(selector)) * b, elementwise."""
    return torch.lerp(b, a, torch.sigmoid(selector).to(a.dtype))


def gate_streams(selector: Tensor, streams: Tensor) -> Tensor:
    """`gate` of (B, L, D) between both streams (2 * B, L, D)."""
    if torch.is_grad_enabled() and streams.requires_grad and not torch.compiler.is_compiling():
        gated: Tensor = _GateStreams.apply(selector, streams)
        return gated
    return gate(selector, *streams.chunk(2))


class _GateStreams(torch.autograd.Function):
    """`gate_streams` with one gradient for both streams, in half of the kernels that the interpolation's takes."""

    @staticmethod
    def forward(ctx: Any, selector: Tensor, streams: Tensor) -> Tensor:
        """See `gate_streams`."""
        a, b = streams.chunk(2)
        share = torch.sigmoid(selector)
        ctx.save_for_backward(share, streams)
        return torch.lerp(b, a, share.to(a.dtype))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of selector and streams."""
        share, streams = ctx.saved_tensors
        a, b = streams.chunk(2)
        both = torch.empty_like(streams, memory_format=torch.contiguous_format)
        to_a, to_b = both.chunk(2)
        torch.mul(gradient, share.to(gradient.dtype), out=to_a)
        torch.sub(gradient, to_a, out=to_b)
        to_share = ((a - b) * gradient).to(share.dtype)
        return torch.ops.aten.sigmoid_backward(to_share, share), both
