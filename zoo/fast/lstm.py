"""An LSTM inside a scan over all positions of a caption, with a hand-written gradient."""

from __future__ import annotations

import torch
from torch import Tensor

_sigmoid_backward = torch.ops.aten.sigmoid_backward
_tanh_backward = torch.ops.aten.tanh_backward


class LSTMTape:
    """The forward pass of an LSTM over all positions, and the values that its gradient needs (`LSTMGradient`).

    c' = f c + i tanh(z), h' = o tanh(c') from a state of zeros, as `LSTMCell` without maxout. Autograd records nothing
    here: the caller is a `torch.autograd.Function`.

    tanh(z) is computed as 1 - 2 sigmoid(-2 z), so that one kernel computes gates and candidate. Pre-activations are
    passed multiplied by `scales`.

    Attributes:
        gates: (T, rows, 4, R): input, forget and output gate, and sigmoid(-2 z).
        cells: (T + 1, rows, 2, R): at position t the cell c before it, and tanh(c') of position t - 1.
    """

    def __init__(self, gates: Tensor, cells: Tensor) -> None:
        self.gates = gates
        self.cells = cells

    @classmethod
    def blank(cls, like: Tensor, length: int, rows: int, width: int) -> LSTMTape:
        """A tape without values for `length` positions; only the first cell state is set, to zeros."""
        cells = like.new_empty(length + 1, rows, 2, width)
        cells[0].zero_()
        return cls(like.new_empty(length, rows, 4, width), cells)

    @staticmethod
    def scales(like: Tensor, width: int) -> Tensor:
        """The factors of pre-activations, (4 R): 1 of the gates, -2 of the candidate."""
        scales = like.new_ones(4, width)
        scales[3].fill_(-2.0)
        return scales.view(-1)

    def advance(self, position: int, past: Tensor, weight: Tensor, added: Tensor, hidden: Tensor) -> None:
        """Compute one position and write its hidden state (rows, R) to `hidden`.

        Args:
            past: (rows, K), the states that the LSTM reads.
            weight: (4 R, K), multiplied by `scales`.
            added: (rows, 4 R) or (4 R), the rest of the pre-activations, multiplied by `scales`.
        """
        gates = self.gates[position]
        cell = self.cells[position + 1, :, 0]
        past_cell, tanh_cell = self.cells[position].unbind(1)
        torch.addmm(added, past, weight.t(), out=gates.flatten(1))
        input_gate, forget_gate, output_gate, candidate = gates.sigmoid_().unbind(1)
        torch.addcmul(input_gate, forget_gate, past_cell, out=cell)
        cell.addcmul_(input_gate, candidate, value=-2.0)
        torch.mul(output_gate, torch.tanh(cell, out=tanh_cell), out=hidden)


class LSTMGradient:
    """The gradient of `LSTMTape`, computed from the last position to the first.

    Local derivatives are computed for all positions at once, so that three kernels per position remain.

    Attributes:
        gradients: (T, rows, 5, R), those of the unscaled pre-activations and of the cell state before each position.
    """

    def __init__(self, tape: LSTMTape) -> None:
        input_gate, forget_gate, output_gate, candidate = tape.gates.unbind(2)
        # Derivatives by the gates' values: of c' by input gate, forget gate and candidate, of h' by the output gate.
        by_gates = torch.empty_like(tape.gates)
        torch.sub(candidate.new_ones(()), candidate, alpha=2.0, out=by_gates[:, :, 0])
        by_gates[:, :, 1:3].copy_(tape.cells[:-1])
        torch.mul(input_gate, 4.0, out=by_gates[:, :, 3])
        self._factors = by_gates.new_empty(*by_gates.shape[:2], 5, by_gates.shape[3])
        _sigmoid_backward.grad_input(by_gates, tape.gates, grad_input=self._factors[:, :, :4])
        self._factors[:, :, 4].copy_(forget_gate)
        self._hidden_by_cell = _tanh_backward(output_gate, tape.cells[:-1, :, 1])
        self.gradients = torch.empty_like(self._factors)
        self._to_cell: Tensor | None = None

    def back(self, position: int, to_hidden: Tensor) -> Tensor:
        """The gradient of a position's pre-activations (rows, 4 R), from that of its hidden state (rows, R)."""
        factors = self._factors[position]
        gradients = self.gradients[position]
        if self._to_cell is None:
            to_cell = to_hidden * self._hidden_by_cell[position]
        else:
            to_cell = torch.addcmul(self._to_cell, to_hidden, self._hidden_by_cell[position])
        torch.mul(to_cell[:, None], factors, out=gradients)
        torch.mul(to_hidden, factors[:, 2], out=gradients[:, 2])
        self._to_cell = gradients[:, 4]
        return gradients[:, :4].flatten(1)

    def gates(self) -> Tensor:
        """The gradients of all pre-activations, (T, rows, 4 R)."""
        return self.gradients[:, :, :4].flatten(2)
