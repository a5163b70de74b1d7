"""Static expansion (Hu et al., "ExpansionNet v2", arXiv:2208.06551).

Source of the conventions: https://github.com/jchenghu/ExpansionNet_v2 (MIT).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.expansion import GatedStreams, full_precision, normalise


class _Kept(NamedTuple):
    """A fold and its source tensors, which are kept alive so that no other tensor gets their addresses."""

    parts: list[Tensor]
    versions: list[tuple[int, int]]
    fold: tuple[Tensor, Tensor]


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
        self._kept: _Kept | None = None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at visible positions.

        Masked positions get an output too, which is meaningless and does not affect other positions.
        """
        scores = full_precision(self.dropout(self._scores(x)))
        visible = scores if mask is None else scores.masked_fill(~mask[..., None], 0.0)
        values_a, values_b = self.streams.values(x)
        a = self._stream(F.relu(visible), F.relu(scores), values_a)
        b = self._stream(F.relu(-visible), F.relu(-scores), values_b)
        return self.streams.combine(x, a, b)

    def _scores(self, x: Tensor) -> Tensor:
        """Z^T = K(x) Q^T / sqrt(d), (B, L, N). The queries are weights, so one product serves the whole batch."""
        kept = self._kept_fold()
        if kept is not None:
            return F.linear(x, *kept)
        if x.shape[:-1].numel() > len(self.queries):  # folding for this batch costs less than projecting it
            return F.linear(x, *self._fold())
        return F.linear(self.key(x), self.queries / x.shape[-1] ** 0.5)

    def _fold(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of Q (W x + b) / sqrt(d) = (Q W / sqrt(d)) x + Q b / sqrt(d)."""
        queries = self.queries / self.queries.shape[-1] ** 0.5
        return queries @ self.key.weight, queries @ self.key.bias

    def _kept_fold(self) -> tuple[Tensor, Tensor] | None:
        """The fold, cached between batches in full precision; None in training or with gradients.

        It is computed again if a weight was changed in place or moved, and after `train()` or `eval()`; writes through
        `.data` are not noticed.
        """
        parts = (self.queries, self.key.weight, self.key.bias)
        learning = torch.is_grad_enabled() and any(part.requires_grad for part in parts)
        if self.training or learning or torch.compiler.is_compiling() or any(part.is_inference() for part in parts):
            return None
        versions = [(part.data_ptr(), part._version) for part in parts]
        kept = self._kept
        if kept is None or kept.versions != versions:
            device = self.queries.device.type
            exactly = (
                torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()
            )
            with torch.inference_mode(False), torch.no_grad(), exactly:
                kept = _Kept([part.detach() for part in parts], versions, self._fold())
            self._kept = kept
        return kept.fold

    def train(self, mode: bool = True) -> Self:
        """As in any module; also drops the cached fold."""
        self._kept = None
        return super().train(mode)

    def _stream(self, visible: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        """Expand over the visible positions, then contract: each group's weights sum to one, and groups average."""
        expand = normalise(visible, 1).transpose(1, 2)  # R_fw, (B, N, L); contract is R_bw, (B, L, N)
        contract = torch.cat([normalise(group, -1) for group in torch.split(weights, list(self.lengths), -1)], -1)
        if self._reassociates(values):
            collected = (contract @ expand) @ values + contract @ self.biases
        else:
            collected = contract @ self.dropout(expand @ values + self.biases)
        dropped: Tensor = self.dropout(collected / len(self.lengths))  # (B, L, D)
        return dropped

    def _reassociates(self, values: Tensor) -> bool:
        """Whether R_bw (R_fw V + B) = (R_bw R_fw) V + R_bw B holds and saves products.

        Dropout between the two forbids it; otherwise it costs L^2 (N + D) instead of L N D.
        """
        length, width = values.shape[-2:]
        expanded = len(self.queries)
        dropped = self.training and self.dropout.p > 0
        return not dropped and length * (expanded + width) < expanded * width
