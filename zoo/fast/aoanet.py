"""AoANet's recurrence over all positions of a caption, with a hand-written gradient."""

from typing import Any

import torch
from torch import Tensor

from zoo.fast.lstm import LSTMGradient, LSTMTape
from zoo.layers.annotated_norm import EPSILON

_aten = torch.ops.aten


class AoAScan(torch.autograd.Function):
    """The contexts (B * n, T, R) of all positions, from an initial state of zeros.

    Inside, rows are caption-major (row = caption * B + image), so that batched products over the heads of all rows need
    no copies.

    Args:
        inputs: (B * n, T, 4 R), pre-activations of the LSTM without the part of the past states.
        keys, values, attention_bias: from `MemoriesAttention.prepare`, (B, H, M * L, d_k) twice and (B, H, 1, M * L).
        context_mask: dropout factors of the contexts that the LSTM reads, (T, n * B, R); None without dropout.
        attention_mask: dropout factors of the attention weights, (T, B * H, n, M * L); None without dropout.
        n_memories: M.
        lstm_weight: (4 R, 2 R), of [h | context].
        query, query_bias: (R, R) and (R), applied to the norm of h without gain and shift.
        gate, gate_bias: (2 R, 2 R) and (2 R).
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        keys: Tensor,
        values: Tensor,
        attention_bias: Tensor,
        context_mask: Tensor | None,
        attention_mask: Tensor | None,
        n_memories: int,
        lstm_weight: Tensor,
        query: Tensor,
        query_bias: Tensor,
        gate: Tensor,
        gate_bias: Tensor,
    ) -> Tensor:
        (rows, length, _), width, batch = inputs.shape, query.shape[0], keys.shape[0]
        n_captions = rows // batch
        n_keys, d_k = keys.shape[2:]
        heads = batch * keys.shape[1]
        keys = keys.flatten(0, 1)
        values = values.flatten(0, 1)
        attention_bias = attention_bias.flatten(0, 1)
        scales = LSTMTape.scales(inputs, width)
        scaled_inputs = inputs.new_empty(length, n_captions, batch, 4 * width)
        torch.mul(inputs.view(batch, n_captions, length, -1).permute(2, 1, 0, 3), scales, out=scaled_inputs)
        scaled_weight = lstm_weight * scales[:, None]
        of_attended, of_hidden = gate.t().split_with_sizes([width, width])
        tape = LSTMTape.blank(inputs, length, rows, width)
        states = inputs.new_empty(length + 1, rows, 2 * width)  # h and context, after dropout, of the position before
        states[0].zero_()
        normed, queries, attended, contexts = inputs.new_empty(4, length, rows, width)
        deviations = inputs.new_empty(length, rows, 1)
        mixed = inputs.new_empty(length, rows, 2 * width)
        weights = inputs.new_empty(length, heads, n_captions, n_memories, n_keys // n_memories)
        for t in range(length):
            hidden, context = states[t + 1].split_with_sizes([width, width], 1)
            tape.advance(t, states[t], scaled_weight, scaled_inputs[t].flatten(0, 1), hidden)
            deviation, mean = torch.std_mean(hidden, -1, keepdim=True)
            torch.add(deviation, EPSILON, out=deviations[t])
            torch.div(hidden - mean, deviations[t], out=normed[t])
            torch.addmm(query_bias, normed[t], query.t(), out=queries[t])
            scores = torch.baddbmm(attention_bias, _by_head(queries[t], n_captions, d_k), keys.transpose(1, 2))
            torch.softmax(scores.view_as(weights[t]), -1, out=weights[t])
            dropped_weights = weights[t].flatten(2)
            if attention_mask is not None:
                dropped_weights = dropped_weights * attention_mask[t]
            torch.bmm(dropped_weights, values, out=_by_head(attended[t], n_captions, d_k))
            torch.addmm(gate_bias, attended[t], of_attended, out=mixed[t])
            torch.addmm(mixed[t], hidden, of_hidden, out=mixed[t])
            _aten.glu.out(mixed[t], 1, out=contexts[t] if context_mask is not None else context)
            if context_mask is not None:
                torch.mul(contexts[t], context_mask[t], out=context)
        ctx.save_for_backward(
            *(keys, values, context_mask, attention_mask, lstm_weight, query, gate, tape.gates, tape.cells),
            *(states, normed, queries, attended, deviations, mixed, weights),
        )
        ctx.batch = batch
        if context_mask is None:
            contexts = states[1:, :, width:]
        by_row: Tensor = contexts.view(length, n_captions, batch, width).permute(2, 1, 0, 3)
        return by_row.reshape(rows, length, width)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of inputs, keys, values and weights."""
        keys, values, context_mask, attention_mask, lstm_weight, query, gate, gates, cells, *saved = ctx.saved_tensors
        states, normed, queries, attended, deviations, mixed, weights = saved
        (rows, length, width), batch, d_k = gradient.shape, ctx.batch, keys.shape[2]
        n_captions = rows // batch
        lstm = LSTMGradient(LSTMTape(gates, cells))
        to_contexts = gradient.new_empty(length, n_captions, batch, width)
        to_contexts.copy_(gradient.view(batch, n_captions, length, width).permute(2, 1, 0, 3))
        to_contexts = to_contexts.flatten(1, 2)
        to_states = torch.empty_like(states)
        to_mixed = torch.empty_like(mixed)
        to_states[-1].zero_()
        to_queries = torch.empty_like(queries)
        to_attended = torch.empty_like(attended)
        to_scores = torch.empty_like(weights)
        norm = _NormGradient(normed, deviations)
        of_attended, of_hidden = gate.split_with_sizes([width, width], 1)
        for t in reversed(range(length)):
            to_hidden, to_context = to_states[t + 1].split_with_sizes([width, width], 1)
            if t + 1 < length and context_mask is None:
                to_contexts[t].add_(to_context)
            elif t + 1 < length:
                to_contexts[t].addcmul_(to_context, context_mask[t])
            _aten.glu_backward.grad_input(to_contexts[t], mixed[t], 1, grad_input=to_mixed[t])
            torch.mm(to_mixed[t], of_attended, out=to_attended[t])
            torch.addmm(to_hidden, to_mixed[t], of_hidden, out=to_hidden)
            to_weights = torch.bmm(_by_head(to_attended[t], n_captions, d_k), values.transpose(1, 2))
            if attention_mask is not None:
                to_weights.mul_(attention_mask[t])
            _aten._softmax_backward_data.out(
                *(to_weights.view_as(weights[t]), weights[t], -1, weights.dtype), grad_input=to_scores[t]
            )
            torch.bmm(to_scores[t].flatten(2), keys, out=_by_head(to_queries[t], n_captions, d_k))
            to_hidden.add_(norm.back(t, to_queries[t] @ query))
            torch.mm(lstm.back(t, to_hidden), lstm_weight, out=to_states[t])
        to_gates = lstm.gates().flatten(0, 1)
        hidden_states = states[1:, :, :width].flatten(0, 1)
        to_queries = to_queries.flatten(0, 1)
        to_mixed = to_mixed.flatten(0, 1)
        dropped_weights = weights.flatten(3)
        if attention_mask is not None:
            dropped_weights = dropped_weights * attention_mask
        shape = (batch, -1, *keys.shape[1:])
        return (
            to_gates.view(length, n_captions, batch, -1).permute(2, 1, 0, 3).reshape(rows, length, -1),
            _sum_products(to_scores.flatten(3), queries.flatten(0, 1)).view(shape),
            _sum_products(dropped_weights, to_attended.flatten(0, 1)).view(shape),
            *(None, None, None, None),
            to_gates.t() @ states[:-1].flatten(0, 1),
            to_queries.t() @ normed.flatten(0, 1),
            to_queries.sum(0),
            torch.cat((to_mixed.t() @ attended.flatten(0, 1), to_mixed.t() @ hidden_states), 1),
            to_mixed.sum(0),
        )


