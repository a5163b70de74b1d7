"""Multiply-accumulates of a network that generates captions by itself: vision part, prefill, steps, whole captions.

They are counted by torch's own counter while the network works, since `generate` cannot be traced: matrix products,
convolutions and attention. fvcore, which counts the zoo's models, adds five for each element that a norm passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from torch import nn
from torch.utils.flop_counter import FlopCounterMode

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
