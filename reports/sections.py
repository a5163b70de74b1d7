"""What each page shows, worked out from the store's views so that templates only lay it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reports import numbers, tables
from reports.curves import CurveLine, curve_line, curve_plots
from reports.plots import Plot
from reports.tables import Cell, Heading, Line, Notes, Table, signature_text
from reports.trade_offs import trade_offs
from results.records import Quantity
from results.views import CostRow, DatasetInfo, Failure, Group, RunDetail

PALETTE = 8


@dataclass(frozen=True, slots=True)
class Board:
    """One comparability group on the leaderboard; `bars` gives a cell's share of the best, in per cent.

    `apart` is what separates it from the split's other groups, as fields of its signature.
    """

    id: str
    title: str
    track: str
    apart: str
    group: Group
    images: int | None
    absent_levels: str
    several_seeds: bool
    table: Table
    bars: Callable[[Cell], float | None]
    domains: Table | None
    plots: tuple[Plot, ...]
    signature: str


@dataclass(frozen=True, slots=True)
class CostSection:
    """What one set of rows costs: a table a theme, and by model the counted parts; `apart` as in `Board`."""

    id: str
    title: str
    track: str
    apart: str
    tables: dict[str, Table]
    operators: list[tuple[str, list[Part]]]


@dataclass(frozen=True, slots=True)
class Part:
    """One traced part of a model: GMAC, and operators counted and not counted, as text."""

    name: str
    gmac: str
    counted: str
    uncounted: str


@dataclass(frozen=True, slots=True)
class CurveSection:
    """Learning curves of one data set: plots, their legend as (name, colour), and a line a run."""

    id: str
    title: str
    legend: list[tuple[str, int]]
    plots: list[Plot]
    lines: list[CurveLine]


def colours(runs: Sequence[RunDetail]) -> dict[str, int]:
    """A colour for every model, the same on all pages; they repeat after the eighth."""
    names = sorted({run.model for run in runs})
    return {name: number % PALETTE for number, name in enumerate(names)}


def summary(groups: Sequence[Group], failures: Sequence[Failure], datasets: Sequence[DatasetInfo]) -> str:
    """The report in one sentence."""
    models = {row.model for group in groups for row in group.rows}
    runs = {key for group in groups for row in group.rows for key in row.keys}
    if not models:
        return "No model has finished yet."
    text = f"{_many(len(models), 'model')} on {_listed(sorted({group.dataset for group in groups}))}, "
    text += f"{_many(len(runs), 'finished run')}"
    for status in ("failed", "skipped", "running", "planned"):
        number = sum(failure.status == status for failure in failures)
        text += f", {number} {status}" if number else ""
    sizes = next((dataset.split_sizes for dataset in datasets if dataset.name == groups[0].dataset), {})
    trained = f" Trained on {sizes['train']:,} images." if len(datasets) == 1 and "train" in sizes else ""
    return f"{text}.{trained}"


def boards(groups: Sequence[Group], datasets: Sequence[DatasetInfo], colour: Mapping[str, int]) -> list[Board]:
    """The leaderboard's groups, in the store's order."""
    images = {(dataset.fingerprint, split): n for dataset in datasets for split, n in dataset.evaluated.items()}
    found = []
    for number, group in enumerate(groups, start=1):
        table = tables.leaderboard(group)
        found.append(
            Board(
                id=f"group-{number}",
                title=_title(group, datasets),
                track=group.track if group.rows else "",
                apart=_apart(group),
                group=group,
                images=images.get((group.fingerprint, group.split)),
                absent_levels=tables.absent_levels(group),
                several_seeds=any(len(row.seeds) > 1 for row in (*group.rows, *group.references)),
                table=table,
                bars=_bars(table),
                domains=tables.by_domain(group),
                plots=trade_offs(group, colour),
                signature=signature_text(group.signature, group.split) if group.rows else "",
            )
        )
    return found


def row_labels(groups: Sequence[Group]) -> dict[str, str]:
    """By run, what tells its row from rows of the same model: its configuration, or else its group's conditions."""
    return {
        key: tables.differences(row.differs) or _apart(group)
        for group in groups
        for row in group.rows
        for key in row.keys
    }


