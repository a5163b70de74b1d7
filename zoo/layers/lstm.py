"""LSTM cells whose inputs are projected for all positions of a caption in one product.

S. Hochreiter, J. Schmidhuber: "Long Short-Term Memory", Neural Computation 1997; with maxout candidates as in
S. J. Rennie et al.: "Self-critical Sequence Training for Image Captioning", CVPR 2017, equations 1 to 5.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LSTMCell(nn.Module):
    """c' = f c + i z, h' = o tanh(c'), with the gates i, f, o and the candidate z from input and past states.

    The candidate is tanh(z1), or with `maxout` max(z1, z2) without a tanh. Pre-activations are in the order
    [input | forget | output | z1 | z2], each R wide.

    Args:
        d_past: width of the past hidden state, or of several joined.
        maxout: whether the candidate is the maxout form.
    """

    def __init__(self, d_input: int, d_hidden: int, d_past: int, *, maxout: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.d_hidden = d_hidden
        self.maxout = maxout
        self.biased = bias
        gates = 5 if maxout else 4
        self.matrices_in = {"input": gates, "recurrent": gates}
        width = gates * d_hidden
        self.input = nn.Linear(d_input, width, bias)
        self.recurrent = nn.Linear(d_past, width, bias)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(d_hidden**-0.5), d_hidden**-0.5)

    def project(self, x: Tensor) -> Tensor:
        """The input's part of the pre-activations (..., 4R or 5R), with all biases."""
        return F.linear(x, self.input.weight, self.both_biases())

    def preactivate(self, projected: Tensor, past: Tensor) -> Tensor:
        """The pre-activations (rows, 4R or 5R): `project` of one position plus the part of the past (rows, d_past)."""
        return torch.addmm(projected, past, self.recurrent.weight.t())

    def both_biases(self) -> Tensor | None:
        """The sum of the biases of input and recurrence, (4R or 5R,); None without biases."""
        return self.input.bias + self.recurrent.bias if self.biased else None

    def update(self, gates: Tensor, candidates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """The next hidden and cell state (rows, R).

        Args:
            gates: pre-activations of the gates, (rows, 3R).
            candidates: those of the candidate, (rows, R), or (rows, 2R) with `maxout`.
            cell: the cell state before, (rows, R).
        """
        input_gate, forget_gate, output_gate = gates.sigmoid().chunk(3, -1)
        candidate = torch.maximum(*candidates.chunk(2, -1)) if self.maxout else candidates.tanh()
        cell = torch.addcmul(forget_gate * cell, input_gate, candidate)
        return output_gate * cell.tanh(), cell

    def forward(self, projected: Tensor, past: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """The next hidden and cell state (rows, R), from `project` of the input, the past state and the cell state."""
        preactivations = self.preactivate(projected, past)
        n_gates = 3 * self.d_hidden
        gates, candidates = torch.split(preactivations, [n_gates, preactivations.shape[1] - n_gates], 1)
        return self.update(gates, candidates, cell)

    def read(self, x: Tensor, past: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """The next hidden and cell state (rows, R), from an input (rows, d_input) that is not yet projected."""
        states: tuple[Tensor, Tensor] = self(self.project(x), past, cell)
        return states


def two_lstms(
    attention_lstm: LSTMCell,
    language_lstm: LSTMCell,
    read: Callable[[Tensor], Tensor],
    inputs: Tensor,
    rows: dict[str, Tensor],
) -> tuple[Tensor, dict[str, Tensor]]:
    """One position of a language LSTM above an attention LSTM, as in Up-Down.

    The attention LSTM's past is [language state; attention state].

    Args:
        read: maps the attention LSTM's state (rows, R) to the input of the language LSTM.
        inputs: (rows, 4 R), `project` of the attention LSTM's input.
        rows: the states of both LSTMs, see `STATES`.

    Returns:
        The language LSTM's state (rows, R), and the next states of both.
    """
    past = torch.cat((rows["language"], rows["attention"]), 1)
    attention, attention_cell = attention_lstm(inputs, past, rows["attention_cell"])
    language, language_cell = language_lstm.read(read(attention), rows["language"], rows["language_cell"])
    return language, dict(zip(STATES, (language, attention, language_cell, attention_cell), strict=True))


STATES = ("language", "attention", "language_cell", "attention_cell")
"""Hidden states, then cell states, of `two_lstms`."""
