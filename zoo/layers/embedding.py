"""Word embeddings with learned absolute positions, as in ExpansionNet v2."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zoo.errors import ZooError


class TokenEmbedding(nn.Module):
    """dropout(word) * sqrt(d_model) + position; positions are neither scaled nor dropped."""

    def __init__(self, vocab_size: int, d_model: int, max_len: int, dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_len, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Tokens (R, T) to (R, T, D); `positions` (R, T) default to 0 .. T - 1."""
        if positions is None:
            if tokens.shape[1] > self.positions.num_embeddings:
                raise ZooError(
                    f"a caption of {tokens.shape[1]} tokens is longer than max_len {self.positions.num_embeddings}"
                )
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        scale: float = self.words.embedding_dim**0.5
        embedded: Tensor = self.dropout(self.words(tokens)) * scale + self.positions(positions)
        return embedded
