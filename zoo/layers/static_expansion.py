"""Static expansion (Hu et al., "ExpansionNet v2", arXiv:2208.06551).

Source of the conventions: https://github.com/jchenghu/ExpansionNet_v2 (MIT).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.expansion import GatedStreams, full_precision, normalise


class StaticExpansion(nn.Module):
    """Expand L positions to the groups of lengths G = {N_1, ..., N_G} by learned queries, and contract them again."""

    def __init__(self, d_model: int, lengths: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.lengths = tuple(lengths)
        self.queries = nn.Parameter(torch.empty(sum(lengths), d_model))
        self.biases = nn.Parameter(torch.empty(sum(lengths), d_model))
        self.key = nn.Linear(d_model, d_model)
        self.streams = GatedStreams(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at the positions that others may see.

        Masked positions get an output too, which means nothing and reaches no other position.
        """
        # Z^T = K(x) Q^T / sqrt(d): the queries are weights, so one product serves the whole batch.
        scores = F.linear(self.key(x), self.queries) / x.shape[-1] ** 0.5  # (B, L, N)
        scores = full_precision(self.dropout(scores))
        visible = scores if mask is None else scores.masked_fill(~mask[..., None], 0.0)
        values_a, values_b = self.streams.values(x)
        a = self._stream(F.relu(visible), F.relu(scores), values_a)
        b = self._stream(F.relu(-visible), F.relu(-scores), values_b)
        return self.streams.combine(x, a, b)

    def _stream(self, visible: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        """Expand over the visible positions, then contract: each group's weights sum to one, and groups average."""
        expand = normalise(visible, 1).transpose(1, 2)
        expanded = self.dropout(expand @ values + self.biases)  # (B, N, D)
        contract = torch.cat([normalise(group, -1) for group in torch.split(weights, list(self.lengths), -1)], -1)
        collected: Tensor = self.dropout(contract @ expanded / len(self.lengths))  # (B, L, D)
        return collected
