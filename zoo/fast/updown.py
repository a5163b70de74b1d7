"""Up-Down's recurrence over all positions of a caption, with its gradient written out."""

from typing import Any

import torch
from torch import Tensor

from zoo.fast.lstm import LSTMGradient, LSTMTape

_CHUNK = 10  # positions for which the gradients of the attention's keys are computed at a time
_ATTENTION_READS, _LANGUAGE_READS, _ATTENDED, _ATTENTION, _LANGUAGE = (0, 2), (1, 4), (2, 3), (3, 4), (4, 5)
"""First and last of a position's vectors in `_Windows`: what each LSTM reads, and what is written."""


class _Windows:
    """What is read and written of (rows, 2 R + 3 R T), the vectors of all positions side by side."""

    def __init__(self, vectors: Tensor, width: int) -> None:
        self.vectors, self.width = vectors, width

    def at(self, position: int, part: tuple[int, int]) -> Tensor:
        first, last = ((3 * position + place) * self.width for place in part)
        return self.vectors[:, first:last]

    def all_of(self, part: tuple[int, int]) -> Tensor:
        """A part of all positions, (rows, T, ...)."""
        length = self.vectors.shape[1] // (3 * self.width)
        parts = self.vectors[:, part[0] * self.width :].unfold(1, (part[1] - part[0]) * self.width, 3 * self.width)
        return parts[:, :length]


class UpDownScan(torch.autograd.Function):
    """The language states (rows, T, R) of all positions, from zeros: the recurrence with its gradient written out.

    Positions write their vectors side by side into one tensor, in the order in which both LSTMs read them, so that
    none is copied: attention state a and language state l of the position before; then of each position the attended
    regions v, a and l. The attention LSTM reads [a | l], the language LSTM [l | v | a].

    Args:
        inputs: (rows, T, 4 R), pre-activations of the attention LSTM but for the past states.
        keys, attention_bias: of `AdditiveAttention.project`, (B, L, A) and (B, 1, L).
        values: (B, L, R).
        attention_weight: (4 R, 2 R), of [a | l].
        query, score: (A, R) and (1, A), weights of the attention.
        language_weight, language_bias: (4 R, 3 R), of [l | v | a], and (4 R).
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        keys: Tensor,
        attention_bias: Tensor,
        values: Tensor,
        attention_weight: Tensor,
        query: Tensor,
        score: Tensor,
        language_weight: Tensor,
        language_bias: Tensor,
    ) -> Tensor:
        (rows, length, _), width, batch = inputs.shape, values.shape[2], keys.shape[0]
        scales = LSTMTape.scales(inputs, width)
        inputs, language_bias = inputs * scales, language_bias * scales
        to_attention, to_language = (weight * scales[:, None] for weight in (attention_weight, language_weight))
        # tanh(x) = 2 sigmoid(2 x) - 1, as in `AdditiveAttention`, whose keys are doubled already.
        each = rows // batch
        row_biases = attention_bias.expand(-1, each, -1).reshape(-1)
        seen = _Windows(inputs.new_empty(rows, (2 + 3 * length) * width), width)
        seen.at(0, _ATTENTION_READS).zero_()
        attending, speaking = (LSTMTape.blank(inputs, length, rows, width) for _ in range(2))
        active = keys.new_empty(length, batch, each, *keys.shape[1:])
        weights = keys.new_empty(length, batch, each, keys.shape[1])
        for t in range(length):
            state = seen.at(t, _ATTENTION)
            attending.advance(t, seen.at(t, _ATTENTION_READS), to_attention, inputs[:, t], state)
            torch.add(keys[:, None], (state @ query.t()).view(batch, each, 1, -1), alpha=2, out=active[t])
            scores = torch.addmv(row_biases, active[t].sigmoid_().flatten(0, 2), score.view(-1), alpha=2)
            torch.softmax(scores.view_as(weights[t]), -1, out=weights[t])
            torch.bmm(weights[t], values, out=seen.at(t, _ATTENDED).view(batch, each, width))
            speaking.advance(t, seen.at(t, _LANGUAGE_READS), to_language, language_bias, seen.at(t, _LANGUAGE))
        tapes = (tape for lstm in (attending, speaking) for tape in (lstm.gates, lstm.cells))
        ctx.save_for_backward(
            values, attention_weight, query, score, language_weight, seen.vectors, active, weights, *tapes
        )
        return seen.all_of(_LANGUAGE).contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of all but the attention bias."""
        values, attention_weight, query, score, language_weight, vectors, active, weights, *tapes = ctx.saved_tensors
        (rows, length, width), (batch, places, _) = gradient.shape, values.shape
        attending, speaking = (LSTMGradient(LSTMTape(*tape)) for tape in (tapes[:2], tapes[2:]))
        seen, to = _Windows(vectors, width), _Windows(torch.zeros_like(vectors), width)
        to.all_of(_LANGUAGE).copy_(gradient)
        to_scores = torch.empty_like(weights)
        to_queries = query.new_empty(length, rows, query.shape[0])
        slopes, turned = score.view(-1) * 4.0, values.transpose(1, 2)
        for t in reversed(range(length)):
            to_read = to.at(t, _LANGUAGE_READS)
            torch.addmm(to_read, speaking.back(t, to.at(t, _LANGUAGE)), language_weight, out=to_read)
            to_weights = torch.bmm(to.at(t, _ATTENDED).view(batch, -1, width), turned)
            torch.ops.aten._softmax_backward_data.out(
                to_weights, weights[t], -1, weights.dtype, grad_input=to_scores[t]
            )
            slope = torch.ops.aten.sigmoid_backward(slopes.expand_as(active[t]), active[t])
            torch.bmm(to_scores[t].view(rows, 1, places), slope.flatten(0, 1), out=to_queries[t][:, None])
            torch.addmm(to.at(t, _ATTENTION), to_queries[t], query, out=to.at(t, _ATTENTION))
            to_read = to.at(t, _ATTENTION_READS)
            torch.addmm(to_read, attending.back(t, to.at(t, _ATTENTION)), attention_weight, out=to_read)

        def product(gradients: Tensor, part: tuple[int, int]) -> Tensor:
            """The gradient of a matrix that multiplies a part of all positions, from (T, rows, O)."""
            read = seen.all_of(part).transpose(0, 1).reshape(length * rows, -1)
            return gradients.flatten(0, 1).t() @ read

        to_inputs, to_language = attending.gates(), speaking.gates()
        by_image = weights.permute(1, 3, 0, 2).reshape(batch, places, -1)
        to_attended = to.all_of(_ATTENDED).view(batch, -1, length, width).transpose(1, 2).reshape(batch, -1, width)
        return (
            to_inputs.transpose(0, 1),
            _to_keys(to_scores, active, score),
            None,
            by_image @ to_attended,
            product(to_inputs, _ATTENTION_READS),
            product(to_queries, _ATTENTION),
            2.0 * (to_scores.view(1, -1) @ active.view(-1, active.shape[-1])),
            product(to_language, _LANGUAGE_READS),
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
