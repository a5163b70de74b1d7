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
        scores = full_precision(self.dropout(self._scores(x)))
        visible = scores if mask is None else scores.masked_fill(~mask[..., None], 0.0)
        values_a, values_b = self.streams.values(x)
        a = self._stream(F.relu(visible), F.relu(scores), values_a)
        b = self._stream(F.relu(-visible), F.relu(-scores), values_b)
        return self.streams.combine(x, a, b)

    def _scores(self, x: Tensor) -> Tensor:
        """Z^T = K(x) Q^T / sqrt(d), (B, L, N). The queries are weights, so one product serves the whole batch."""
        queries = self.queries / x.shape[-1] ** 0.5
        if x.shape[:-1].numel() <= len(queries):
            return F.linear(self.key(x), queries)
        # Q (W x + b) = (Q W) x + Q b. Folding anew for every batch costs less than projecting the batch, and unlike
        # folding once it cannot outlive a change of the weights.
        return F.linear(x, queries @ self.key.weight, queries @ self.key.bias)

    def _stream(self, visible: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        """Expand over the visible positions, then contract: each group's weights sum to one, and groups average."""
        expand = normalise(visible, 1).transpose(1, 2)  # R_fw, (B, N, L)
        contract = torch.cat(
            [normalise(group, -1) for group in torch.split(weights, list(self.lengths), -1)], -1
        )  # R_bw
        if self._reassociates(values):
            collected = (contract @ expand) @ values + contract @ self.biases
        else:
            collected = contract @ self.dropout(expand @ values + self.biases)
        kept: Tensor = self.dropout(collected / len(self.lengths))  # (B, L, D)
        return kept

    def _reassociates(self, values: Tensor) -> bool:
        """Whether R_bw (R_fw V + B) = (R_bw R_fw) V + R_bw B holds and saves products.

        Dropout between the two forbids it; otherwise it costs L^2 (N + D) in the place of L N D.
        """
        length, width = values.shape[-2:]
        expanded = len(self.queries)
        dropped = self.training and self.dropout.p > 0
        return not dropped and length * (expanded + width) < expanded * width
