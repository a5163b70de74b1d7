"""Multiply-accumulates of one call, counted by fvcore on a trace."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from harness.measure.flops.handlers import HANDLERS, MOVES
from zoo.captioner import DecodingState, Memory, Visual

with warnings.catch_warnings():
    # fvcore scripts an unrelated loss on import, which recent torch warns is deprecated.
    warnings.simplefilter("ignore", FutureWarning)
    from fvcore.nn import FlopCountAnalysis

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
        macs: multiply-accumulates.
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
    """Count `call(argument)`; all tensors of its result are outputs of the trace, so that nothing is pruned.

    Args:
        inside: the module whose parameters the call uses; in evaluation mode.
        call: runs without gradients.
        argument: rebuilt with traced tensors for the call.
    """
    traced = _Traced(inside, call, argument)
    traced.training = False
    analysis = FlopCountAnalysis(traced, tuple(_tensors(argument)))
    macs, times, operations = _separate(_by_operator(analysis))
    unknown = {name.removeprefix("aten::"): count for name, count in analysis.unsupported_ops().items()}
    uncounted = dict(sorted({**times, **unknown}.items(), key=lambda entry: -entry[1]))
    return PartCount(sum(macs.values()), macs, uncounted, operations)


def macs_of(module: nn.Module, tensors: tuple[Tensor, ...]) -> dict[str, int]:
    """The multiply-accumulates of any call by operator, counted as `trace` does; the module gives tensors alone."""
    return _separate(_by_operator(FlopCountAnalysis(module, tensors)))[0]


def _by_operator(analysis: FlopCountAnalysis) -> dict[str, int]:
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    analysis.set_op_handle(**HANDLERS, **_element_wise_handlers(), **dict.fromkeys(MOVES))
    return {name: int(number) for name, number in analysis.by_operator().most_common() if number}


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


def _element_wise_handlers() -> dict[str, Callable[[Sequence[Any], Sequence[Any]], Counter[str]]]:
    """Handlers for fvcore that count an operator's occurrences and operations, under names that `_separate` splits."""
    return {f"aten::{name}": _element_wise_handler(name, passes) for name, passes in PASSES.items()}


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
    def handler(inputs: Sequence[Any], outputs: Sequence[Any]) -> Counter[str]:
        elements = max(_elements(inputs[0]), _elements(outputs[0]))
        return Counter({f"{_TIMES}{name}": 1, f"{_OPERATIONS}{name}": passes * elements})

    return handler


def _elements(value: Any) -> int:
    return math.prod(value.type().sizes()) if value.isCompleteTensor() else 0
