"""Multiply-accumulates of the operators that fvcore does not count, or counts only for some shapes.

A handler takes the graph values of an operator's inputs and outputs, as fvcore's own do, and gives its
multiply-accumulates. One rule serves every matrix product: each element of the output costs one multiply-accumulate
an element of the contracted dimension. Attention is counted densely, causal or masked parts included, as its
unfused form is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

Handler = Callable[[Sequence[Any], Sequence[Any]], int]


def _shape(value: Any) -> list[int]:
    if not value.isCompleteTensor():
        raise ValueError(f"no shape was traced for {value.debugName()}")
    shape: list[int] = value.type().sizes()
    return shape


def _list_shapes(value: Any) -> list[list[int]]:
    return [_shape(item) for item in value.node().inputs()]


def product_of(left: int) -> Handler:
    """A matrix product whose left factor is input `left` and contracts its last dimension (matmul, addmm, mv ...)."""

    def handler(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
        return math.prod(_shape(outputs[0])) * _shape(inputs[left])[-1]

    return handler


def addbmm(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Batched products (b, n, k) x (b, k, m) summed over b."""
    batch, _, contracted = _shape(inputs[1])
    return math.prod(_shape(outputs[0])) * batch * contracted


def tensordot(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Any contraction of two tensors: |a| |b| = |out| K^2 gives the contracted size K."""
    output = math.prod(_shape(outputs[0]))
    factors = math.prod(_shape(inputs[0])) * math.prod(_shape(inputs[1]))
    return output * math.isqrt(factors // output) if output else 0


def attention(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Fused attention, queries (..., T, d), keys (..., S, d), values (..., S, e): T S (d + e) a head."""
    *leading, queries, value_dim = _shape(outputs[0])
    keys, key_dim = _shape(inputs[1])[-2:]
    return math.prod(leading) * queries * keys * (key_dim + value_dim)


def recurrent(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:  # noqa: ARG001 (fvcore's signature)
    """Fused LSTM, GRU and RNN, padded or packed: every row of the input meets every weight matrix once."""
    weights = next(value for value in reversed(inputs) if str(value.type()) == "List[Tensor]")
    rows = math.prod(_shape(inputs[0])[:-1])
    return rows * sum(math.prod(shape) for shape in _list_shapes(weights) if len(shape) == 2)


def recurrent_cell(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:  # noqa: ARG001 (fvcore's signature)
    """One step of an LSTM, GRU or RNN cell: inputs are x, the state, the input weights and the state's weights."""
    rows = math.prod(_shape(inputs[0])[:-1])
    return rows * sum(math.prod(_shape(weights)) for weights in inputs[2:4])


def einsum(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:  # noqa: ARG001 (fvcore's signature)
    """Einstein summation; operands are contracted from left to right, as torch does without opt_einsum."""
    return einsum_macs(inputs[0].toIValue(), _list_shapes(inputs[1]))


def einsum_macs(equation: str, shapes: Sequence[Sequence[int]]) -> int:
    """Multiply-accumulates of `torch.einsum(equation, ...)` on operands of these shapes, left to right."""
    left, _, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    widest = max(len(shape) - len(term.replace("...", "")) for term, shape in zip(terms, shapes, strict=True))
    # An ellipsis stands for labels of its own, the same ones for every operand, aligned at the right.
    extra = [f"...{position}" for position in range(widest)]
    operands: list[list[str]] = []
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        before, dots, after = term.partition("...")
        hidden = len(shape) - len(before) - len(after)
        labels = [*before, *(extra[widest - hidden :] if dots else ()), *after]
        for label, size in zip(labels, shape, strict=True):
            sizes[label] = max(sizes.get(label, 1), size)
        operands.append(labels)
    if "->" in equation:
        kept = {*right.replace("...", ""), *(extra if "..." in right else ())}
    else:
        kept = {label for label in sizes if sum(labels.count(label) for labels in operands) == 1} | set(extra)

    macs = 0
    result = set(operands[0])
    for position, operand in enumerate(operands[1:], start=1):
        later = kept.union(*operands[position + 1 :])
        shared = result & set(operand)
        # A label that only one side has and that is not used later is summed first: no product.
        live = {label for label in result | set(operand) if label in later or label in shared}
        macs += math.prod(sizes[label] for label in live)
        result = live & later
    return macs


def convolution(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """A convolution whose padding has a name ("valid", "same"): each output meets one filter."""
    return math.prod(_shape(outputs[0])) * math.prod(_shape(inputs[1])[1:])


def roi_align(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """RoIAlign of maps (B, C, H, W): four multiply-accumulates a sample, by bilinear interpolation.

    If the number of samples per bin depends on the box (a ratio of -1), that of a box as large as the map is counted:
    one per cell, the maximum.
    """
    *_, height, width = _shape(inputs[0])
    bins_high, bins_wide = _shape(outputs[0])[-2:]
    ratio = inputs[5].toIValue()
    samples = ratio * ratio if ratio > 0 else math.ceil(height / bins_high) * math.ceil(width / bins_wide)
    return 4 * samples * math.prod(_shape(outputs[0]))


HANDLERS: dict[str, Handler] = {
    "aten::matmul": product_of(0),
    "aten::mm": product_of(0),
    "aten::bmm": product_of(0),
    "aten::mv": product_of(0),
    "aten::dot": product_of(0),
    "aten::vdot": product_of(0),
    "aten::inner": product_of(0),
    "aten::addmm": product_of(1),
    "aten::addmm_": product_of(1),
    "aten::addmv": product_of(1),
    "aten::baddbmm": product_of(1),
    "aten::baddbmm_": product_of(1),
    "aten::addbmm": addbmm,
    "aten::tensordot": tensordot,
    "aten::einsum": einsum,
    "aten::scaled_dot_product_attention": attention,
    "aten::_convolution_mode": convolution,
    "aten::lstm": recurrent,
    "aten::gru": recurrent,
    "aten::rnn_tanh": recurrent,
    "aten::rnn_relu": recurrent,
    "aten::lstm_cell": recurrent_cell,
    "aten::gru_cell": recurrent_cell,
    "aten::rnn_tanh_cell": recurrent_cell,
    "aten::rnn_relu_cell": recurrent_cell,
    "torchvision::roi_align": roi_align,
}

# Operators that only move, make or compare integers and masks: like those that fvcore ignores, without products.
MOVES: tuple[str, ...] = (
    "aten::__or__",
    "aten::alias",
    "aten::any",
    "aten::all",
    "aten::bitwise_and",
    "aten::bitwise_or",
    "aten::broadcast_tensors",
    "aten::clone",
    "aten::embedding",
    "aten::expand_as",
    "aten::eye",
    "aten::fill_",
    "aten::index_copy",
    "aten::index_fill",
    "aten::index_put",
    "aten::index_select",
    "aten::le",
    "aten::lift_fresh",
    "aten::logical_and",
    "aten::logical_not",
    "aten::logical_or",
    "aten::lt",
    "aten::masked_fill_",
    "aten::movedim",
    "aten::ne",
    "aten::new_ones",
    "aten::numpy_T",
    "aten::ones_like",
    "aten::pad",
    "aten::repeat",
    "aten::repeat_interleave",
    "aten::scatter",
    "aten::tril",
    "aten::triu",
    "aten::unflatten",
    "aten::unfold",
    "aten::unsafe_chunk",
    "aten::unsafe_split",
    "aten::view_as",
    "aten::where",
    "aten::zero_",
)
