"""Layer normalisation as in "The Annotated Transformer" (Rush 2018), which the code of older captioners uses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from zoo.layers.looped import Looped


class AnnotatedNorm(Looped):
    """gain * (x - mean) / (std + eps) + shift, with the unbiased deviation and `eps` outside the root.

    `nn.LayerNorm` divides by the root of the biased variance plus eps. Half-precision input is normalised in float32.
    """

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.shift = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        x = x.to(self.gain.dtype)
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return _norm(x, self.gain, self.shift, self.eps)[0]
        end = self.shared("end", lambda: _Affine(self.gain, self.shift))
        normed: Tensor = _Norm.apply(x, self.gain.detach(), self.shift.detach(), self.eps, end.end, end.factors)
        return normed


def _norm(x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and before gain and shift; and the deviation."""
    deviation, mean = torch.std_mean(x, -1, keepdim=True)
    standard = (x - mean) / (deviation + eps)
    return torch.addcmul(shift, gain, standard), standard, deviation


class _Affine:
    """Gain and shift, with one gradient for all positions of a loop."""

    def __init__(self, gain: Tensor, shift: Tensor) -> None:
        self.factors: list[tuple[Tensor, Tensor]] = []
        self.end: Tensor = _CollectAffine.apply(gain, shift, self.factors)


class _Norm(torch.autograd.Function):
    """`_norm` with its gradient written out, in half of the kernels that those of its parts take.

    With g the gradient times gain, y the result before gain and shift, s the deviation and D channels, that of x is
    (g - mean(g)) / (s + eps) - y sum(g y) / ((D - 1) s).
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain: Tensor,
        shift: Tensor,
        eps: float,
        end: Tensor,  # noqa: ARG004  # makes the node of gain and shift come after this one
        factors: list[tuple[Tensor, Tensor]],
    ) -> Tensor:
        """See `_norm`."""
        normed, standard, deviation = _norm(x, gain, shift, eps)
        ctx.save_for_backward(standard, deviation, gain)
        ctx.eps, ctx.factors = eps, factors
        return normed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of `x`; as torch has it, the deviation of equal numbers has a gradient of zero."""
        standard, deviation, gain = ctx.saved_tensors
        ctx.factors.append((gradient, standard))
        gradient = gradient * gain
        along = (gradient * standard).sum(-1, keepdim=True)  # zero for equal numbers
        along = along / deviation.clamp(min=torch.finfo(deviation.dtype).tiny)
        across = (gradient - gradient.mean(-1, keepdim=True)) / (deviation + ctx.eps)
        to_x = torch.addcmul(across, standard, along, value=-1 / max(standard.shape[-1] - 1, 1))
        return to_x, None, None, None, None, None


class _CollectAffine(torch.autograd.Function):
    """The node of the gradients of gain and shift, which all positions lead to."""

    @staticmethod
    def forward(ctx: Any, gain: Tensor, shift: Tensor, factors: list[tuple[Tensor, Tensor]]) -> Tensor:  # noqa: ARG004
        """An empty tensor for `_Norm`."""
        ctx.set_materialize_grads(False)
        ctx.factors = factors
        return gain.new_empty(0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        """The gradients of gain and shift, if any position had one."""
        if not ctx.factors:
            return None, None, None
        gradients, standards = (
            parts[0] if len(parts) == 1 else torch.cat(parts) for parts in zip(*ctx.factors, strict=True)
        )
        ctx.factors.clear()
        width = gradients.shape[-1]
        return (gradients * standards).view(-1, width).sum(0), gradients.reshape(-1, width).sum(0), None