def costs(groups: Sequence[Group], rows: Sequence[CostRow]) -> list[CostSection]:
    """Costs by group; splits of the same runs share their costs, so they share one section."""
    operators = {row.key: row.operators for row in rows}
    seen: dict[tuple[str, ...], Group] = {}
    for group in groups:
        seen.setdefault(tuple(key for row in (*group.rows, *group.references) for key in row.keys), group)
    found = []
    for number, group in enumerate(seen.values(), start=1):
        shown = tables.cost_tables(group)
        counted = [(row.model, _parts(operators[row.keys[0]])) for row in group.rows]
        counted = [(model, parts) for model, parts in counted if parts]
        if shown:
            track = group.track if group.rows else ""
            found.append(CostSection(f"costs-{number}", group.dataset, track, _apart(group), shown, counted))
    return found


def curves(runs: Sequence[RunDetail], colour: Mapping[str, int]) -> list[CurveSection]:
    """Learning curves by data set and track, of the runs that have epochs."""
    by_data: dict[tuple[str, str], list[RunDetail]] = {}
    for run in runs:
        if run.epochs:
            by_data.setdefault((run.dataset, run.track), []).append(run)
    return [
        CurveSection(
            id=f"curves-{number}",
            title=f"{dataset}, {track} track",
            legend=[(name, colour[name]) for name in sorted({run.model for run in members})],
            plots=curve_plots(members, colour),
            lines=[curve_line(run) for run in members],
        )
        for number, ((dataset, track), members) in enumerate(by_data.items(), start=1)
    ]


def score_tables(run: RunDetail) -> list[tuple[str, Table]]:
    """A run's scores, one table a split, one line a domain."""
    found = []
    for split, domains in run.scores.items():
        notes = Notes()
        metrics = numbers.metric_order(name for scores in domains.values() for name in scores)
        lines = tuple(
            Line(domain, "", (), tuple(tables.quantity_cell(domains[domain].get(name), notes) for name in metrics))
            for domain in numbers.domain_order(domains)
        )
        headings = tuple(Heading(name, name, f"{name}, times 100") for name in metrics)
        found.append((split, Table(headings, lines, (), notes)))
    return found


def cost_list(measured: Mapping[str, Quantity]) -> list[tuple[str, str, Cell]]:
    """A run's costs as label, meaning and number; the reason of a missing one stands beside it."""
    found = []
    for name in numbers.cost_order(measured):
        quantity = measured[name]
        kind = numbers.cost_kind(name, quantity.unit)
        found.append((kind.label, kind.meaning, replace(tables.cost_cell(quantity, Notes()), mark="")))
    return found


def flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted names with their values as text."""
    found: list[tuple[str, str]] = []
    for name, entry in value.items():
        if isinstance(entry, Mapping) and entry:
            found += flat(entry, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", numbers.DASH if entry is None else str(entry)))
    return found


def _title(group: Group, datasets: Sequence[DatasetInfo]) -> str:
    twins = [dataset for dataset in datasets if dataset.name == group.dataset]
    return f"{group.dataset} {group.split}" + (
        f" #{group.fingerprint.rpartition('#')[2][:8]}" if len(twins) > 1 else ""
    )


def _apart(group: Group) -> str:
    return ", ".join(f"{name}: {group.signature[name]}" for name in group.separating if name in group.signature)


def _bars(table: Table) -> Callable[[Cell], float | None]:
    """Lengths of the bars under the first column, as shares of its largest value."""
    values = [line.cells[0].value for line in (*table.lines, *table.references) if line.cells]
    largest = max((value for value in values if value is not None), default=0.0)

    def share(cell: Cell) -> float | None:
        return None if cell.value is None or largest <= 0 else round(100 * max(0.0, cell.value) / largest, 1)

    return share


def _parts(operators: Mapping[str, Any]) -> list[Part]:
    """Traced parts as `FlopCounts.operators()` gives them; entries of another form are not parts."""
    return [
        Part(
            name=name.replace("_", " "),
            gmac=numbers.significant(part["macs"] / 1e9),
            counted=_amounts(part["by_operator"], lambda macs: f"{numbers.significant(macs / 1e9)} GMAC"),
            uncounted=_amounts(part["uncounted"], lambda times: f"×{times:,.0f}"),
        )
        for name, part in operators.items()
        if isinstance(part, Mapping) and {"macs", "by_operator", "uncounted"} <= part.keys()
    ]


def _amounts(by_name: Mapping[str, float], show: Callable[[float], str]) -> str:
    ordered = sorted(by_name.items(), key=lambda entry: (-entry[1], entry[0]))
    return ", ".join(f"{name} {show(amount)}" for name, amount in ordered) or numbers.DASH


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
