"""Up-Down's recurrence over all positions of a caption, with a hand-written gradient."""

from typing import Any

import torch
from torch import Tensor

from zoo.fast.lstm import LSTMGradient, LSTMTape

_CHUNK = 10  # positions for which the gradients of the attention's keys are computed at a time
_ATTENTION_READS = (0, 2)
_LANGUAGE_READS = (1, 4)
_ATTENDED = (2, 3)
_ATTENTION = (3, 4)
_LANGUAGE = (4, 5)
"""Ranges of vectors in `_Windows`, from the first vector of a position: those that each LSTM reads, and each result."""


class _Windows:
    """Views of a tensor (rows, 2 R + 3 R T) with the vectors of all positions side by side (`UpDownScan`).

    Position t begins at vector 3 t. The ranges of neighbouring positions overlap.
    """

    def __init__(self, vectors: Tensor, width: int) -> None:
        self.vectors = vectors
        self.width = width

    def at(self, position: int, vector_range: tuple[int, int]) -> Tensor:
        """A range of vectors of one position, (rows, ...)."""
        begin, end = vector_range
        return self.vectors[:, (3 * position + begin) * self.width : (3 * position + end) * self.width]

    def at_all(self, vector_range: tuple[int, int]) -> Tensor:
        """A range of vectors of all positions, (rows, T, ...)."""
        begin, end = vector_range
        length = self.vectors.shape[1] // (3 * self.width)
        windows = self.vectors[:, begin * self.width :].unfold(1, (end - begin) * self.width, 3 * self.width)
        return windows[:, :length]


class UpDownScan(torch.autograd.Function):
    """The language states (rows, T, R) of all positions, from an initial state of zeros.

    All vectors lie side by side in one tensor, in the order in which both LSTMs read them, so that none is copied:
    the initial attention state a and language state l, then for each position the attended regions v, a and l. The
    attention LSTM reads [a | l] of the position before, the language LSTM its l and the present [v | a].

    Args:
        inputs: (rows, T, 4 R), pre-activations of the attention LSTM without the part of the past states.
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
        inputs = inputs * scales
        language_bias = language_bias * scales
        scaled_attention_weight = attention_weight * scales[:, None]
        scaled_language_weight = language_weight * scales[:, None]
        # tanh(x) = 2 sigmoid(2 x) - 1, as in `AdditiveAttention`, whose keys are doubled already.
        n_captions = rows // batch
        row_biases = attention_bias.expand(-1, n_captions, -1).reshape(-1)
        states = _Windows(inputs.new_empty(rows, (2 + 3 * length) * width), width)
        states.at(0, _ATTENTION_READS).zero_()
        attention_tape = LSTMTape.blank(inputs, length, rows, width)
        language_tape = LSTMTape.blank(inputs, length, rows, width)
        active = keys.new_empty(length, batch, n_captions, *keys.shape[1:])
        weights = keys.new_empty(length, batch, n_captions, keys.shape[1])
        for t in range(length):
            state = states.at(t, _ATTENTION)
            past = states.at(t, _ATTENTION_READS)
            attention_tape.advance(t, past, scaled_attention_weight, inputs[:, t], state)
            torch.add(keys[:, None], (state @ query.t()).view(batch, n_captions, 1, -1), alpha=2, out=active[t])
            scores = torch.addmv(row_biases, active[t].sigmoid_().flatten(0, 2), score.view(-1), alpha=2)
            torch.softmax(scores.view_as(weights[t]), -1, out=weights[t])
            torch.bmm(weights[t], values, out=states.at(t, _ATTENDED).view(batch, n_captions, width))
            past = states.at(t, _LANGUAGE_READS)
            language_tape.advance(t, past, scaled_language_weight, language_bias, states.at(t, _LANGUAGE))
        ctx.save_for_backward(
            *(values, attention_weight, query, score, language_weight, states.vectors, active, weights),
            *(attention_tape.gates, attention_tape.cells, language_tape.gates, language_tape.cells),
        )
        return states.at_all(_LANGUAGE).contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of all but the attention bias."""
        values, attention_weight, query, score, language_weight, vectors, active, weights, *tapes = ctx.saved_tensors
        (rows, length, width), (batch, n_regions, _) = gradient.shape, values.shape
        attention_gates, attention_cells, language_gates, language_cells = tapes
        attention_lstm = LSTMGradient(LSTMTape(attention_gates, attention_cells))
        language_lstm = LSTMGradient(LSTMTape(language_gates, language_cells))
        states = _Windows(vectors, width)
        to_states = _Windows(torch.zeros_like(vectors), width)
        to_states.at_all(_LANGUAGE).copy_(gradient)
        to_scores = torch.empty_like(weights)
        to_queries = query.new_empty(length, rows, query.shape[0])
        slopes = score.view(-1) * 4.0
        transposed_values = values.transpose(1, 2)
        for t in reversed(range(length)):
            to_read = to_states.at(t, _LANGUAGE_READS)
            torch.addmm(to_read, language_lstm.back(t, to_states.at(t, _LANGUAGE)), language_weight, out=to_read)
            to_weights = torch.bmm(to_states.at(t, _ATTENDED).view(batch, -1, width), transposed_values)
            torch.ops.aten._softmax_backward_data.out(
                to_weights, weights[t], -1, weights.dtype, grad_input=to_scores[t]
            )
            slope = torch.ops.aten.sigmoid_backward(slopes.expand_as(active[t]), active[t])
            torch.bmm(to_scores[t].view(rows, 1, n_regions), slope.flatten(0, 1), out=to_queries[t][:, None])
            torch.addmm(to_states.at(t, _ATTENTION), to_queries[t], query, out=to_states.at(t, _ATTENTION))
            to_read = to_states.at(t, _ATTENTION_READS)
            torch.addmm(to_read, attention_lstm.back(t, to_states.at(t, _ATTENTION)), attention_weight, out=to_read)

        def to_weight(to_products: Tensor, vector_range: tuple[int, int]) -> Tensor:
            """The gradient of a matrix that multiplies a range of vectors, from those of its products (T, rows, O)."""
            read = states.at_all(vector_range).transpose(0, 1).reshape(length * rows, -1)
            return to_products.flatten(0, 1).t() @ read

        to_inputs = attention_lstm.gates()
        to_language = language_lstm.gates()
        by_image = weights.permute(1, 3, 0, 2).reshape(batch, n_regions, -1)
        to_attended = to_states.at_all(_ATTENDED).view(batch, -1, length, width)
        to_attended = to_attended.transpose(1, 2).reshape(batch, -1, width)
        return (
            to_inputs.transpose(0, 1),
            _to_keys(to_scores, active, score),
            None,
            by_image @ to_attended,
            to_weight(to_inputs, _ATTENTION_READS),
            to_weight(to_queries, _ATTENTION),
            2.0 * (to_scores.view(1, -1) @ active.view(-1, active.shape[-1])),
            to_weight(to_language, _LANGUAGE_READS),
            to_language.flatten(0, 1).sum(0),
        )


def _to_keys(to_scores: Tensor, active: Tensor, score: Tensor) -> Tensor | None:
    """The gradient of the keys (B, L, A), in chunks of positions, since its summands are as large as `active`."""
    to_keys = None
    slopes = score.view(-1) * 2.0
    for chunk, sums in zip(torch.split(to_scores, _CHUNK), torch.split(active, _CHUNK), strict=True):
        slope = torch.ops.aten.sigmoid_backward(slopes.expand_as(sums), sums)
        summand = slope.mul_(chunk[..., None]).sum((0, 2))
        to_keys = summand if to_keys is None else to_keys.add_(summand)
    return to_keys
