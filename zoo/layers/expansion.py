"""Static and dynamic expansion.

J. C. Hu, R. Cavicchioli, A. Capotondi: ExpansionNet (arXiv:2207.03327) and ExpansionNet v2 (arXiv:2208.06551). Source
of the conventions: https://github.com/jchenghu/ExpansionNet_v2 (MIT).

Both layers expand a sequence to another length and contract it back, in two streams: the weights of stream a are
relu(Z), those of stream b relu(-Z), where Z (B, N, L) are the scores of N expanded elements and L positions. The
forward step (equations 3 and 5 of the v2 paper) normalises over L, the backward step (equations 7 and 8; 6 and 7 of its
later version) over N. The papers normalise the whole row of N and scale it by 1 / N_G; the authors' code, and this
module, first normalise each group separately. The paper's stream 1 is stream b of the authors' code and of this module;
its later version misprints R_bw for R_fw in equations 3 and 5. One tensor holds both streams, first a, then b.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.attention import fuse_linears
from zoo.layers.cache import Cache, append, widen, widen_pairs
from zoo.precision import full_precision, no_autocast, product_type

EPSILON = 1e-9


def normalise(weights: Tensor, dim: int | tuple[int, ...], groups: Sequence[int] = (), scale: float = 1.0) -> Tensor:
    """psi: divide by the sum along `dim`; zeros stay zeros. The result has the type of the products that follow.

    Args:
        groups: lengths of parts of the last dimension, for which `dim` must be -1: each part is normalised separately
            and divided by their number, so that the results of the groups are averaged.
        scale: divisor of the scores in the paper, which is not applied here: it only affects the weight of EPSILON.
    """
    if groups:
        parts = [normalise(part, -1, scale=scale) for part in torch.split(weights, list(groups), -1)]
        return torch.cat(parts, -1) / len(groups)
    return (weights / (weights.sum(dim, keepdim=True) + scale * EPSILON)).to(product_type(weights))


class GatedStreams(nn.Module):
    """The projections of the two streams' values and of the gate between their outputs."""

    bounds: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.value_a = nn.Linear(d_model, d_model)
        self.value_b = nn.Linear(d_model, d_model)
        self.selector = nn.Linear(d_model, d_model)
        bounds = torch.tensor([[0.0, -torch.inf], [torch.inf, 0.0]])
        self.register_buffer("bounds", bounds.view(2, 2, 1, 1, 1), persistent=False)

    def weigh(self, scores: Tensor) -> Tensor:
        """relu(scores) and relu(-scores), (...) to (2, ...), in at least float32: in half precision EPSILON is 0."""
        scores = full_precision(scores)
        return torch.stack((scores.relu(), (-scores).relu()))


def stack_streams(values: Tensor) -> Tensor:
    """The values of both streams, concatenated (B, L, 2 * D), as (2 * B, L, D)."""
    return values.view(*values.shape[:2], 2, -1).permute(2, 0, 1, 3).flatten(0, 1)


