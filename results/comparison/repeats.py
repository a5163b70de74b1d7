"""Whether a run repeats an earlier one: losses and captions to the last bit, their scores, and how long it took."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Final

from results.comparison.baseline import Run, Spent
from results.comparison.gate_result import CostChange, Exact

MACHINE: Final = ("machine", "cpu", "device")
HARDWARE: Final = (*MACHINE, "threads", "training")
_MORE_IS_SLOWER: Final = {"s": True, "images/s": False}
_NO_TIMES: Final = frozenset({"latency_iqr", "latency_margin"})  # in seconds, but how much a time varies
_MARGINS: Final = {"latency_median": "latency_margin"}  # whose quartiles are over images, which is no uncertainty
_ROUNDING: Final = 1e-9


def exactness(before: Run, after: Run) -> tuple[Exact, list[str]]:
    """The result of the deterministic class, with a sentence for what differs or cannot be compared here.

    Bits are compared on the platform that the baseline was made on alone, and only if that is a CPU.
    """
    apart = before.platform.differs(after.platform)
    if apart or not before.platform.device.startswith("cpu"):
        why = "; ".join(apart) or f"on {before.platform.device} training does not repeat to the bit"
        return "not comparable here", [f"{before.name}: bits are not comparable here: {why}"]
    if not before.losses and not before.splits:
        return "not comparable here", [f"{before.name}: the baseline has neither losses nor captions of it"]
    changed = [f"{before.name}: {what}" for what in (*_losses(before, after), *_captions(before, after))]
    return ("different", changed) if changed else ("equal", [])


def rescored(before: Run, after: Run) -> list[str]:
    """Where the same captions have other scores: on every platform they should be the same."""
    found = []
    for split, results in before.splits.items():
        now = after.splits.get(split)
        if now is None or now.captions != results.captions:
            continue
        for metric in (metric for metric in results.scores if metric in now.scores):
            one, two = results.scores[metric], now.scores[metric]
            if abs(one - two) > _ROUNDING:
                scores = f"{metric} {100 * one:.4f} → {100 * two:.4f}"
                found.append(f"{before.name}: the same captions of {split} have other scores: {scores}")
    return found


def cost_changes(before: Sequence[Run], after: Sequence[Run]) -> list[CostChange]:
    """Costs that all runs of both sides have, in the order they were recorded in."""
    found = []
    for name in before[0].costs:
        sides = [[_spent(run, name) for run in runs if name in run.costs] for runs in (before, after)]
        if all(len(side) == len(before) for side in sides):
            found.append(_cost_change(name, *sides))
    return found


def missing_costs(before: Sequence[Run], after: Sequence[Run]) -> list[str]:
    """Costs that were measured before and were not now."""
    return [
        name
        for name in before[0].costs
        if any(name in one.costs and name not in two.costs for one, two in _pairs(before, after))
    ]


def is_time(name: str, unit: str) -> bool:
    """Whether a cost says how fast something is."""
    return unit in _MORE_IS_SLOWER and name not in _NO_TIMES


def other_hardware(before: Sequence[Run], after: Sequence[Run], fields: Sequence[str] = HARDWARE) -> list[str]:
    """In what the machines differ, or are not known to be alike."""
    found = (what for one, two in _pairs(before, after) for what in one.platform.differs(two.platform, fields))
    return list(dict.fromkeys(found))


def _pairs(before: Sequence[Run], after: Sequence[Run]) -> Iterator[tuple[Run, Run]]:
    return zip(before, after, strict=True)


def _losses(before: Run, after: Run) -> Iterator[str]:
    one, two = ({(stage, epoch): loss for stage, epoch, loss in run.losses} for run in (before, after))
    for stage, epoch in sorted(one.keys() | two.keys()):
        losses = one.get((stage, epoch)), two.get((stage, epoch))
        if losses[0] != losses[1]:
            shown = " → ".join("none" if loss is None else repr(loss) for loss in losses)
            yield f"losses differ from stage {stage + 1}, epoch {epoch + 1} on: {shown}"
            return


def _captions(before: Run, after: Run) -> Iterator[str]:
    for split, results in before.splits.items():
        if split in after.splits and results.captions != after.splits[split].captions:
            yield f"captions of {split} differ"


def _spent(run: Run, name: str) -> Spent:
    """A cost of a run, between the bounds that another run of the same may lie in where it states how far that is."""
    cost, margin = run.costs[name], run.costs.get(_MARGINS.get(name, ""))
    if margin is None:
        return cost
    return cost.model_copy(update={"low": cost.value - margin.value, "high": cost.value + margin.value})


def _cost_change(name: str, before: Sequence[Spent], after: Sequence[Spent]) -> CostChange:
    unit = before[0].unit
    one, two = (fmean(cost.value for cost in side) for side in (before, after))
    ratio = _times(two, one)
    slowdown = None
    if is_time(name, unit) and two > 0:
        slowdown = ratio if _MORE_IS_SLOWER[unit] else _times(one, two)
    return CostChange(name, unit, one, two, ratio, slowdown, _apart(before, after))


def _times(one: float, other: float) -> float | None:
    """How many times the other; None where that is nothing, or too little for a number."""
    times = one / other if other > 0 else math.inf
    return times if math.isfinite(times) else None


def _apart(before: Sequence[Spent], after: Sequence[Spent]) -> bool:
    """Whether no interval touches the other side's of the same seed; True where they were measured without."""
    bounds = [(one.low, one.high, two.low, two.high) for one, two in zip(before, after, strict=True)]
    return all(
        low is None or high is None or lower is None or higher is None or high < lower or higher < low
        for low, high, lower, higher in bounds
    )
