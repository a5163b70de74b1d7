"""Multiply-accumulates of one call, counted by fvcore on a trace.

Handlers are of the operators that fvcore does not count, or counts only for some shapes. One takes the graph values of
an operator's inputs and outputs, as fvcore's own do, and gives its multiply-accumulates. One rule serves every matrix
product: each element of the output costs one multiply-accumulate an element of the contracted dimension. Attention is
counted densely, causal or masked parts included, as its unfused form is.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from zoo.captioner import DecodingState, Memory, Visual

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
    """Einstein summation: the products that torch makes of it, by its own counter."""
    operands = [torch.empty(shape, device="meta") for shape in _list_shapes(inputs[1])]
    with FlopCounterMode(display=False) as counter:
        torch.einsum(inputs[0].toIValue(), *operands)
    return int(counter.get_total_flops()) // 2


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


_OF_ATEN: dict[str, Handler] = {
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner"), product_of(0)),
    **dict.fromkeys(("addmm", "addmm_", "addmv", "baddbmm", "baddbmm_"), product_of(1)),
    "addbmm": addbmm,
    "tensordot": tensordot,
    "einsum": einsum,
    "scaled_dot_product_attention": attention,
    "_convolution_mode": convolution,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), recurrent),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), recurrent_cell),
}
HANDLERS = {f"aten::{name}": handler for name, handler in _OF_ATEN.items()} | {"torchvision::roi_align": roi_align}

_MOVED = ("alias", "clone", "embedding", "index_copy", "index_put", "index_select", "lift_fresh", "movedim", "numpy_T")
_SHAPED = ("broadcast_tensors", "expand_as", "pad", "repeat", "repeat_interleave", "unflatten", "view_as")
_CUT = ("unfold", "unsafe_chunk", "unsafe_split")
_FILLED = ("eye", "fill_", "index_fill", "masked_fill_", "new_ones", "ones_like", "scatter", "tril", "triu", "zero_")
_COMPARED = ("all", "any", "le", "lt", "ne", "where")
_COMBINED = ("__or__", "bitwise_and", "bitwise_or", "logical_and", "logical_not", "logical_or")
MOVES = tuple(f"aten::{name}" for names in (_MOVED, _SHAPED, _CUT, _FILLED, _COMPARED, _COMBINED) for name in names)
"""Operators that only move, make or compare integers and masks: like those that fvcore ignores, without products."""

PASSES: dict[str, int] = {
    **dict.fromkeys(("abs", "neg", "ceil", "cos", "sin", "exp", "log", "pow", "sqrt", "rsqrt", "square"), 1),
    **dict.fromkeys(("add", "add_", "sub", "sub_", "rsub", "mul", "mul_", "div", "div_", "addcmul", "addcdiv"), 1),
    **dict.fromkeys(("clamp", "clamp_", "clamp_min", "max", "maximum", "min", "minimum"), 1),
    **dict.fromkeys(("relu", "relu_", "leaky_relu", "celu", "celu_", "gelu", "glu"), 1),
    **dict.fromkeys(("sigmoid", "sigmoid_", "silu", "tanh", "tanh_"), 1),
    **dict.fromkeys(("cumsum", "mean", "prod", "sum", "scatter_add", "scatter_reduce", "avg_pool2d", "max_pool2d"), 1),
    "lerp": 3,
    **dict.fromkeys(("std", "std_mean"), 3),  # mean, deviations, their squares' mean
    "softmax": 5,  # maximum, difference, exponential, sum, quotient: as many as fvcore counts for a norm
    "log_softmax": 5,
    "upsample_bicubic2d": 16,
}
"""Element-wise operators and reductions, which multiply-accumulates leave out: how often each passes over its elements.

