"""The recurrence of Up-Down over a whole caption, with its gradient written out: half of the kernels of its parts.

Positions write their vectors side by side into one tensor, in the order in which both LSTMs read them, so that none is
copied: attention state a and language state l of the position before; then of each position the attended regions v, a
and l. The attention LSTM reads [a | l], the language LSTM [l | v | a].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zoo.layers.lstm_tape import LSTMTape

_CHUNK = 10
"""Positions for which the gradients of the attention's keys are computed at a time."""


def scan_updown(
    inputs: Tensor,
    images: tuple[Tensor, Tensor, Tensor],
    attention_weight: Tensor,
    query: Tensor,
    score: Tensor,
    language_weight: Tensor,
    language_bias: Tensor,
) -> Tensor:
    """The language states of all positions, from states of zeros.

    Args:
        inputs: (rows, T, 4 R), pre-activations of the attention LSTM but for the past states.
        images: keys (B, L, A) and barrier (B, 1, L) of `AdditiveAttention.project`, and values (B, L, R).
        attention_weight: (4 R, 2 R), of [a | l].
        query, score: (A, R) and (1, A), weights of the attention.
        language_weight, language_bias: (4 R, 3 R), of [l | v | a], and (4 R).

    Returns:
        (rows, T, R).
    """
    weights = (attention_weight, query, score, language_weight, language_bias)
    states: Tensor = _Scan.apply(inputs, *images, *weights)
    return states


class _Windows:
    """What is read and written of (rows, 2 R + 3 R T), the vectors of all positions side by side."""

    def __init__(self, vectors: Tensor, width: int) -> None:
        self.vectors, self.width = vectors, width

    def _part(self, position: int, first: int, last: int) -> Tensor:
        return self.vectors[:, (3 * position + first) * self.width : (3 * position + last) * self.width]

    def attention_reads(self, position: int) -> Tensor:
        return self._part(position, 0, 2)

    def language_reads(self, position: int) -> Tensor:
        return self._part(position, 1, 4)

    def attended(self, position: int) -> Tensor:
        return self._part(position, 2, 3)

    def attention(self, position: int) -> Tensor:
        return self._part(position, 3, 4)

    def language(self, position: int) -> Tensor:
        return self._part(position, 4, 5)

    def all_of(self, first: int, last: int) -> Tensor:
        """A part of all positions, (rows, T, ...)."""
        length = self.vectors.shape[1] // (3 * self.width)
        parts = self.vectors[:, first * self.width :].unfold(1, (last - first) * self.width, 3 * self.width)
        return parts[:, :length]


