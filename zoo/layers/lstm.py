"""LSTM cells whose inputs are projected for all positions of a caption in one product.

S. Hochreiter, J. Schmidhuber: "Long Short-Term Memory", Neural Computation 1997; with maxout candidates as in
S. J. Rennie et al.: "Self-critical Sequence Training for Image Captioning", CVPR 2017, equations 1 to 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zoo.layers.looped import Factors, Looped, SharedMatrix

_sigmoid_backward, _tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


class LSTMCell(Looped):
    """c' = f c + i z, h' = o tanh(c'), with the gates i, f, o and the candidate z from input and past states.

    The candidate is tanh(z1), or with `maxout` max(z1, z2) without a tanh. Pre-activations are in the order
    [input | forget | output | z1 | z2], each R wide.

    Args:
        d_input: width of the input.
        d_hidden: R.
        d_past: width of the past hidden state, or of several joined.
        maxout: whether the candidate is the maxout form.
        bias: whether both projections have one.
    """

    def __init__(self, d_input: int, d_hidden: int, d_past: int, *, maxout: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.d_hidden, self.maxout, self.biased = d_hidden, maxout, bias
        width = (5 if maxout else 4) * d_hidden
        self.input = nn.Linear(d_input, width, bias)
        self.recurrent = nn.Linear(d_past, width, bias)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(d_hidden**-0.5), d_hidden**-0.5)

    def project(self, x: Tensor) -> Tensor:
        """Part (..., 4R or 5R) of the pre-activations from the input, all biases included."""
        return self.matrix("input", lambda: SharedMatrix(self.input.weight, self._bias()))(x)

    def preactivate(self, projected: Tensor, past: Tensor) -> Tensor:
        """Add the part from the past state (rows, d_past) to `project` of one position (rows, 4R or 5R)."""
        return self.matrix("recurrent", lambda: SharedMatrix(self.recurrent.weight))(past, projected)

    def _bias(self) -> Tensor | None:
        return self.input.bias + self.recurrent.bias if self.biased else None

    def update(self, gates: Tensor, candidates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """The next hidden and cell state (rows, R) from pre-activations: `gates` (rows, 3R), `candidates` the rest."""
        let_in, keep, let_out = gates.sigmoid().chunk(3, -1)
        candidate = torch.maximum(*candidates.chunk(2, -1)) if self.maxout else candidates.tanh()
        cell = torch.addcmul(keep * cell, let_in, candidate)
        return let_out * cell.tanh(), cell

    def forward(self, projected: Tensor, past: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One position: `projected` as for `preactivate`, the past state and the cell (rows, R); as `update` gives."""
        if not self.maxout and self._shared is not None:
            weight = self.matrix("recurrent", lambda: SharedMatrix(self.recurrent.weight))
            return _read(projected, past, cell, weight)
        whole = self.preactivate(projected, past)
        gates, candidates = torch.split(whole, [3 * self.d_hidden, whole.shape[1] - 3 * self.d_hidden], 1)
        return self.update(gates, candidates, cell)

    def read(self, x: Tensor, past: Sequence[Tensor], cell: Tensor) -> tuple[Tensor, Tensor]:
        """One position whose input (rows, d_input) follows from earlier ones; `past` is joined."""
        after: tuple[Tensor, Tensor]
        if self.maxout or self._shared is None:
            after = self(self.project(x), torch.cat(tuple(past), 1) if len(past) > 1 else past[0], cell)
            return after
        weight = self.matrix("both", lambda: SharedMatrix(self._both(), self._bias()))
        return _read(None, torch.cat((x, *past), 1), cell, weight)

    def _both(self) -> Tensor:
        return torch.cat((self.input.weight, self.recurrent.weight), 1)


def _read(projected: Tensor | None, past: Tensor, cell: Tensor, matrix: SharedMatrix) -> tuple[Tensor, Tensor]:
    bias = None if matrix.bias is None else matrix.bias.detach()
    after: tuple[Tensor, Tensor] = _Read.apply(
        bias if projected is None else projected, past, cell, matrix.weight.detach(), matrix.end, matrix.factors
    )
    return after


class _Read(torch.autograd.Function):
    """`LSTMCell.forward` without maxout, with its gradient written out: fewer kernels than those of its parts."""

    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor | None,
        past: Tensor,
        cell: Tensor,
        weight: Tensor,
        end: Tensor | None,  # noqa: ARG004  # makes the node of the weight's gradient come after this one
        factors: Factors,
    ) -> tuple[Tensor, Tensor]:
        """The next hidden and cell state."""
        whole = past @ weight.t() if projected is None else torch.addmm(projected, past, weight.t())
        active, width = torch.empty_like(whole), cell.shape[1]
        torch.sigmoid(whole[:, : 3 * width], out=active[:, : 3 * width])
        torch.tanh(whole[:, 3 * width :], out=active[:, 3 * width :])
        let_in, keep, let_out, candidate = active.chunk(4, 1)
        after = torch.addcmul(keep * cell, let_in, candidate)
        squashed = after.tanh()
        ctx.save_for_backward(active, past, cell, squashed, weight)
        ctx.set_materialize_grads(False)
        ctx.factors = factors
        return let_out * squashed, after

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, to_hidden: Tensor | None, to_after: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of `projected`, past and cell."""
        active, past, cell, squashed, weight = ctx.saved_tensors
        _, _, let_out, candidate = active.chunk(4, 1)
        whole, width = torch.empty_like(active), cell.shape[1]
        gates = whole[:, : 3 * width]
        if to_hidden is None:
            gates[:, 2 * width :].zero_()
        else:
            torch.mul(to_hidden, squashed, out=gates[:, 2 * width :])
            through = _tanh_backward(to_hidden * let_out, squashed)
            to_after = through if to_after is None else to_after + through
        if to_after is None:
            return None, None, None, None, None, None
        torch.mul(to_after, candidate, out=gates[:, :width])
        torch.mul(to_after, cell, out=gates[:, width : 2 * width])
        _sigmoid_backward.grad_input(gates, active[:, : 3 * width], grad_input=gates)
        # The gradients of the candidate and of the cell, side by side.
        both = to_after[:, None] * active.view(-1, 4, width)[:, :2]
        _tanh_backward.grad_input(both[:, 0], candidate, grad_input=whole[:, 3 * width :])
        ctx.factors.append((past.detach(), whole))
        to_projected = whole if ctx.needs_input_grad[0] else None
        return to_projected, whole @ weight if ctx.needs_input_grad[1] else None, both[:, 1], None, None, None
