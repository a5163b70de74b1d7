"""The second counter of a network that generates by itself: fvcore, on a trace of each call that `generate` makes.

It sees the calls of the network or, where `generate` works with its parts, of these; what stands between such calls,
and what the cache of keys and values does, multiplies nothing.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from harness.measure.flops.tracing import macs_of, unfused

NORMS = {"layer_norm", "batch_norm", "group_norm", "instance_norm"}
"""Operators in which fvcore counts five for each element, and torch's counter nothing."""
Call = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def count_again(network: nn.Module, generate: Callable[[int, int], None], *, length: int) -> tuple[int, int]:
    """Multiply-accumulates, norms left out, up to the first token and of the step at `length`, of one row.

    Args:
        generate: as of `count_generation`.
    """
    begin, whole = _calls(network, lambda: generate(1, 1)), _calls(network, lambda: generate(length, 1))
    return sum(map(_count, begin)), _count(whole[-1])


def _count(call: Call) -> int:
    module, args, kwargs = call
    leaves, structure = tree_flatten((args, kwargs))
    traced = _Traced(module, leaves, structure)
    with torch.inference_mode(), unfused():
        tensors = tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))
        by_operator = macs_of(traced, tensors)
    return sum(macs for name, macs in by_operator.items() if name not in NORMS)


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
            [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves], self._structure
        )
        return tuple(leaf for leaf in tree_leaves(self.module(*args, **kwargs)) if isinstance(leaf, Tensor))


def _calls(network: nn.Module, work: Callable[[], None]) -> list[Call]:
    """The outermost calls of modules, each with copies of what it was given, caches included."""
    found: list[Call] = []
    with _watched(network, found):
        work()
    return found


@contextmanager
def _watched(network: nn.Module, found: list[Call]) -> Iterator[None]:
    depth = Counter[str]()

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not depth["calls"]:
            found.append((module, copy.deepcopy(args), copy.deepcopy(kwargs)))
        depth["calls"] += 1

    def after(*_: object) -> None:
        depth["calls"] -= 1

    hooks = [
        handle
        for module in network.modules()
        for handle in (
            module.register_forward_pre_hook(before, with_kwargs=True),
            module.register_forward_hook(after),
        )
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
