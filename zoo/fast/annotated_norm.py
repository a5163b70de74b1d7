"""The normalisation of `zoo.layers.annotated_norm` with its gradient written out."""

from typing import Any

import torch
from torch import Tensor

from zoo.fast.looped import Collect, Factors

EPSILON = 1e-6


class Affine:
    """Gain and shift, with one gradient for all positions of a loop."""

    def __init__(self, gain: Tensor, shift: Tensor) -> None:
        self.factors: Factors = []
        self.end: Tensor = Collect.apply(gain, shift, self.factors, _of_affine)


def _of_affine(standards: Tensor, gradients: Tensor, _: bool) -> tuple[Tensor, Tensor]:
    width = gradients.shape[-1]
    return (gradients * standards).view(-1, width).sum(0), gradients.reshape(-1, width).sum(0)


class NormStep(torch.autograd.Function):
    """`AnnotatedNorm` with its gradient written out, in half of the kernels that those of its parts take.

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
        deviation, mean = torch.std_mean(x, -1, keepdim=True)
        standard = (x - mean) / (deviation + EPSILON)
        ctx.save_for_backward(standard, deviation, gain)
        ctx.factors = factors
        return torch.addcmul(shift, gain, standard)

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
