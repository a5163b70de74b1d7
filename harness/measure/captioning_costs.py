"""Costs of captioning with a model: multiply-accumulates, time and energy, as stored with its results.

A cost that cannot be measured is None with a reason. Nothing here raises, since a model may have trained for days.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import torch
from torch import nn

from harness.measure.energy import COSTS as ENERGY
from harness.measure.energy import measure_energy, not_measured
from harness.measure.environment import describe_state
from harness.measure.flops import COSTS as GMAC
from harness.measure.flops import CountCache, FlopCounts, GenerationCounts, count_caption, count_flops
from harness.measure.latency import COSTS as LATENCY
from harness.measure.latency import time_work
from harness.measure.model_modes import eval_mode
from harness.utils.plugins import contain_exits
from harness.utils.precision import autocast
from results.records import Quantity
from zoo.captioner import Captioner, Memory, Visual


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: timed runs of each batch, and seconds of each energy window (0 for no energy)."""

    repeats: int = 30
    energy_seconds: float = 5.0


@dataclass(slots=True)
class Counted:
    """Costs by name, and the counts from which they follow, if any."""

    costs: dict[str, Quantity] = field(default_factory=dict)
    counts: FlopCounts | None = None

    @property
    def operators(self) -> dict[str, Any]:
        """Counts by operator, JSON-able."""
        return {} if self.counts is None else self.counts.operators()


@dataclass(slots=True)
class Timed:
    """Costs by name, and the state of the machine during measurement: load, clocks, threads, noise."""

    costs: dict[str, Quantity] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)


def untimed(reason: str) -> Timed:
    """Time and energy as None."""
    return Timed(not_measured(LATENCY | ENERGY, reason))


def count_captioning(
    model: Captioner, visual: Visual, *, beam_size: int, max_len: int, cache: CountCache | None = None
) -> Counted:
    """Count captioning of one image by beam search and by greedy decoding; the model's state is restored."""
    counting = count_flops if cache is None else cache.flops
    return counted(model, lambda: counting(model, visual, caption_length=max_len, beam_size=beam_size))


def counted(network: nn.Module, count: Callable[[], FlopCounts | GenerationCounts]) -> Counted:
    """The number of parameters of a network, and the result of `count` for one image."""
    result = Counted()

    def costs() -> dict[str, Quantity]:
        counts = count()
        result.counts = counts if isinstance(counts, FlopCounts) else None
        return counts.quantities()

    parameters = Quantity(float(sum(parameter.numel() for parameter in network.parameters())))
    result.costs = {"parameters": parameters} | _or_missing(costs, dict.fromkeys(GMAC, "GMAC"))
    return result


def count_mean_caption(
    model: Captioner, visual: Visual, *, beam_size: int, length: float, cache: CountCache | None = None
) -> dict[str, Quantity]:
    """Count captioning of one image by beam search for the mean length of a caption in tokens, the end token included.

    The count is interpolated linearly between the integer lengths on either side of the mean.
    """

    def count() -> dict[str, Quantity]:
        counting = count_caption if cache is None else cache.caption
        below = math.floor(length)
        above = math.ceil(length)
        macs = {tokens: counting(model, visual, tokens, beam_size).macs for tokens in {below, above}}
        mean = macs[below] + (length - below) * (macs[above] - macs[below])
        return {"gmac_beam_mean_length": Quantity(mean / 1e9, unit="GMAC")}

    measured = {"caption_length_mean": Quantity(length, unit="tokens")}
    return measured | _or_missing(count, {"gmac_beam_mean_length": "GMAC"})


def time_captioning(
    model: Captioner,
    visuals: Sequence[Visual],
    search: Callable[[Captioner, Memory], object],
    *,
    effort: Effort,
    threads: int | None = None,
    precision: str = "fp32",
) -> Timed:
    """Measure time and energy of captioning batches by beam search on the model's device, from features to tokens.

    Args:
        model: its training flags are restored.
        visuals: the batches, of one size; batches of 1 give the latency of a single image.
        search: `beam_search` with its settings.
    """
    device = next(model.parameters()).device
    batches = [visual.to(device) for visual in visuals]
    next_batch = cycle(batches)

    def caption() -> None:
        search(model, model.encode(next(next_batch)))

    with eval_mode(model), autocast(device, precision):
        return time_generation(
            caption, len(batches), device, effort=effort, threads=threads, batch=batches[0].batch_size
        )


def time_generation(
    work: Callable[[], object],
    count: int,
    device: torch.device,
    *,
    effort: Effort,
    threads: int | None = None,
    batch: int = 1,
) -> Timed:
    """Measure time and energy of captioning `count` batches, one by one."""
    result = Timed()

    def clock() -> dict[str, Quantity]:
        costs, conditions = time_work(work, count, device, batch=batch, repeats=effort.repeats, threads=threads)
        result.state = describe_state(device) | conditions
        return costs

    def weigh() -> dict[str, Quantity]:
        with torch.inference_mode():
            return measure_energy(work, batch, device, window_s=effort.energy_seconds)

    result.costs = _or_missing(clock, LATENCY) | _or_missing(weigh, ENERGY)
    return result


def _or_missing(measure: Callable[[], dict[str, Quantity]], units: Mapping[str, str]) -> dict[str, Quantity]:
    """The result of `measure`; None for all costs if the model's code raises, with the error as the reason."""
    try:
        with contain_exits():
            return measure()
    except Exception as error:  # a plug-in's model may raise anything
        return not_measured(units, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