def _by_head(x: Tensor, n_captions: int, d_k: int) -> Tensor:
    """(n * B, R) as (B * H, n, d_k)."""
    return x.view(n_captions, -1, d_k).transpose(0, 1)


def _sum_products(weights: Tensor, rows: Tensor) -> Tensor:
    """The sum over positions and captions of weights (T, B * H, n, L) times rows (T * n * B, R): (B * H, L, d_k)."""
    length, heads, n_captions, n_keys = weights.shape
    by_key = weights.permute(1, 3, 0, 2).reshape(heads, n_keys, -1)
    return by_key @ rows.view(length * n_captions, heads, -1).transpose(0, 1)


class _NormGradient:
    """The gradient of y = (x - mean) / (s + eps) at all positions, where s is the unbiased deviation of D channels.

    The gradient of x is (g - mean(g)) / (s + eps) - y sum(g y) / ((D - 1) s). This is the gradient of torch's layer
    normalisation for an input z = y (s + eps) root(D (s + eps) / ((D - 1) s)) with a mean of 0 and an inverse deviation
    of 1 / (s + eps).
    """

    def __init__(self, normed: Tensor, deviations: Tensor) -> None:
        channels = normed.shape[-1]
        tiny = torch.finfo(deviations.dtype).tiny
        without_eps = (deviations - EPSILON).clamp_(min=tiny)  # zero for equal numbers, where y is zero too
        scale = deviations * (deviations / without_eps * (channels / max(channels - 1, 1))).sqrt_()
        self._inputs = normed * scale
        self._inverse = deviations.reciprocal()
        self._mean = torch.zeros_like(deviations[0])

    def back(self, position: int, gradient: Tensor) -> Tensor:
        """The gradient of x, from that of y (rows, D), at one position."""
        shape = gradient.shape[-1:]
        inputs = (self._inputs[position], shape, self._mean, self._inverse[position])
        to_x: Tensor = _aten.native_layer_norm_backward(gradient, *inputs, None, None, [True, False, False])[0]
        return to_x
