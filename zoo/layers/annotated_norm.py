"""Layer normalisation as in "The Annotated Transformer" (Rush 2018), which the code of older captioners uses."""

from typing import Any

import torch
from torch import Tensor, nn

from zoo.fast.looped import Collect, Factors, Looped

EPSILON = 1e-6


class AnnotatedNorm(Looped):
    """gain * (x - mean) / (std + eps) + shift, with the unbiased deviation and eps (`EPSILON`) outside the root.

    `nn.LayerNorm` divides by the root of the biased variance plus eps. Half-precision input is normalised in float32.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.shift = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        x = x.to(self.gain.dtype)
        if not torch.is_grad_enabled():
            return _norm(x, self.gain, self.shift)[0]
        end = self.shared("end", lambda: _Affine(self.gain, self.shift))
        normed: Tensor = _Norm.apply(x, self.gain.detach(), self.shift.detach(), end.end, end.factors)
        return normed


def _norm(x: Tensor, gain: Tensor, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and before gain and shift; and the deviation."""
    deviation, mean = torch.std_mean(x, -1, keepdim=True)
    standard = (x - mean) / (deviation + EPSILON)
    return torch.addcmul(shift, gain, standard), standard, deviation


class _Affine:
    """Gain and shift, with one gradient for all positions of a loop."""

    def __init__(self, gain: Tensor, shift: Tensor) -> None:
        self.factors: Factors = []
        self.end: Tensor = Collect.apply(gain, shift, self.factors, _of_affine)


def _of_affine(standards: Tensor, gradients: Tensor, _: bool) -> tuple[Tensor, Tensor]:
    width = gradients.shape[-1]
    return (gradients * standards).view(-1, width).sum(0), gradients.reshape(-1, width).sum(0)


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
        end: Tensor,  # noqa: ARG004  # makes the node of gain and shift come after this one
        factors: Factors,
    ) -> Tensor:
        normed, standard, deviation = _norm(x, gain, shift)
        ctx.save_for_backward(standard, deviation, gain)
        ctx.factors = factors
        return normed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of `x`; as torch has it, the deviation of equal numbers has a gradient of zero."""
        standard, deviation, gain = ctx.saved_tensors
        ctx.factors.append((standard, gradient))
        gradient = gradient * gain
        along = (gradient * standard).sum(-1, keepdim=True)  # zero for equal numbers
        along = along / deviation.clamp(min=torch.finfo(deviation.dtype).tiny)
        across = (gradient - gradient.mean(-1, keepdim=True)) / (deviation + EPSILON)
        to_x = torch.addcmul(across, standard, along, value=-1 / max(standard.shape[-1] - 1, 1))
        return to_x, None, None, None, None
