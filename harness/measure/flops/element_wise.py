"""The work that multiply-accumulates leave out, estimated, so that one can see what share of it they leave out.

One operation for every element that is written, or read where an operator reduces: an addition, an exponential and a
comparison alike. Operators that pass over their elements several times count each pass.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PASSES: dict[str, int] = {
    **dict.fromkeys(("abs", "neg", "ceil", "cos", "sin", "exp", "log", "pow", "sqrt", "rsqrt", "square"), 1),
    **dict.fromkeys(("add", "add_", "sub", "sub_", "rsub", "mul", "mul_", "div", "div_", "addcmul"), 1),
    **dict.fromkeys(("clamp", "clamp_", "clamp_min", "max", "maximum", "min", "minimum"), 1),
    **dict.fromkeys(("relu", "relu_", "leaky_relu", "gelu", "glu", "silu", "sigmoid", "sigmoid_", "tanh", "tanh_"), 1),
    **dict.fromkeys(("cumsum", "mean", "prod", "sum", "avg_pool2d", "max_pool2d"), 1),
    "lerp": 3,
    "std": 3,  # mean, deviations, their squares' mean
    "softmax": 5,  # maximum, difference, exponential, sum, quotient: as many as fvcore counts for a norm
    "log_softmax": 5,
    "upsample_bicubic2d": 16,
}
"""Operators without products of matrices, and how often each passes over its elements."""

_TIMES, _OPERATIONS = "times ", "operations "


def handlers() -> dict[str, Callable[[Sequence[Any], Sequence[Any]], Counter[str]]]:
    """For fvcore: each notes that its operator occurred, and its operations, under names that `separate` knows."""
    return {f"aten::{name}": _handler(name, passes) for name, passes in PASSES.items()}


def separate(counted: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """What fvcore counted, apart: multiply-accumulates, occurrences and element-wise operations, each by operator."""
    macs, times, operations = {}, {}, {}
    for name, number in counted.items():
        if name.startswith(_TIMES):
            times[name.removeprefix(_TIMES)] = number
        elif name.startswith(_OPERATIONS):
            operations[name.removeprefix(_OPERATIONS)] = number
        else:
            macs[name] = number
    return macs, times, operations


def _handler(name: str, passes: int) -> Callable[[Sequence[Any], Sequence[Any]], Counter[str]]:
    def handler(inputs: Sequence[Any], outputs: Sequence[Any]) -> Counter[str]:
        elements = max(_elements(inputs[0]), _elements(outputs[0]))
        return Counter({f"{_TIMES}{name}": 1, f"{_OPERATIONS}{name}": passes * elements})

    return handler


def _elements(value: Any) -> int:
    return math.prod(value.type().sizes()) if value.isCompleteTensor() else 0
