"""AoANet's recurrence over all positions of a caption, with its gradient written out."""

from typing import Any

import torch
from torch import Tensor

from zoo.fast.lstm import LSTMGradient, LSTMTape
from zoo.layers.annotated_norm import EPSILON

_aten = torch.ops.aten


class AoAScan(torch.autograd.Function):
    """The contexts (B * n, T, R) of all positions, from states of zeros: the recurrence with its gradient written out.

    Rows are worked through caption by caption, not image by image, so that the heads of all rows are a batch of
    products without being copied.

    Args:
        inputs: (B * n, T, 4 R), pre-activations of the LSTM but for the past states.
        keys, values, attention_bias: of `MemoriesAttention.prepare`, (B, H, M * L, d_k) twice and (B, H, 1, M * L).
        context_mask: what contexts (T, n * B, R) that the LSTM reads are multiplied by.
        attention_mask: what attention (T, B * H, n, M * L) is multiplied by.
        n_memories: M.
        lstm_weight: (4 R, 2 R), of [h | context].
        query, query_bias: (R, R) and (R), of the plain norm of h.
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
        each, (heads, places, d_k) = rows // batch, (batch * keys.shape[1], *keys.shape[2:])
        keys, values, attention_bias = keys.flatten(0, 1), values.flatten(0, 1), attention_bias.flatten(0, 1)
        scales, added = LSTMTape.scales(inputs, width), inputs.new_empty(length, each, batch, 4 * width)
        torch.mul(inputs.view(batch, each, length, -1).permute(2, 1, 0, 3), scales, out=added)
        scaled, (of_answer, of_hidden) = lstm_weight * scales[:, None], gate.t().split_with_sizes([width, width])
        tape = LSTMTape.blank(inputs, length, rows, width)
        states = inputs.new_empty(length + 1, rows, 2 * width)  # h and dropped context after each position
        states[0].zero_()
        normed, queries, answers, contexts = inputs.new_empty(4, length, rows, width)
        deviations = inputs.new_empty(length, rows, 1)
        mixed = inputs.new_empty(length, rows, 2 * width)
        weights = inputs.new_empty(length, heads, each, n_memories, places // n_memories)
        for t in range(length):
            hidden, context = states[t + 1].split_with_sizes([width, width], 1)
            tape.advance(t, states[t], scaled, added[t].flatten(0, 1), hidden)
            deviation, mean = torch.std_mean(hidden, -1, keepdim=True)
            torch.add(deviation, EPSILON, out=deviations[t])
            torch.div(hidden - mean, deviations[t], out=normed[t])
            torch.addmm(query_bias, normed[t], query.t(), out=queries[t])
            scores = torch.baddbmm(attention_bias, _by_head(queries[t], each, d_k), keys.transpose(1, 2))
            torch.softmax(scores.view_as(weights[t]), -1, out=weights[t])
            looks = weights[t].flatten(2)
            looks = looks if attention_mask is None else looks * attention_mask[t]
            torch.bmm(looks, values, out=_by_head(answers[t], each, d_k))
            torch.addmm(gate_bias, answers[t], of_answer, out=mixed[t])
            torch.addmm(mixed[t], hidden, of_hidden, out=mixed[t])
            _aten.glu.out(mixed[t], 1, out=contexts[t] if context_mask is not None else context)
            if context_mask is not None:
                torch.mul(contexts[t], context_mask[t], out=context)
        ctx.save_for_backward(
            *(keys, values, context_mask, attention_mask, lstm_weight, query, gate, tape.gates, tape.cells),
            *(states, normed, queries, answers, deviations, mixed, weights),
        )
        ctx.batch = batch
        whole = contexts if context_mask is not None else states[1:, :, width:]
        return whole.view(length, each, batch, width).permute(2, 1, 0, 3).reshape(rows, length, width)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of inputs, keys, values and weights."""
        keys, values, context_mask, attention_mask, lstm_weight, query, gate, gates, cells, *saved = ctx.saved_tensors
        states, normed, queries, answers, deviations, mixed, weights = saved
        (rows, length, width), batch, d_k = gradient.shape, ctx.batch, keys.shape[2]
        each = rows // batch
        lstm = LSTMGradient(LSTMTape(gates, cells))
        to_contexts = gradient.new_empty(length, each, batch, width)
        to_contexts.copy_(gradient.view(batch, each, length, width).permute(2, 1, 0, 3))
        to_contexts = to_contexts.flatten(1, 2)
        to_states, to_mixed = torch.empty_like(states), torch.empty_like(mixed)
        to_states[-1].zero_()
        to_queries, to_answers, to_weights = (torch.empty_like(part) for part in (queries, answers, weights))
        norm = _NormGradient(normed, deviations)
        of_answer, of_hidden = gate.split_with_sizes([width, width], 1)
        for t in reversed(range(length)):
            to_hidden, to_context = to_states[t + 1].split_with_sizes([width, width], 1)
            if t + 1 < length and context_mask is None:
                to_contexts[t].add_(to_context)
            elif t + 1 < length:
                to_contexts[t].addcmul_(to_context, context_mask[t])
            _aten.glu_backward.grad_input(to_contexts[t], mixed[t], 1, grad_input=to_mixed[t])
            torch.mm(to_mixed[t], of_answer, out=to_answers[t])
            torch.addmm(to_hidden, to_mixed[t], of_hidden, out=to_hidden)
            to_looks = torch.bmm(_by_head(to_answers[t], each, d_k), values.transpose(1, 2))
            to_looks = to_looks if attention_mask is None else to_looks.mul_(attention_mask[t])
            _aten._softmax_backward_data.out(
                *(to_looks.view_as(weights[t]), weights[t], -1, weights.dtype), grad_input=to_weights[t]
            )
            torch.bmm(to_weights[t].flatten(2), keys, out=_by_head(to_queries[t], each, d_k))
            to_hidden.add_(norm.back(t, to_queries[t] @ query))
            torch.mm(lstm.back(t, to_hidden), lstm_weight, out=to_states[t])
        to_gates, read = lstm.gates().flatten(0, 1), states[1:, :, :width].flatten(0, 1)
        to_queries, to_mixed = to_queries.flatten(0, 1), to_mixed.flatten(0, 1)
        looks = weights.flatten(3) if attention_mask is None else weights.flatten(3) * attention_mask
        shape = (batch, -1, *keys.shape[1:])
        return (
            to_gates.view(length, each, batch, -1).permute(2, 1, 0, 3).reshape(rows, length, -1),
            _summed(to_weights.flatten(3), queries.flatten(0, 1)).view(shape),
            _summed(looks, to_answers.flatten(0, 1)).view(shape),
            *(None, None, None, None),
            to_gates.t() @ states[:-1].flatten(0, 1),
            to_queries.t() @ normed.flatten(0, 1),
            to_queries.sum(0),
            torch.cat((to_mixed.t() @ answers.flatten(0, 1), to_mixed.t() @ read), 1),
            to_mixed.sum(0),
        )


