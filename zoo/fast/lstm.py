"""The LSTM of a scan over all positions of a caption, with its gradient written out."""

from __future__ import annotations

import torch
from torch import Tensor

_sigmoid_backward, _tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


class LSTMTape:
    """An LSTM's part of a loop over all positions of a caption, with its gradient written out.

    c' = f c + i tanh(z), h' = o tanh(c') from a state of zeros, as `LSTMCell` without maxout. What the gradient of a
    position takes from the forward pass is computed for all positions at once, so that three kernels are left inside
    the loop. Nothing here is seen by autograd: the loop is one `torch.autograd.Function`.

    The candidate's tanh(z) is 1 - 2 sigmoid(-2 z), so that one kernel serves gates and candidate: pre-activations come
    multiplied by `scales`.

    Attributes:
        gates: (T, rows, 4, R), input, forget and output gate, and sigmoid(-2 z).
        cells: (T + 1, rows, 2, R), of position t the cell c before it, and tanh(c') after it.
    """

    def __init__(self, gates: Tensor, cells: Tensor) -> None:
        self.gates, self.cells = gates, cells

    @classmethod
    def blank(cls, like: Tensor, length: int, rows: int, width: int) -> LSTMTape:
        """For T positions of rows with R channels."""
        cells = like.new_empty(length + 1, rows, 2, width)
        cells[0].zero_()
        return cls(like.new_empty(length, rows, 4, width), cells)

    @staticmethod
    def scales(like: Tensor, width: int) -> Tensor:
        """What pre-activations (..., 4 R) are multiplied by, (4 R)."""
        scales = like.new_ones(4, width)
        scales[3].fill_(-2.0)
        return scales.view(-1)

    def advance(self, position: int, past: Tensor, weight: Tensor, added: Tensor, hidden: Tensor) -> None:
        """One position, whose hidden state (rows, R) is written to `hidden`.

        Args:
            past: (rows, K).
            weight: (4 R, K), scaled.
            added: (rows, 4 R) or (4 R), scaled.
        """
        gates, cell = self.gates[position], self.cells[position + 1, :, 0]
        past_cell, squashed = self.cells[position].unbind(1)
        torch.addmm(added, past, weight.t(), out=gates.flatten(1))
        let_in, keep, let_out, candidate = gates.sigmoid_().unbind(1)
        torch.addcmul(let_in, keep, past_cell, out=cell)
        cell.addcmul_(let_in, candidate, value=-2.0)
        torch.mul(let_out, torch.tanh(cell, out=squashed), out=hidden)


class LSTMGradient:
    """The gradient of `LSTMTape`, from the last position to the first.

    Attributes:
        whole: (T, rows, 5, R), gradients of the pre-activations before they were scaled, and of the cell before.
    """

    def __init__(self, tape: LSTMTape) -> None:
        let_in, keep, let_out, candidate = tape.gates.unbind(2)
        # What the gradient of the new cell, or of h' for the output gate, is multiplied by.
        across = torch.empty_like(tape.gates)
        torch.sub(candidate.new_ones(()), candidate, alpha=2.0, out=across[:, :, 0])
        across[:, :, 1:3].copy_(tape.cells[:-1])
        torch.mul(let_in, 4.0, out=across[:, :, 3])
        self._factors = across.new_empty(*across.shape[:2], 5, across.shape[3])
        _sigmoid_backward.grad_input(across, tape.gates, grad_input=self._factors[:, :, :4])
        self._factors[:, :, 4].copy_(keep)
        self._through = _tanh_backward(let_out, tape.cells[:-1, :, 1])
        self.whole = torch.empty_like(self._factors)
        self._to_cell: Tensor | None = None

    def back(self, position: int, to_hidden: Tensor) -> Tensor:
        """From the gradient of a position's hidden state to that of its pre-activations (rows, 4 R)."""
        factors, whole = self._factors[position], self.whole[position]
        if self._to_cell is None:
            to_cell = to_hidden * self._through[position]
        else:
            to_cell = torch.addcmul(self._to_cell, to_hidden, self._through[position])
        torch.mul(to_cell[:, None], factors, out=whole)
        torch.mul(to_hidden, factors[:, 2], out=whole[:, 2])
        self._to_cell = whole[:, 4]
        return whole[:, :4].flatten(1)

    def gates(self) -> Tensor:
        """The gradients of all pre-activations, (T, rows, 4 R)."""
        return self.whole[:, :, :4].flatten(2)
