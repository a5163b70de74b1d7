"""LSTM cells whose inputs are projected for all positions of a caption in one product.

S. Hochreiter, J. Schmidhuber: "Long Short-Term Memory", Neural Computation 1997; with maxout candidates as in
S. J. Rennie et al.: "Self-critical Sequence Training for Image Captioning", CVPR 2017, equations 1 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zoo.fast.looped import Factors, Looped, SharedMatrix

_sigmoid_backward, _tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


class LSTMCell(Looped):
    """c' = f c + i z, h' = o tanh(c'), with the gates i, f, o and the candidate z from input and past states.

    The candidate is tanh(z1), or with `maxout` max(z1, z2) without a tanh. Pre-activations are in the order
    [input | forget | output | z1 | z2], each R wide.

    Args:
        d_past: width of the past hidden state, or of several joined.
        maxout: whether the candidate is the maxout form.
    """

    def __init__(self, d_input: int, d_hidden: int, d_past: int, *, maxout: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.d_hidden, self.maxout, self.biased = d_hidden, maxout, bias
        gates = 5 if maxout else 4
        self.matrices_in = {"input": gates, "recurrent": gates}
        width = gates * d_hidden
        self.input = nn.Linear(d_input, width, bias)
        self.recurrent = nn.Linear(d_past, width, bias)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(d_hidden**-0.5), d_hidden**-0.5)

    def project(self, x: Tensor) -> Tensor:
        """Part (..., 4R or 5R) of the pre-activations from the input, all biases included."""
        return self.matrix("input", lambda: SharedMatrix(self.input.weight, self.both_biases()))(x)

    def preactivate(self, projected: Tensor, past: Tensor) -> Tensor:
        """Add the part from the past state (rows, d_past) to `project` of one position (rows, 4R or 5R)."""
        return self.matrix("recurrent", lambda: SharedMatrix(self.recurrent.weight))(past, projected)

    def both_biases(self) -> Tensor | None:
        """Their sum, (4R or 5R,); None without biases."""
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
        both = self.input.weight, self.recurrent.weight
        weight = self.matrix("both", lambda: SharedMatrix(torch.cat(both, 1), self.both_biases()))
        return _read(None, torch.cat((x, *past), 1), cell, weight)


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


def two_lstms(
    attention_lstm: LSTMCell,
    language_lstm: LSTMCell,
    read: Callable[[Tensor], Tensor],
    inputs: Tensor,
    rows: dict[str, Tensor],
) -> tuple[Tensor, dict[str, Tensor]]:
    """One position of a language LSTM above an attention LSTM, as in Up-Down: its output, and the next `STATES`.

    `read` gives what the language LSTM reads, from the attention LSTM's state (rows, R); `inputs` (rows, 4 R) are what
    the attention LSTM's `project` gives, and its past is [language state; attention state].
    """
    past = torch.cat((rows["language"], rows["attention"]), 1)
    attention, attention_cell = attention_lstm(inputs, past, rows["attention_cell"])
    language, language_cell = language_lstm.read(read(attention), (rows["language"],), rows["language_cell"])
    return language, dict(zip(STATES, (language, attention, language_cell, attention_cell), strict=True))


STATES = ("language", "attention", "language_cell", "attention_cell")


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