Their work is estimated as one operation an element and pass, of the larger of input and output: an addition, an
exponential and a comparison count the same.
"""

_TIMES, _OPERATIONS = "times ", "operations "


@dataclass(frozen=True, slots=True)
class PartCount:
    """One part of a model's work.

    Attributes:
        by_operator: the same by operator, most first.
        uncounted: operators that are not counted, by occurrences.
        element_wise: estimated operations of these (`PASSES`), where known.
    """

    macs: int
    by_operator: dict[str, int]
    uncounted: dict[str, int]
    element_wise: dict[str, int]

    @property
    def uncounted_share(self) -> float:
        """The estimated share of the work, in [0, 1], that is not counted as multiply-accumulates."""
        left_out = sum(self.element_wise.values())
        return left_out / (left_out + self.macs) if left_out else 0.0


def trace(inside: nn.Module, call: Callable[[Any], object], argument: Visual | Memory | DecodingState) -> PartCount:
    """Count `call(argument)`; all tensors of its result are outputs of the trace, so that nothing is pruned."""
    with warnings.catch_warnings():
        # fvcore scripts an unrelated loss on import, which recent torch warns is deprecated.
        warnings.simplefilter("ignore", FutureWarning)
        from fvcore.nn import FlopCountAnalysis  # here: not all that imports this module counts

    traced = _Traced(inside, call, argument)
    traced.training = False
    analysis = FlopCountAnalysis(traced, tuple(_tensors(argument)))
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    element_wise = {f"aten::{name}": _element_wise_handler(name, passes) for name, passes in PASSES.items()}
    analysis.set_op_handle(**HANDLERS, **element_wise, **dict.fromkeys(MOVES))
    counted = {name: int(number) for name, number in analysis.by_operator().most_common() if number}
    macs, times, operations = _separate(counted)
    unknown = {name.removeprefix("aten::"): count for name, count in analysis.unsupported_ops().items()}
    uncounted = dict(sorted({**times, **unknown}.items(), key=lambda entry: -entry[1]))
    return PartCount(sum(macs.values()), macs, uncounted, operations)


@contextmanager
def unfused() -> Iterator[None]:
    """Without the fused transformer paths, which would hide a layer's operators from a trace."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


class _Traced(nn.Module):
    """The module that fvcore traces: holds the model for its parameters, and takes tensors only."""

    def __init__(self, inside: nn.Module, call: Callable[[Any], object], argument: Visual | Memory | DecodingState):
        super().__init__()
        self.inside = inside
        self._call = call
        self._argument = argument

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(_tensors(self._call(_rebuild(self._argument, tensors))))


def _tensors(value: object) -> Iterator[Tensor]:
    """Every tensor inside dataclasses, mappings and sequences, in a fixed order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (Visual, Memory, DecodingState)):
        for part in fields(value):
            yield from _tensors(getattr(value, part.name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


def _rebuild(template: Visual | Memory | DecodingState, tensors: tuple[Tensor, ...]) -> Visual | Memory | DecodingState:
    """The template with its tensors, in the order of `_tensors`, replaced by traced ones."""
    remaining = iter(tensors)
    parts: dict[str, Any] = {}
    for part in fields(template):
        value = getattr(template, part.name)
        if isinstance(value, dict):
            parts[part.name] = {name: next(remaining) for name in value}
        elif value is not None:
            parts[part.name] = next(remaining)
    return replace(template, **parts)


def _separate(counted: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Split fvcore's counts into multiply-accumulates, occurrences and element-wise operations, each by operator."""
    macs, times, operations = {}, {}, {}
    for name, number in counted.items():
        if name.startswith(_TIMES):
            times[name.removeprefix(_TIMES)] = number
        elif name.startswith(_OPERATIONS):
            operations[name.removeprefix(_OPERATIONS)] = number
        else:
            macs[name] = number
    return macs, times, operations


def _element_wise_handler(name: str, passes: int) -> Callable[[Sequence[Any], Sequence[Any]], Counter[str]]:
    """Counts an operator's occurrences and operations, under names that `_separate` splits."""

    def handler(inputs: Sequence[Any], outputs: Sequence[Any]) -> Counter[str]:
        elements = max(_elements(inputs[0]), _elements(outputs[0]))
        return Counter({f"{_TIMES}{name}": 1, f"{_OPERATIONS}{name}": passes * elements})

    return handler


def _elements(value: Any) -> int:
    return math.prod(value.type().sizes()) if value.isCompleteTensor() else 0
