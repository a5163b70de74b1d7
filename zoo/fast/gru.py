"""One position of torch's GRU with its gradient written out, for `zoo.models.cgru`."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.fast.looped import Factors

_sigmoid_backward, _tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


class GRUStep(torch.autograd.Function):
    """One position of a GRU with its gradient written out, in half of the kernels that those of its parts take."""

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
        recurrent = F.linear(state, weight, bias)
        gates = [2 * state.shape[-1], state.shape[-1]]
        (gates_in, new_in), (gates_again, new) = torch.split(projected, gates, -1), torch.split(recurrent, gates, -1)
        both = (gates_in + gates_again).sigmoid()
        reset, keep = both.chunk(2, -1)
        candidate = torch.addcmul(new_in, reset, new).tanh()
        ctx.save_for_backward(both, candidate, recurrent, state, weight)
        ctx.factors = factors
        return torch.lerp(candidate, state, keep)

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
