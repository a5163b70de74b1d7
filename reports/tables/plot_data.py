"""What plots of pages and figures of papers show: costs with what bounds them, and numbers by epoch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from results.costs import leaderboard_costs
from results.records import EpochRecord, Quantity
from results.runs.leaderboard import Group, Row
from results.runs.run import Run

SAME_COST: Final = 1.1
"""The ratio of costs up to which none is worth a trade-off."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A cost to plot against: its name in the store, the title of its plot, and the units that its axis may have.

    `units` are from large to small, each with how many of the store's units make one and the words of an axis in it.
    """

    cost: str
    title: str
    units: tuple[tuple[float, str], ...]

    def scale(self, costs: Iterable[Quantity]) -> tuple[float, str]:
        largest = max((cost.value for cost in costs if cost.value is not None), default=0.0)
        return next((unit for unit in self.units if largest >= unit[0]), self.units[-1])


def _axis(cost: str, title: str, words: str, **units: float) -> Axis:
    return Axis(cost, title, tuple((unit, words.format(name)) for name, unit in units.items()))


_MACS = {"TMAC": 1e3, "GMAC": 1.0, "MMAC": 1e-3, "kMAC": 1e-6}
_COUNTS = {
    name: _axis(name, "Computation", f"{{}} per caption of {length} length", **_MACS)
    for name, length in (("gmac_beam_mean_length", "mean"), ("gmac_beam", "full"))
}
_MARGINS = {"latency_median": "latency_margin"}
_OTHERS = (
    _axis("latency_median", "Latency", "median latency, {}", seconds=1.0, ms=1e-3),
    _axis("train_seconds", "Training time", "training time, {}", hours=3600.0, minutes=60.0, seconds=1.0),
    Axis("parameters", "Size", ((1e6, "parameters, millions"), (1e3, "parameters, thousands"), (1.0, "parameters"))),
)


def axes_of(group: Group) -> tuple[Axis, ...]:
    """The costs that a group's scores are plotted against."""
    measured = leaderboard_costs({name for row in group.rows for name in row.costs})
    count = next((cost.name for cost in measured if cost.name in _COUNTS), "gmac_beam")
    return (_COUNTS[count], *_OTHERS)


def bounded_cost(row: Row, name: str, runs: Mapping[str, Run]) -> Quantity:
    """A row's cost with what bounds it: its margin where it has one, its own bounds, or else the range over seeds.

    The quartiles of a latency are over images, which is no uncertainty.
    """
    cost = row.costs.get(name)
    margin = row.costs.get(_MARGINS.get(name, ""))
    if cost is None or cost.value is None:
        return cost or Quantity(None, "not measured for this run")
    if margin is not None and margin.value is not None:
        return replace(cost, low=max(cost.value - margin.value, 0.0), high=cost.value + margin.value)
    other_machine = row.other_machines.get(name)
    seeds = (other_machine.seeds if other_machine else ()) or row.seeds
    over_seeds = (runs[key].costs.get(name) for seed, key in zip(row.seeds, row.keys, strict=True) if seed in seeds)
    values = [seed_cost.value for seed_cost in over_seeds if seed_cost is not None and seed_cost.value is not None]
    if cost.low is not None or min(values) == max(values):
        return cost
    return Quantity(cost.value, None, cost.unit, min(values), max(values))


def by_epoch(runs: Iterable[Run], value: Callable[[EpochRecord], float | None]) -> dict[int, list[float]]:
    """What the runs have of each epoch, counted over all stages, from 1."""
    values_by_epoch: dict[int, list[float]] = {}
    for run in runs:
        for epoch_number, epoch in enumerate(run.epochs, start=1):
            if (epoch_value := value(epoch)) is not None:
                values_by_epoch.setdefault(epoch_number, []).append(epoch_value)
    return dict(sorted(values_by_epoch.items()))


def trade_off_front(spots: Sequence[tuple[float, float]]) -> list[int]:
    """The indices of the (cost, quality) that no other beats in both, from cheap to costly."""
    front: list[int] = []
    for index in sorted(range(len(spots)), key=lambda index: (spots[index][0], -spots[index][1])):
        if not front or spots[index][1] > spots[front[-1]][1]:
            front.append(index)
    return front
