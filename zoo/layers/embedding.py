"""Word embeddings with absolute positions, learned or sinusoidal."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.errors import ZooError


class FixedPositions(nn.Module):
    """A fixed table of position embeddings.

    Args:
        table: (T, D).
        first: row of the first position.
        saved: whether the table is part of the state dict.
    """

    table: Tensor

    def __init__(self, table: Tensor, *, first: int = 0, saved: bool = False) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent=saved)
        self.first = first

    def forward(self, positions: Tensor) -> Tensor:
        """Positions (...) to (..., D)."""
        return F.embedding(positions + self.first, self.table)

    def rows(self) -> Tensor:
        """The embeddings of all positions, first to last, (T, D)."""
        return self.table[self.first :]


class TokenEmbedding(nn.Module):
    """dropout(word) * scale + position, or with `drop_sum` dropout(word * scale + position).

    Args:
        dropout: rate; None for no dropout module, so that `Captioner.set_dropout` cannot set a rate.
        positions: a table; learned positions if not given.
        scale: factor of the word embeddings; sqrt(d_model) if not given.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        max_len: int,
        dropout: float | None,
        *,
        positions: FixedPositions | None = None,
        scale: float | None = None,
        drop_sum: bool = False,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_len, d_model) if positions is None else positions
        self.dropout = nn.Identity() if dropout is None else nn.Dropout(dropout)
        self.max_len = max_len
        self.scale = d_model**0.5 if scale is None else scale
        self.drop_sum = drop_sum

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Tokens (R, T) to (R, T, D); `positions` (R, T) default to 0 .. T - 1."""
        if positions is None:
            if tokens.shape[1] > self.max_len:
                raise ZooError(f"a caption of {tokens.shape[1]} tokens is longer than max_len {self.max_len}")
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.at_position(tokens, self.positions(positions))

    def at_position(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Tokens (R, T) with position embeddings (..., D), to (R, T, D)."""
        words: Tensor = self.words(tokens)
        if self.drop_sum:
            embedded: Tensor = self.dropout(torch.add(positions, words, alpha=self.scale))
        else:
            embedded = torch.add(positions, self.dropout(words), alpha=self.scale)
        return embedded

    def rows(self) -> Tensor:
        """The embeddings of all positions, (T, D)."""
        return self.positions.weight if isinstance(self.positions, nn.Embedding) else self.positions.rows()


def sinusoids(length: int, d_model: int) -> Tensor:
    """sin (even channels) and cos (odd ones) of i / 10000^(2k / d_model), (length, d_model); Vaswani et al. 2017.

    Computed in float32 whatever the model's type, as the authors' code does, for numerical parity.
    """
    positions = torch.arange(length, dtype=torch.float32)[:, None]
    rates = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float32) * -(math.log(10_000.0) / d_model))
    waves = torch.stack((torch.sin(positions * rates), torch.cos(positions * rates)), -1)
    return waves.flatten(1)[:, :d_model].contiguous()
