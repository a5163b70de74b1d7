"""GRU cells whose inputs are projected for all positions of a caption in one product.

K. Cho et al.: "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation", EMNLP
2014, as torch has it: the reset gate multiplies the projected state, with a bias of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.looped import Factors, Looped, SharedMatrix

_sigmoid_backward, _tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


class GRUCell(nn.GRUCell, Looped):
    """torch's cell, in two parts: `project` of the inputs, which can serve many positions, and the update."""

    def project(self, x: Tensor) -> Tensor:
        """W_ih x + b_ih (..., 3 D), of the reset gate, the update gate and the candidate."""
        return self.matrix("input", lambda: SharedMatrix(self.weight_ih, self.bias_ih))(x)

    def forward(self, projected: Tensor, state: Tensor) -> Tensor:  # type: ignore[override]
        """The next state (..., D) from `project` of its input and the state."""
        matrix = self.matrix("recurrent", lambda: SharedMatrix(self.weight_hh, self.bias_hh))
        if self._shared is not None:
            weight, bias = self.weight_hh.detach(), self.bias_hh.detach()
            after: Tensor = _Read.apply(projected, state, weight, bias, matrix.end, matrix.factors)
            return after
        return _update(projected.to(state.dtype), matrix(state).to(state.dtype), state)[0]


def _update(projected: Tensor, recurrent: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The next state, the gates (..., 2 D), and the candidate (..., D)."""
    gates = [2 * state.shape[-1], state.shape[-1]]
    (gates_in, new_in), (gates_again, new) = torch.split(projected, gates, -1), torch.split(recurrent, gates, -1)
    both = (gates_in + gates_again).sigmoid()
    reset, keep = both.chunk(2, -1)
    candidate = torch.addcmul(new_in, reset, new).tanh()
    return torch.lerp(candidate, state, keep), both, candidate


class _Read(torch.autograd.Function):
    """`GRUCell.forward` with its gradient written out, in half of the kernels that those of its parts take."""

    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        state: Tensor,
        weight: Tensor,
        bias: Tensor,
        end: Tensor | None,  # noqa: ARG004  # makes the node of the weight's gradient come after this one
        factors: Factors,
    ) -> Tensor:
        """The next state."""
        recurrent = F.linear(state, weight, bias)
        after, both, candidate = _update(projected, recurrent, state)
        ctx.save_for_backward(both, candidate, recurrent, state, weight)
        ctx.factors = factors
        return after

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the projected input and the state."""
        both, candidate, recurrent, state, weight = ctx.saved_tensors
        width = state.shape[-1]
        reset, keep = both.chunk(2, -1)
        to_projected, to_recurrent = torch.empty_like(recurrent), torch.empty_like(recurrent)
        to_gates, to_new = to_projected[..., : 2 * width], to_projected[..., 2 * width :]
        to_state = gradient * keep
        _tanh_backward.grad_input(gradient - to_state, candidate, grad_input=to_new)
        torch.mul(to_new, recurrent[..., 2 * width :], out=to_gates[..., :width])
        torch.mul(gradient, state - candidate, out=to_gates[..., width:])
        _sigmoid_backward.grad_input(to_gates, both, grad_input=to_gates)
        torch.mul(to_new, reset, out=to_recurrent[..., 2 * width :])
        to_recurrent[..., : 2 * width] = to_gates
        ctx.factors.append((state.detach(), to_recurrent))
        return to_projected, torch.addmm(to_state, to_recurrent, weight), None, None, None, None
