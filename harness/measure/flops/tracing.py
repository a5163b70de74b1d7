"""Multiply-accumulates of one call, counted by fvcore on a trace of the code that really runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from harness.measure.flops import element_wise
from harness.measure.flops.handlers import HANDLERS, MOVES
from zoo.captioner import DecodingState, Memory, Visual

with warnings.catch_warnings():
    # The package scripts an unrelated loss when it is imported, which recent torch calls deprecated.
    warnings.simplefilter("ignore", FutureWarning)
    from fvcore.nn import FlopCountAnalysis


@dataclass(frozen=True, slots=True)
class PartCount:
    """One part of a model's work.

    Attributes:
        macs: multiply-accumulates.
        by_operator: the same by operator, most first.
        uncounted: operators that are not among them, by occurrences.
        element_wise: their operations, estimated (`handlers.PASSES`); an operator may be missing there.
    """

    macs: int
    by_operator: dict[str, int]
    uncounted: dict[str, int]
    element_wise: dict[str, int]

    @property
    def uncounted_share(self) -> float:
        """The estimated part of all work, in [0, 1], that the multiply-accumulates leave out."""
        left_out = sum(self.element_wise.values())
        return left_out / (left_out + self.macs) if left_out else 0.0


def trace(inside: nn.Module, call: Callable[[Any], object], argument: Visual | Memory | DecodingState) -> PartCount:
    """Count `call(argument)`; every tensor that it gives is an output of the trace, so that nothing is pruned.

    Args:
        inside: the module whose parameters the call uses; in evaluation mode.
        call: runs without gradients.
        argument: given to the call anew, with traced tensors in it.
    """
    traced = _Traced(inside, call, argument)
    traced.training = False
    analysis = FlopCountAnalysis(traced, tuple(_tensors(argument)))
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    analysis.set_op_handle(**HANDLERS, **element_wise.handlers(), **dict.fromkeys(MOVES))
    counted = {name: int(number) for name, number in analysis.by_operator().most_common() if number}
    macs, times, operations = element_wise.separate(counted)
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
    """What fvcore traces: a module with the model inside it (for its parameters), fed with tensors alone."""

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
