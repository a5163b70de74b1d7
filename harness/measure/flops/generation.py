"""Multiply-accumulates of a network that generates captions by itself: vision part, prefill, steps, whole captions.

They are counted by torch's own counter while the network works, since `generate` cannot be traced: matrix products,
convolutions and attention. fvcore, which counts the zoo's models, adds five for each element that a norm passes; it is
the second counter here, on a trace of each call that `generate` makes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from torch.utils.flop_counter import FlopCounterMode

from harness.measure.flops.tracing import macs_of, unfused
from results.records import Quantity

NO_VISION = "the network names no vision part of its own"
NOT_TRAINED = "counted where the model is trained here alone"


@dataclass(frozen=True, slots=True)
class GenerationCounts:
    """Multiply-accumulates for one image.

    Attributes:
        vision: the vision part, once; None where the network has no module of its own for it.
        prefill: all else up to the first token: the projection, the prompt, and an encoder of text if there is one.
        step: one token of one row, the last of a caption of `max_len` unless another position was asked for.
        greedy: a whole caption of `max_len` tokens.
        beam: the same by beam search, as the network's own search does it.
    """

    vision: int | None
    prefill: int
    step: int
    greedy: int
    beam: int

    def quantities(self) -> dict[str, Quantity]:
        """The costs `gmac_encoder`, `gmac_start`, `gmac_step`, `gmac_greedy` and `gmac_beam`; no passes of training."""

        def gmac(macs: int) -> Quantity:
            return Quantity(macs / 1e9, unit="GMAC")

        untrained = Quantity(None, NOT_TRAINED, "GMAC")
        return {
            "gmac_encoder": Quantity(None, NO_VISION, "GMAC") if self.vision is None else gmac(self.vision),
            "gmac_start": gmac(self.prefill),
            "gmac_step": gmac(self.step),
            "gmac_greedy": gmac(self.greedy),
            "gmac_beam": gmac(self.beam),
            "gmac_teacher_forced": untrained,
            "gmac_training": untrained,
        }


def count_generation(
    vision: nn.Module | None,
    generate: Callable[[int, int], None],
    *,
    beam_size: int,
    max_len: int,
    step_position: int | None = None,
) -> GenerationCounts:
    """Count captioning of one image.

    Args:
        vision: the module of the network that sees; None where there is none.
        generate: captions the image with a number of tokens and a beam size, without an early end.
        beam_size, max_len: of the beam search and of the captions.
        step_position: of the one step, from 2, since the first token is that of the prefill.
    """

    @cache
    def macs(length: int, width: int) -> tuple[int, int]:
        return _count(vision, lambda: generate(length, width))

    first, seen = macs(1, 1)
    last = max(step_position or max_len, 2)
    step = macs(last, 1)[0] - macs(last - 1, 1)[0]
    greedy, beam = macs(max_len, 1)[0], macs(max_len, beam_size)[0]
    return GenerationCounts(None if vision is None else seen, first - seen, step, greedy, beam)


def _count(vision: nn.Module | None, work: Callable[[], None]) -> tuple[int, int]:
    """Multiply-accumulates of all the work, and of the vision part in it."""
    begin: list[int] = []
    seen: list[int] = []
    with FlopCounterMode(display=False) as counter:
        hooks = (
            []
            if vision is None
            else [
                vision.register_forward_pre_hook(lambda *_: begin.append(counter.get_total_flops())),
                vision.register_forward_hook(lambda *_: seen.append(counter.get_total_flops() - begin.pop())),
            ]
        )
        try:
            work()
        finally:
            for hook in hooks:
                hook.remove()
    return counter.get_total_flops() // 2, sum(seen) // 2


NORMS = {"layer_norm", "batch_norm", "group_norm", "instance_norm"}
"""Operators in which fvcore counts five for each element, and torch's counter nothing."""
Call = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def count_again(network: nn.Module, generate: Callable[[int, int], None], *, length: int) -> tuple[int, int]:
    """Multiply-accumulates, norms left out, up to the first token and of the step at `length`, of one row, by fvcore.

    It counts a trace of each call of the network or, where `generate` works with its parts, of these; what stands
    between such calls, and what the cache of keys and values does, multiplies nothing.

    Args:
        generate: as of `count_generation`.
    """
    begin, whole = _calls(network, lambda: generate(1, 1)), _calls(network, lambda: generate(length, 1))
    return sum(map(_count_traced, begin)), _count_traced(whole[-1])


def _count_traced(call: Call) -> int:
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
