"""A second counter of what networks that generate by themselves multiply: fvcore, on a trace of each of their calls.

What stands between such calls, and what the cache of keys and values does, multiplies nothing.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from fvcore.nn import FlopCountAnalysis
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from harness.measure.flops import HANDLERS, MOVES, unfused

NORMS = {"layer_norm", "batch_norm", "group_norm", "instance_norm"}
"""Operators in which fvcore counts five for each element, and torch's counter nothing."""
Call = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def count_again(network: nn.Module, generate: Callable[[int, int], None], *, length: int) -> tuple[int, int]:
    """Multiply-accumulates, norms left out, up to the first token and of the step at `length`, of one row."""
    begin, whole = _calls(network, lambda: generate(1, 1)), _calls(network, lambda: generate(length, 1))
    return sum(map(_count, begin)), _count(whole[-1])


def _count(call: Call) -> int:
    module, args, kwargs = call
    leaves, structure = tree_flatten((args, kwargs))
    analysis = FlopCountAnalysis(_Traced(module, leaves, structure), tuple(x for x in leaves if isinstance(x, Tensor)))
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    with torch.inference_mode(), unfused():
        counted = analysis.set_op_handle(**HANDLERS, **dict.fromkeys(MOVES)).by_operator()
    return sum(int(macs) for name, macs in counted.items() if name not in NORMS)


class _Traced(nn.Module):
    """A call whose tensors are given, for a trace."""

    def __init__(self, module: nn.Module, leaves: list[Any], structure: Any) -> None:
        super().__init__()
        self.module = module
        self._leaves, self._structure = leaves, structure
        self.training = False

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        args, kwargs = tree_unflatten(
            [next(given) if isinstance(x, Tensor) else x for x in self._leaves], self._structure
        )
        outputs = [leaf for leaf in tree_leaves(self.module(*args, **kwargs)) if isinstance(leaf, Tensor)]
        # positions are left out: a trace refuses outputs that no input changes
        return tuple(output for output in outputs if output.is_floating_point())


def _calls(network: nn.Module, work: Callable[[], None]) -> list[Call]:
    """The outermost calls of modules, each with copies of what it was given, caches included."""
    found: list[Call] = []
    depth = 0

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal depth
        if not depth:
            found.append((module, copy.deepcopy(args), copy.deepcopy(kwargs)))
        depth += 1

    def after(*_: object) -> None:
        nonlocal depth
        depth -= 1

    hooks = [module.register_forward_pre_hook(before, with_kwargs=True) for module in network.modules()]
    hooks += [module.register_forward_hook(after) for module in network.modules()]
    try:
        work()
    finally:
        for hook in hooks:
            hook.remove()
    return found
