"""Quality against cost: which models are worth what they take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reports.html.plots import Plot, Series, legend, trade_off_plot
from reports.html.sections import Section
from reports.tables import numbers
from reports.tables.boards import apart
from reports.tables.columns import cost_cell, is_noise, is_of_other_machine, score_column
from reports.tables.contents import Contents
from reports.tables.table import Cell, Column, Table, Told, table_of
from results.records import Quantity
from results.runs.leaderboard import Group, Row
from results.runs.run import Run


@dataclass(frozen=True, slots=True)
class Axis:
    """A cost to plot against: its name in the store, the words of its column, and the units that its axis may have.

    `units` are from large to small, each with how many of the store's units make one and the words of an axis in it;
    `heading` has the unit where the numbers below have none.
    """

    cost: str
    title: str
    heading: str
    units: tuple[tuple[float, str], ...]

    def scale(self, costs: Iterable[Quantity]) -> tuple[float, str]:
        largest = max((cost.value for cost in costs if cost.value is not None), default=0.0)
        return next((each for each in self.units if largest >= each[0]), self.units[-1])


def _computation(cost: str, length: str) -> Axis:
    units = ((1e3, "TMAC"), (1.0, "GMAC"), (1e-3, "MMAC"), (1e-6, "kMAC"))
    labels = tuple((unit, f"{name} per caption of {length} length") for unit, name in units)
    return Axis(cost, "Computation", "Computation", labels)


_COUNTS = {
    name: _computation(name, length) for name, length in (("gmac_beam_mean_length", "mean"), ("gmac_beam", "full"))
}
_MARGINS = {"latency_median": "latency_margin"}
_TIMES = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_OTHERS = (
    Axis("latency_median", "Latency", "Latency", ((1.0, "median latency, seconds"), (1e-3, "median latency, ms"))),
    Axis(
        "train_seconds",
        "Training time",
        "Training time",
        tuple((unit, f"training time, {name}") for unit, name in _TIMES),
    ),
    Axis(
        "parameters",
        "Size",
        "Size, parameters",
        ((1e6, "parameters, millions"), (1e3, "parameters, thousands"), (1.0, "parameters")),
    ),
)


def trade_off_sections(contents: Contents, colour: Mapping[str, int]) -> list[Section]:
    """The groups of which at least one plot of two points can be drawn, those of most rows first."""
    found: list[Section] = []
    for group in contents.groups:
        axes = (_COUNTS[numbers.caption_count({name for row in group.rows for name in row.costs})], *_OTHERS)
        costs = {
            row.keys: {axis.cost: bounded_cost(row, axis.cost, contents.runs) for axis in axes} for row in group.rows
        }
        plots: list[Plot] = []
        best: dict[tuple[str, ...], list[str]] = {}
        for axis in axes:
            shown = [row for row in group.rows if _is_drawn(row, axis.cost, costs[row.keys][axis.cost])]
            unit, label = axis.scale(costs[row.keys][axis.cost] for row in shown)
            series = [_series(row, costs[row.keys][axis.cost], axis.cost, unit, label, colour) for row in shown]
            plot = trade_off_plot(axis.title, label, "CIDEr-D", series)
            if plot is not None:
                plots.append(plot)
                for number in sorted(plot.best):
                    best.setdefault(shown[number].keys, []).append(axis.title.lower())
        if plots:
            found.append(
                Section(
                    id=f"trade-offs-{len(found) + 1}",
                    title=contents.title(group),
                    track=group.track,
                    apart=apart(group),
                    legend=legend(
                        (one.series.name for plot in plots for one in plot.drawn),
                        [row.model for row in group.rows],
                        colour,
                        {row.model for row in group.rows if row.still_learning},
                    ),
                    plots=plots,
                    tables={"": Told(_table(group, axes, costs, best, contents))},
                )
            )
    return found


def bounded_cost(row: Row, name: str, runs: Mapping[str, Run]) -> Quantity:
    """A row's cost with what bounds it: its margin where it has one, its own bounds, or else the range over seeds.

    The quartiles of a latency are over images, which is no uncertainty.
    """
    cost, margin = row.costs.get(name), row.costs.get(_MARGINS.get(name, ""))
    if cost is None or cost.value is None:
        return cost or Quantity(None, "not measured for this run")
    if margin is not None and margin.value is not None:
        return replace(cost, low=cost.value - margin.value, high=cost.value + margin.value)
    other = row.other_machines.get(name)
    seeds = (other.seeds if other else ()) or row.seeds
    over_seeds = (runs[key].costs.get(name) for seed, key in zip(row.seeds, row.keys, strict=True) if seed in seeds)
    values = [each.value for each in over_seeds if each is not None and each.value is not None]
    if cost.low is not None or min(values) == max(values):
        return cost
    return Quantity(cost.value, None, cost.unit, min(values), max(values))


def _is_drawn(row: Row, name: str, cost: Quantity) -> bool:
    score = row.scores.get("CIDEr-D")
    measured = score is not None and score.mean is not None and cost.value is not None
    return measured and not is_of_other_machine(row, name)


def _series(row: Row, cost: Quantity, name: str, unit: float, label: str, colour: Mapping[str, int]) -> Series:
    score = row.scores["CIDEr-D"]
    assert score.mean is not None
    assert cost.value is not None
    bounds = numbers.bounds(score.low, score.high, numbers.percent)
    quality = f"CIDEr-D {numbers.percent(score.mean)}{f' ({bounds})' if bounds else ''}"
    text = f"{row.model}: {quality}, {numbers.significant(cost.value / unit)} {label}"
    text += " (noisy)" if is_noise(row, name) else ""
    text += ", still learning" if row.still_learning else ""
    x_bounds = None if cost.low is None or cost.high is None else (cost.low / unit, cost.high / unit)
    y_bounds = None if score.low is None or score.high is None else (100 * score.low, 100 * score.high)
    if y_bounds is None and score.sd is not None:
        y_bounds = (100 * (score.mean - score.sd), 100 * (score.mean + score.sd))
    spot = (cost.value / unit, 100 * score.mean)
    return Series(row.model, colour[row.model], (spot,), text, x_bounds, y_bounds, open_end=row.still_learning)


def _meaning(axis: Axis, costs: Mapping[tuple[str, ...], Mapping[str, Quantity]]) -> str:
    return axis.scale(each[axis.cost] for each in costs.values())[1]


def _table(
    group: Group,
    axes: Sequence[Axis],
    costs: Mapping[tuple[str, ...], Mapping[str, Quantity]],
    best: Mapping[tuple[str, ...], Sequence[str]],
    contents: Contents,
) -> Table:
    def column(axis: Axis) -> Column:
        def read(row: Row, _: Group) -> Cell:
            return cost_cell(replace(row, costs={**row.costs, **costs[row.keys]}), axis.cost)

        return Column(axis.heading, read, _meaning(axis, costs), axis.title, descending=False)

    columns = (
        score_column("CIDEr-D"),
        Column(
            *("Best trade-off in", lambda row, _: Cell(", ".join(best.get(row.keys, ())))),
            *("the plots on whose front the row lies", "Best"),
            sortable=False,
        ),
        *map(column, axes),
    )
    return table_of(replace(group, references=()), columns, contents.facets)
