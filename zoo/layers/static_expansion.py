"""Static expansion (Hu et al., "ExpansionNet v2", arXiv:2208.06551).

Source of the conventions: https://github.com/jchenghu/ExpansionNet_v2 (MIT).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.attention import joined
from zoo.layers.expansion import GatedStreams, gate_streams, normalise, side_by_side
from zoo.layers.precision import exactly


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
        scores, values, selector = self._project(x)
        weights = self.streams.weigh(self.dropout(scores))  # (2, B, L, N)
        visible = weights if mask is None else weights.masked_fill(~mask[..., None], 0.0)
        # Expand over the visible positions, then contract: each group's weights sum to one, and groups average.
        expand = normalise(visible, 2, scale=x.shape[-1] ** 0.5).flatten(0, 1).transpose(1, 2)  # R_fw, (2 * B, N, L)
        contract = normalise(weights, -1, self.lengths, x.shape[-1] ** 0.5).flatten(0, 1)  # R_bw, (2 * B, L, N)
        if self._reassociates(values):
            collected = torch.baddbmm(contract @ self.biases, contract @ expand, values)
        else:
            collected = contract @ self.dropout(torch.baddbmm(self.biases, expand, values))
        return gate_streams(selector, self.dropout(collected))

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores Z^T = K(x) Q^T (B, L, N), values of both streams (2 * B, L, D), and the selector (B, L, D).

        The scores are not divided by sqrt(d), which normalising would undo. The queries are weights, so that one
        product can serve the whole batch.
        """
        length, width = self.queries.shape
        projection = self._kept_fold()
        folded = projection is not None or x.shape[:-1].numel() > length  # folding costs less than projecting the batch
        if projection is None:
            streams = (self.streams.value_a, self.streams.value_b, self.streams.selector)
            projection = self._fold() if folded else joined(*streams, self.key)
        sizes = [2 * width, width, length if folded else width]
        values, selector, scores = torch.split(F.linear(x, *projection), sizes, -1)
        return scores if folded else F.linear(scores, self.queries), side_by_side(values), selector

    def _fold(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of Q (W x + b) = (Q W) x + Q b, below those of the values and of the selector."""
        streams = (self.streams.value_a, self.streams.value_b, self.streams.selector)
        weight, bias = self.queries @ self.key.weight, self.queries @ self.key.bias
        return joined(*streams, (weight, bias))

    def _kept_fold(self) -> tuple[Tensor, Tensor] | None:
        """The fold, cached between batches in full precision; None in training or with gradients.

        It is computed again if a weight was changed in place or moved, and after `train()` or `eval()`; writes through
        `.data` are not noticed.
        """
        streams = (self.streams.value_a, self.streams.value_b, self.streams.selector)
        layers = (self.key, *streams)
        parts = (self.queries, *(layer.weight for layer in layers), *(layer.bias for layer in layers))
        learning = torch.is_grad_enabled() and any(part.requires_grad for part in parts)
        if self.training or learning or torch.compiler.is_compiling() or any(part.is_inference() for part in parts):
            return None
        versions = [(part.data_ptr(), part._version) for part in parts]
        kept = self._kept
        if kept is None or kept.versions != versions:
            with torch.inference_mode(False), torch.no_grad(), exactly(self.queries):
                kept = _Kept([part.detach() for part in parts], versions, self._fold())
            self._kept = kept
        return kept.fold

    def train(self, mode: bool = True) -> Self:
        """As in any module; also drops the cached fold."""
        self._kept = None
        return super().train(mode)

    def _reassociates(self, values: Tensor) -> bool:
        """Whether R_bw (R_fw V + B) = (R_bw R_fw) V + R_bw B holds and saves products.

        Dropout between the two forbids it; otherwise it costs L^2 (N + D) instead of L N D.
        """
        length, width = values.shape[-2:]
        expanded = len(self.queries)
        dropped = self.training and self.dropout.p > 0
        return not dropped and length * (expanded + width) < expanded * width
