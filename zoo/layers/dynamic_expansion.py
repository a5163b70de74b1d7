"""Dynamic expansion (ExpansionNet, arXiv:2207.03327, and ExpansionNet v2, arXiv:2208.06551).

Source of the conventions: https://github.com/jchenghu/ExpansionNet_v2 (MIT).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.attention import Cache, append
from zoo.layers.expansion import GatedStreams, full_precision, normalise


class DynamicExpansion(nn.Module):
    """Expand each of T positions to `length` elements conditioned on it, and contract T * length elements again.

    Element (i, e) has the query C_i + Q_e and the bias C_i + B_e. When `causal`, it looks at positions j <= i, and
    position j collects the elements of positions i <= j, so that row j depends on x_1 .. x_j alone.
    """

    def __init__(self, d_model: int, length: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.queries = nn.Parameter(torch.empty(length, d_model))
        self.biases = nn.Parameter(torch.empty(length, d_model))
        self.condition = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.streams = GatedStreams(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, D) to (B, T, D); `mask` (B, T) is true at valid positions, the others get an output of zero."""
        condition, key = self.condition(x), self.key(x)
        # (C_i + Q_e) . K_j = C_i . K_j + Q_e . K_j, so that no expanded query is ever built.
        by_position = (condition @ key.transpose(1, 2))[:, :, None]  # (B, i, 1, j)
        by_element = F.linear(key, self.queries).transpose(1, 2)[:, None]  # (B, 1, e, j)
        scores = full_precision(self.dropout((by_position + by_element) / x.shape[-1] ** 0.5))  # (B, i, e, j)
        forward, backward = self._hide(scores, mask)
        values_a, values_b = self.streams.values(x)
        a = self._stream(F.relu(forward), F.relu(backward), values_a, condition)
        b = self._stream(F.relu(-forward), F.relu(-backward), values_b, condition)
        return self.streams.combine(x, a, b)

    def _hide(self, scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Scores for expanding (position j seen by i) and for contracting (i collected by j), both (B, i, e, j)."""
        length = scores.shape[1]
        seen = scores.new_ones(length, length, dtype=torch.bool)
        if self.causal:
            seen = seen.tril()
        if mask is not None:
            seen = seen & mask[:, :, None] & mask[:, None, :]
        hidden = ~seen.unsqueeze(-2)
        return scores.masked_fill(hidden, 0.0), scores.masked_fill(hidden.transpose(-1, -3), 0.0)

    def _stream(self, forward: Tensor, backward: Tensor, values: Tensor, condition: Tensor) -> Tensor:
        expand = normalise(forward, -1).flatten(1, 2)  # (B, T * E, T)
        contract = normalise(backward.flatten(1, 2), 1)  # (B, T * E, T), still to be transposed
        transposed = contract.transpose(1, 2)
        if self.training and self.dropout.p > 0:
            gathered = transposed @ self.dropout(expand @ values)
        else:  # R_bw (R_fw V) = (R_bw R_fw) V, and T is far smaller than D
            gathered = (transposed @ expand) @ values
        # R_bw (C_i + B_e) = (sum_e R_bw) C + (sum_i R_bw) B, so that no expanded bias is built either.
        by_element = contract.view_as(backward)
        bias = by_element.sum(2).transpose(1, 2) @ condition + by_element.sum(1).transpose(1, 2) @ self.biases
        collected: Tensor = self.dropout(gathered + bias)
        return collected

    def start(self, like: Tensor) -> Cache:
        """The cache before the first position; `like` (B, ..., D) gives batch size, device and type."""
        batch, width, length = like.shape[0], like.shape[-1], len(self.queries)
        rows = like.new_zeros(batch, 0, width)
        expand = full_precision(like.new_zeros(batch, 0, length, 0))
        return {
            "condition": rows,
            "key": rows,
            "value_a": rows,
            "value_b": rows,
            "element": like.new_zeros(batch, 0, length),
            "expand_a": expand,
            "expand_b": expand,
        }

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """One position: x (R, 1, D) and the cache of R rows.

        The forward rows of earlier positions see nothing later, so they are kept normalised as they were; only the
        new position's forward rows and its backward row are scored. Dropout is not applied.
        """
        value_a, value_b = self.streams.values(x)
        new = {"condition": self.condition(x), "key": self.key(x), "value_a": value_a, "value_b": value_b}
        new["element"] = F.linear(new["key"], self.queries)
        past = {name: append(cache[name], entry, 1) for name, entry in new.items()}
        scale = x.shape[-1] ** 0.5
        forward = new["condition"] @ past["key"].transpose(1, 2) + past["element"].transpose(1, 2)  # (R, E, T)
        backward = past["condition"] @ new["key"].transpose(1, 2) + new["element"]  # (R, T, E)
        forward, backward = full_precision(forward / scale), full_precision(backward / scale)
        past["expand_a"] = _append_square(cache["expand_a"], normalise(F.relu(forward), -1))
        past["expand_b"] = _append_square(cache["expand_b"], normalise(F.relu(-forward), -1))
        a = self._collect(F.relu(backward), past["expand_a"], past["value_a"], past["condition"])
        b = self._collect(F.relu(-backward), past["expand_b"], past["value_b"], past["condition"])
        return self.streams.combine(x, a, b), past

    def _collect(self, backward: Tensor, expand: Tensor, values: Tensor, condition: Tensor) -> Tensor:
        """The new position's row: backward (R, T, E), expand (R, T, E, T), values and condition (R, T, D)."""
        contract = normalise(backward, (1, 2))
        gathered = (contract.flatten(1)[:, None] @ expand.flatten(1, 2)) @ values
        return gathered + contract.sum(2)[:, None] @ condition + contract.sum(1)[:, None] @ self.biases


def _append_square(past: Tensor, row: Tensor) -> Tensor:
    """Grow (R, T - 1, E, T - 1) by the forward rows (R, E, T) of the new position, which nobody earlier saw."""
    return torch.cat((F.pad(past, (0, 1)), row[:, None]), 1)