def _by_head(x: Tensor, each: int, d_k: int) -> Tensor:
    """(n * B, R) as (B * H, n, d_k)."""
    return x.view(each, -1, d_k).transpose(0, 1)


def _summed(looks: Tensor, rows: Tensor) -> Tensor:
    """The sum over all positions and captions of looks (T, B * H, n, L) times rows (T * n * B, R): (B * H, L, d_k)."""
    length, heads, each, places = looks.shape
    by_place = looks.permute(1, 3, 0, 2).reshape(heads, places, -1)
    return by_place @ rows.view(length * each, heads, -1).transpose(0, 1)


class _NormGradient:
    """The gradient of y = (x - mean) / (s + eps) of all positions, s the unbiased deviation of D channels.

    That of x is (g - mean(g)) / (s + eps) - y sum(g y) / ((D - 1) s): what torch's layer normalisation has for an
    input z = y (s + eps) root(D (s + eps) / ((D - 1) s)) with a mean of 0 and an inverse deviation of 1 / (s + eps).
    """

    def __init__(self, normed: Tensor, deviations: Tensor) -> None:
        channels = normed.shape[-1]
        tiny = torch.finfo(deviations.dtype).tiny
        own = (deviations - EPSILON).clamp_(min=tiny)  # zero for equal numbers, where y is zero too
        stretched = deviations * (deviations / own * (channels / max(channels - 1, 1))).sqrt_()
        self._inputs, self._inverse = normed * stretched, deviations.reciprocal()
        self._mean = torch.zeros_like(deviations[0])

    def back(self, position: int, gradient: Tensor) -> Tensor:
        """From the gradient (rows, D) of y to that of x."""
        shape = gradient.shape[-1:]
        inputs = (self._inputs[position], shape, self._mean, self._inverse[position])
        to_x: Tensor = _aten.native_layer_norm_backward(gradient, *inputs, None, None, [True, False, False])[0]
        return to_x