def gate(selector: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """sigmoid(selector) * a + (1 - sigmoid(selector)) * b, elementwise."""
    return torch.lerp(b, a, torch.sigmoid(selector).to(a.dtype))


class DynamicExpansion(nn.Module):
    """Expand each of T positions to `length` elements conditioned on it, and contract the T * length elements again.

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
        epsilon = torch.tensor([1.0, -1.0])[:, None, None] * (d_model**0.5 * EPSILON)
        self.register_buffer("totals", torch.cat((torch.ones(2, length, 1), epsilon), 1), persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, D) to (B, T, D).

        `mask` (B, T), if not causal, is true at valid positions; others contribute nothing and collect nothing.
        """
        streams = self.streams
        width = x.shape[-1]
        projection = fuse_linears(streams.selector, self.condition, self.key, streams.value_a, streams.value_b)
        selector, condition, key, values = torch.split(F.linear(x, *projection), [width] * 3 + [2 * width], -1)
        # (C_i + Q_e) . K_j = C_i . K_j + Q_e . K_j, so no expanded query is ever built.
        by_position = (condition @ key.transpose(1, 2))[:, :, None]  # (B, i, 1, j)
        by_element = F.linear(key, self.queries).transpose(1, 2)[:, None]  # (B, 1, e, j)
        weights = streams.weigh(self.dropout(by_position + by_element))  # (2, B, i, e, j)
        forward, backward = self._hide(weights, mask)
        expand = normalise(forward, -1, scale=width**0.5)
        contract = normalise(backward, (2, 3), scale=width**0.5)
        collected = self._collect(expand.flatten(0, 1), contract.flatten(0, 1), stack_streams(values), condition)
        return gate(selector, *collected.chunk(2))

    def _hide(self, weights: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weights for expanding (i attends to j) and for contracting (j collects i), with zeros at hidden pairs."""
        if self.causal:
            hidden = weights.new_ones(weights.shape[2], weights.shape[2], dtype=torch.bool).triu(1)
        elif mask is not None:
            hidden = ~(mask[:, :, None] & mask[:, None, :])
        else:
            return weights, weights
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
        biases = self.biases.to(product_type(self.biases)).expand(len(contract), -1, -1)
        gathered = torch.baddbmm(gathered, contract.sum(1, dtype=contract.dtype).transpose(1, 2), biases)
        condition = condition.expand(2, *condition.shape).flatten(0, 1)
        by_position = contract.sum(2, dtype=contract.dtype).transpose(1, 2)
        collected: Tensor = self.dropout(torch.baddbmm(gathered, by_position, condition))
        return collected

    def start(self, like: Tensor) -> Cache:
        """The cache before the first position, for the batch size, device and type of `like` (B, ..., D).

        rows: (R, 2, T, E + 2 D), two rows per position, [Q_e . K_j, value a, condition] and [unused, value b, key]:
        one tensor is concatenated and reordered in less time than five. expand: (R, 2, j, i, E), the normalised weights
        of positions j in the elements of positions i, of both streams.
        """
        batch = like.shape[0]
        length = len(self.queries)
        rows = like.new_zeros(batch, 2, 0, 2 * like.shape[-1] + length, dtype=product_type(like))
        return {"rows": rows, "expand": full_precision(like.new_zeros(batch, 2, 0, 0, length))}

    def widen(self, caches: Cache) -> Cache:
        """The cache, of one layer or several, extended by one position."""
        return {"rows": widen(caches["rows"]), "expand": widen_pairs(caches["expand"])}

    def projection(self) -> tuple[Tensor, ...]:
        """Tensors of `step` that depend on weights only.

        Returns:
            Weight and bias of one linear layer, from x to the selector and both cache rows of the position. And a
            matrix (2, E + 1, D + 1), which maps the summed weights of the E elements to their part of the biases B and
            to their total; its last row is a constant that keeps the total away from 0.
        """
        streams = self.streams
        element = (self.queries @ self.key.weight, self.queries @ self.key.bias)
        layers = (streams.selector, element, streams.value_a, self.condition, streams.value_b, self.key)
        biases = full_precision(F.pad(self.biases, (0, 0, 0, 1))).expand(2, -1, -1)
        totals = torch.cat((biases, self.totals.to(biases.dtype)), -1)
        return *(part.to(product_type(part)) for part in fuse_linears(*layers)), totals

    def step(self, x: Tensor, cache: Cache, projection: tuple[Tensor, ...]) -> tuple[Tensor, Cache]:
        """One position: x (R, 1, D) with the cache of R rows, after `widen`, and the results of `projection`.

        The forward rows of earlier positions do not depend on later ones, so their normalised weights are cached; only
        the new position's forward rows and its backward row are computed. Dropout is not applied.
        """
        weight, bias, totals = projection
        width = x.shape[-1]
        length = len(self.queries)
        selector, new = torch.split(F.linear(x, weight, bias), [width, length + 4 * width], -1)
        # Two rows of equal length: they overlap by E, since the second row's first E entries are unused.
        rows = append(cache["rows"], new.unfold(-1, length + 2 * width, 2 * width).transpose(1, 2))
        element, values, inner = torch.split(rows, [length, width, width], -1)
        condition, key = inner.unbind(1)
        # Scores of the new position's elements against all positions, and of all elements against the new position.
        forward_scores = key @ condition[:, -1, :, None]
        backward_scores = condition @ key[:, -1, :, None]
        scores = _add_element_scores(forward_scores, backward_scores, element[:, 0])  # (R, 2, T, E)
        # relu(z) for stream a, -relu(-z) for b, whose sums are then negative too.
        weights = torch.clamp(full_precision(scores)[:, None], *self.streams.bounds)  # (R, 2, 2, T, E)
        to_expand, to_contract = weights.unbind(2)
        sums = weights.transpose(0, 1).sum(3)  # (2, R, 2, E)
        forward, backward = sums.unbind(2)
        with no_autocast(sums):
            summed = torch.baddbmm(totals[:, length:], backward, totals[:, :length]).transpose(0, 1)  # (R, 2, D + 1)
        # Append the new position's forward rows; earlier rows do not depend on it and get a row of zeros.
        total = (forward + totals[:, length:, width:]).transpose(0, 1)[:, :, None]
        expand = _append_weights(cache["expand"], to_expand, total)  # (R, 2, j, i, E)
        gathered = torch.bmm(expand.flatten(0, 1).flatten(2), to_contract.flatten(0, 1).flatten(1)[..., None])
        biases = torch.baddbmm(summed[..., :width], to_contract.sum(-1), condition)  # (R, 2, D)
        collected = torch.baddbmm(biases.flatten(0, 1)[:, None], gathered.transpose(1, 2), values.flatten(0, 1))
        streams = collected.view(-1, 2, 1, width) / summed[..., None, width:]
        return gate(selector, *streams.unbind(1)), {"rows": rows, "expand": expand}


def _append_weights(expand: Tensor, weights: Tensor, total: Tensor) -> Tensor:
    """Add the new position's `weights` (R, 2, j, E), divided by `total`, to `expand` (R, 2, j, i, E)."""
    if torch.is_grad_enabled():
        return torch.cat((F.pad(expand, (0, 0, 0, 0, 0, 1)), (weights / total)[:, :, :, None]), 3)
    torch.div(weights, total, out=expand[:, :, :, -1])
    return expand


def _add_element_scores(forward: Tensor, backward: Tensor, element: Tensor) -> Tensor:
    """Scores (R, 2, T, E): `forward` (R, T, 1) plus Q_e . K_j (R, T, E), and `backward` plus that of the last j."""
    if torch.is_grad_enabled():
        return torch.stack((forward + element, backward + element[:, -1:]), 1)
    scores = element.new_empty(element.shape[0], 2, *element.shape[1:])
    torch.add(forward, element, out=scores[:, 0])
    torch.add(backward, element[:, -1:], out=scores[:, 1])
    return scores


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
        """(B, L, D) to (B, L, D); `mask` (B, L) is true at visible positions.

        Masked positions get an output too, which is meaningless and does not affect other positions.
        """
        streams = self.streams
        width = x.shape[-1]
        projection = fuse_linears(streams.value_a, streams.value_b, streams.selector, self.key)
        values, selector, key = torch.split(F.linear(x, *projection), [2 * width, width, width], -1)
        # The scores Z^T (B, L, N) are not divided by sqrt(d), which normalising would undo.
        weights = streams.weigh(self.dropout(F.linear(key, self.queries)))  # (2, B, L, N)
        visible = weights if mask is None else weights.masked_fill(~mask[..., None], 0.0)
        # Expand over the visible positions, then contract: each group's weights sum to one, and groups average.
        expand = normalise(visible, 2, scale=width**0.5).flatten(0, 1).transpose(1, 2)  # R_fw, (2 * B, N, L)
        contract = normalise(weights, -1, self.lengths, width**0.5).flatten(0, 1)  # R_bw, (2 * B, L, N)
        expanded = self.dropout(torch.baddbmm(self.biases, expand, stack_streams(values)))
        collected = self.dropout(contract @ expanded)
        return gate(selector, *collected.chunk(2))
