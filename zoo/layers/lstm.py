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
        return F.linear(x, self.input.weight, self.both_biases())

    def preactivate(self, projected: Tensor, past: Tensor) -> Tensor:
        """Add the part from the past state (rows, d_past) to `project` of one position (rows, 4R or 5R)."""
        return torch.addmm(projected, past, self.recurrent.weight.t())

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
        whole = self.preactivate(projected, past)
        gates, candidates = torch.split(whole, [3 * self.d_hidden, whole.shape[1] - 3 * self.d_hidden], 1)
        return self.update(gates, candidates, cell)

    def read(self, x: Tensor, past: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One position whose input (rows, d_input) follows from earlier ones."""
        after: tuple[Tensor, Tensor] = self(self.project(x), past, cell)
        return after


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
    language, language_cell = language_lstm.read(read(attention), rows["language"], rows["language_cell"])
    return language, dict(zip(STATES, (language, attention, language_cell, attention_cell), strict=True))


STATES = ("language", "attention", "language_cell", "attention_cell")
