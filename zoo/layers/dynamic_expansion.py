"""Dynamic expansion (ExpansionNet, arXiv:2207.03327, and ExpansionNet v2, arXiv:2208.06551).

Source of the conventions: https://github.com/jchenghu/ExpansionNet_v2 (MIT).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.attention import joined
from zoo.layers.cache import Cache, append, widen, widen_pairs
from zoo.layers.expansion import (
    EPSILON,
    GatedStreams,
    full_precision,
    gate,
    gate_streams,
    normalise,
    side_by_side,
)
from zoo.layers.precision import exactly


class DynamicExpansion(nn.Module):
    """Expand each of T positions to `length` elements conditioned on it, and contract T * length elements again.

    Element (i, e) has the query C_i + Q_e and the bias C_i + B_e. If `causal`, it attends to positions j <= i, and
    position j collects the elements of positions i <= j, so that row j depends on x_1 .. x_j only.
    """

    totals: Tensor

    def __init__(self, d_model: int, length: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.queries = nn.Parameter(torch.empty(length, d_model))
        self.biases = nn.Parameter(torch.empty(length, d_model))
        self.condition = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.streams = GatedStreams(d_model)
        self.dropout = nn.Dropout(dropout)
        least = self.streams.signs[:, None, None] * (d_model**0.5 * EPSILON)
        self.register_buffer("totals", torch.cat((torch.ones(2, length, 1), least), 1), persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, D) to (B, T, D); `mask` (B, T) is true at valid positions, the others get an output of zero."""
        streams, width = self.streams, x.shape[-1]
        projection = joined(streams.selector, self.condition, self.key, streams.value_a, streams.value_b)
        selector, condition, key, values = torch.split(F.linear(x, *projection), [width] * 3 + [2 * width], -1)
        # (C_i + Q_e) . K_j = C_i . K_j + Q_e . K_j, so no expanded query is ever built.
        by_position = (condition @ key.transpose(1, 2))[:, :, None]  # (B, i, 1, j)
        by_element = F.linear(key, self.queries).transpose(1, 2)[:, None]  # (B, 1, e, j)
        weights = streams.weigh(self.dropout(by_position + by_element))  # (2, B, i, e, j)
        forward, backward = self._hide(weights, mask)
        expand = normalise(forward, -1, scale=width**0.5)
        contract = normalise(backward, (2, 3), scale=width**0.5)
        collected = self._collect(expand.flatten(0, 1), contract.flatten(0, 1), side_by_side(values), condition)
        return gate_streams(selector, collected)

    def _hide(self, weights: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weights for expanding (position j seen by i) and for contracting (i collected by j), of their shape."""
        if mask is None and not self.causal:
            return weights, weights
        length = weights.shape[2]
        hidden = weights.new_ones(length, length, dtype=torch.bool)
        if self.causal:
            hidden = hidden.triu(1)
        if mask is not None:
            unseen = ~(mask[:, :, None] & mask[:, None, :])
            hidden = hidden | unseen if self.causal else unseen
        hidden = hidden.unsqueeze(-2)
        return weights.masked_fill(hidden, 0.0), weights.masked_fill(hidden.transpose(-1, -3), 0.0)

    def _collect(self, expand: Tensor, contract: Tensor, values: Tensor, condition: Tensor) -> Tensor:
        """The output (2 * B, T, D) of both streams, from weights (2 * B, i, e, j) and values (2 * B, T, D)."""
        transposed = contract.flatten(1, 2).transpose(1, 2)  # (2 * B, T, T * E)
        if self.training and self.dropout.p > 0:
            gathered = transposed @ self.dropout(expand.flatten(1, 2) @ values)
        else:  # R_bw (R_fw V) = (R_bw R_fw) V, and T is far smaller than D
            gathered = (transposed @ expand.flatten(1, 2)) @ values
        # R_bw (C_i + B_e) = (sum_e R_bw) C + (sum_i R_bw) B, so no expanded bias is built either.
        biases = self.biases.expand(len(contract), -1, -1)
        gathered = torch.baddbmm(gathered, contract.sum(1).transpose(1, 2), biases)
        condition = condition.expand(2, *condition.shape).flatten(0, 1)
        collected: Tensor = self.dropout(torch.baddbmm(gathered, contract.sum(2).transpose(1, 2), condition))
        return collected

    def start(self, like: Tensor) -> Cache:
        """The cache before the first position; `like` (B, ..., D) gives batch size, device and type.

        rows: (R, 2, T, E + 2 D), [Q_e . K_j, value a, condition] above [anything, value b, key], since one tensor is
        joined and reordered sooner than five; expand: (R, 2, j, i, E), the weights of positions j in the elements of
        positions i, normalised, of both streams.
        """
        batch, length = like.shape[0], len(self.queries)
        rows = like.new_zeros(batch, 2, 0, 2 * like.shape[-1] + length)
        return {"rows": rows, "expand": full_precision(like.new_zeros(batch, 2, 0, 0, length))}

    def widen(self, caches: Cache) -> Cache:
        """The cache with room for one more position, or those of several layers."""
        return {"rows": widen(caches["rows"]), "expand": widen_pairs(caches["expand"])}

    def projection(self) -> tuple[Tensor, ...]:
        """What a step takes from the weights alone.

        Weight and bias of one product for everything that it computes from x: selector, then `rows`. And of another
        one, (2, E + 1, D + 1), whose last row is added: from the sums of each element's weights to the part of the
        biases B, and to their total, which is then never 0.
        """
        streams, element = self.streams, (self.queries @ self.key.weight, self.queries @ self.key.bias)
        layers = (streams.selector, element, streams.value_a, self.condition, streams.value_b, self.key)
        biases = full_precision(F.pad(self.biases, (0, 0, 0, 1))).expand(2, -1, -1)
        return *joined(*layers), torch.cat((biases, self.totals.to(biases.dtype)), -1)

    def step(self, x: Tensor, cache: Cache, projection: tuple[Tensor, ...]) -> tuple[Tensor, Cache]:
        """One position: x (R, 1, D), the cache of R rows as `widen` gives it, and what `projection` gives.

        The forward rows of earlier positions do not depend on later ones, so they are cached normalised; only the
        new position's forward rows and its backward row are scored. Dropout is not applied.
        """
        weight, bias, totals = projection
        width, length = x.shape[-1], len(self.queries)
        selector, new = torch.split(F.linear(x, weight, bias), [width, length + 4 * width], -1)
        # Two parts of equal size: the second begins with the end of the first, in the place of Q_e . K_j.
        rows = append(cache["rows"], new.unfold(-1, length + 2 * width, 2 * width).transpose(1, 2))
        element, values, inner = torch.split(rows, [length, width, width], -1)
        condition, key = inner.unbind(1)
        # Scores of the new position's elements against all positions, and of all elements against the new position.
        scores = _join(key @ condition[:, -1, :, None], condition @ key[:, -1, :, None], element[:, 0])  # (R, 2, T, E)
        # relu(z) for stream a, -relu(-z) for b, whose sums are then negative too.
        weights = torch.clamp(full_precision(scores)[:, None], *self.streams.bounds)  # (R, 2, 2, T, E)
        to_expand, to_contract = weights.unbind(2)
        sums = weights.transpose(0, 1).sum(3)  # (2, R, 2, E)
        forward, backward = sums.unbind(2)
        with exactly(sums):
            summed = torch.baddbmm(totals[:, length:], backward, totals[:, :length]).transpose(0, 1)  # (R, 2, D + 1)
        # Append the new position's forward rows; earlier rows do not depend on it and get a row of zeros.
        total = (forward + totals[:, length:, width:]).transpose(0, 1)[:, :, None]
        expand = _extend(cache["expand"], to_expand, total)  # (R, 2, j, i, E)
        gathered = torch.bmm(expand.flatten(0, 1).flatten(2), to_contract.flatten(0, 1).flatten(1)[..., None])
        biases = torch.baddbmm(summed[..., :width], to_contract.sum(-1), condition)  # (R, 2, D)
        collected = torch.baddbmm(biases.flatten(0, 1)[:, None], gathered.transpose(1, 2), values.flatten(0, 1))
        streams = collected.view(-1, 2, 1, width) / summed[..., None, width:]
        return gate(selector, *streams.unbind(1)), {"rows": rows, "expand": expand}


def _extend(expand: Tensor, weights: Tensor, total: Tensor) -> Tensor:
    """`expand` (R, 2, j, i, E), see `widen_pairs`, with the new position's `weights` (R, 2, j, E) over `total`."""
    if torch.is_grad_enabled():
        return torch.cat((F.pad(expand, (0, 0, 0, 0, 0, 1)), (weights / total)[:, :, :, None]), 3)
    torch.div(weights, total, out=expand[:, :, :, -1])
    return expand


def _join(forward: Tensor, backward: Tensor, element: Tensor) -> Tensor:
    """Scores (R, 2, T, E): `forward` (R, T, 1) plus the elements (R, T, E), `backward` plus those of the last."""
    if torch.is_grad_enabled():
        return torch.stack((forward + element, backward + element[:, -1:]), 1)
    scores = element.new_empty(element.shape[0], 2, *element.shape[1:])
    torch.add(forward, element, out=scores[:, 0])
    torch.add(backward, element[:, -1:], out=scores[:, 1])
    return scores