class _Scan(torch.autograd.Function):
    """See `scan_updown`."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        keys: Tensor,
        barrier: Tensor,
        values: Tensor,
        attention_weight: Tensor,
        query: Tensor,
        score: Tensor,
        language_weight: Tensor,
        language_bias: Tensor,
    ) -> Tensor:
        """See `scan_updown`."""
        (rows, length, _), width, batch = inputs.shape, values.shape[2], keys.shape[0]
        scales = LSTMTape.scales(inputs, width)
        inputs, language_bias = inputs * scales, language_bias * scales
        to_attention, to_language = (weight * scales[:, None] for weight in (attention_weight, language_weight))
        # tanh(x) = 2 sigmoid(2 x) - 1, as in `AdditiveAttention`, whose keys are doubled already.
        each = rows // batch
        barriers = barrier.expand(-1, each, -1).reshape(-1)
        seen = _Windows(inputs.new_empty(rows, (2 + 3 * length) * width), width)
        seen.attention_reads(0).zero_()
        attending, speaking = (LSTMTape.blank(inputs, length, rows, width) for _ in range(2))
        active = keys.new_empty(length, batch, each, *keys.shape[1:])
        weights = keys.new_empty(length, batch, each, keys.shape[1])
        for t in range(length):
            state = seen.attention(t)
            attending.advance(t, seen.attention_reads(t), to_attention, inputs[:, t], state)
            torch.add(keys[:, None], (state @ query.t()).view(batch, each, 1, -1), alpha=2, out=active[t])
            scores = torch.addmv(barriers, active[t].sigmoid_().flatten(0, 2), score.view(-1), alpha=2)
            torch.softmax(scores.view_as(weights[t]), -1, out=weights[t])
            torch.bmm(weights[t], values, out=seen.attended(t).view(batch, each, width))
            speaking.advance(t, seen.language_reads(t), to_language, language_bias, seen.language(t))
        tapes = (tape for lstm in (attending, speaking) for tape in (lstm.gates, lstm.cells))
        ctx.save_for_backward(
            values, attention_weight, query, score, language_weight, seen.vectors, active, weights, *tapes
        )
        return seen.all_of(4, 5).contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of all but the barrier."""
        values, attention_weight, query, score, language_weight, vectors, active, weights, *tapes = ctx.saved_tensors
        (rows, length, width), (batch, places, _) = gradient.shape, values.shape
        attending, speaking = LSTMTape(*tapes[:2]).gradient(), LSTMTape(*tapes[2:]).gradient()
        seen, to = _Windows(vectors, width), _Windows(torch.zeros_like(vectors), width)
        to.all_of(4, 5).copy_(gradient)
        to_scores = torch.empty_like(weights)
        to_queries = query.new_empty(length, rows, query.shape[0])
        slopes, turned = score.view(-1) * 4.0, values.transpose(1, 2)
        for t in reversed(range(length)):
            to_read = to.language_reads(t)
            torch.addmm(to_read, speaking.back(t, to.language(t)), language_weight, out=to_read)
            to_weights = torch.bmm(to.attended(t).view(batch, -1, width), turned)
            torch.ops.aten._softmax_backward_data.out(
                to_weights, weights[t], -1, weights.dtype, grad_input=to_scores[t]
            )
            slope = torch.ops.aten.sigmoid_backward(slopes.expand_as(active[t]), active[t])
            torch.bmm(to_scores[t].view(rows, 1, places), slope.flatten(0, 1), out=to_queries[t][:, None])
            torch.addmm(to.attention(t), to_queries[t], query, out=to.attention(t))
            to_read = to.attention_reads(t)
            torch.addmm(to_read, attending.back(t, to.attention(t)), attention_weight, out=to_read)

        def product(gradients: Tensor, first: int, last: int) -> Tensor:
            """The gradient of a matrix that multiplies a part of all positions, from (T, rows, O)."""
            read = seen.all_of(first, last).transpose(0, 1).reshape(length * rows, -1)
            return gradients.flatten(0, 1).t() @ read

        to_inputs, to_language = attending.gates(), speaking.gates()
        by_image = weights.permute(1, 3, 0, 2).reshape(batch, places, -1)
        to_attended = to.all_of(2, 3).view(batch, -1, length, width).transpose(1, 2).reshape(batch, -1, width)
        return (
            to_inputs.transpose(0, 1),
            _to_keys(to_scores, active, score),
            None,
            by_image @ to_attended,
            product(to_inputs, 0, 2),
            product(to_queries, 3, 4),
            2.0 * (to_scores.view(1, -1) @ active.view(-1, active.shape[-1])),
            product(to_language, 1, 4),
            to_language.flatten(0, 1).sum(0),
        )


def _to_keys(to_scores: Tensor, active: Tensor, score: Tensor) -> Tensor | None:
    """The gradient of the keys (B, L, A), some positions at a time: that of the sums is as large as `active`."""
    to_keys, slopes = None, score.view(-1) * 2.0
    for few, sums in zip(torch.split(to_scores, _CHUNK), torch.split(active, _CHUNK), strict=True):
        slope = torch.ops.aten.sigmoid_backward(slopes.expand_as(sums), sums)
        part = slope.mul_(few[..., None]).sum((0, 2))
        to_keys = part if to_keys is None else to_keys.add_(part)
    return to_keys
