"""Cost tables by theme: every cost as a column, how many times the blind model's it is, and what says nothing apart."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reports.tables import numbers
from reports.tables.columns import NOISY, Facets, cost_column
from reports.tables.table import Cell, Column, Table, Told, table_of
from results.runs.leaderboard import Group, Row

_COMPARED = ("parameters", "gmac_beam_mean_length", "gmac_beam", "train_seconds", "latency_median")
"""Costs with a ratio; of the two that count a caption, only the first that is there has one."""
_CONDITIONS = ("latency_batch", "latency_threads", "latency_repeats", "latency_images", "train_steps", "train_beside")
_SEED = re.compile(r"seed -?\d+: ")
_BLIND = "blind"


def cost_tables(group: Group, facets: Facets) -> dict[str, Told]:
    """What the group's rows cost, by theme: size and computation, time, memory; themes without a cost are left out.

    Latencies that are noise are marked, in the place of a column that says so.
    """
    rows = [row for row in (*group.rows, *group.references) if row.costs]
    by_theme: dict[str, list[str]] = {theme: [] for theme in numbers.THEMES}
    for name in numbers.cost_order(name for row in rows for name in row.costs if name != NOISY):
        unit = next((row.costs[name].unit for row in rows if name in row.costs and row.costs[name].unit), "")
        by_theme[numbers.cost_kind(name, unit).theme].append(name)
    return {theme: _told(_table(group, names, rows, facets)) for theme, names in by_theme.items() if names}


def _table(group: Group, names: Sequence[str], rows: Sequence[Row], facets: Facets) -> Table:
    """The costs, and after each of the compared ones a column of how many times the blind model's it is."""
    columns = []
    for column in (cost_column(name, rows) for name in names):
        columns.append(column)
        if column.key in _COMPARED and not (column.key == "gmac_beam" and "gmac_beam_mean_length" in names):
            columns += _ratio(column, group)

    def is_costed(row: Row) -> bool:
        return row.role == "model" or any(row.costs[name].value is not None for name in names if name in row.costs)

    return table_of(group, columns, facets, is_costed, badged=False)


def _ratio(column: Column, group: Group) -> list[Column]:
    """The column of ratios to the blind model's cost, or else to the least; none where there is nothing to compare."""
    cells = [(row, column.read(row, group)) for row in (*group.rows, *group.references)]
    values = [cell.value for _, cell in cells if cell.value is not None and not cell.other_machine]
    blind = next((cell.value for row, cell in cells if row.model == _BLIND and not cell.other_machine), None)
    unit = blind or min(values, default=0.0)
    if unit <= 0 or len(values) < 2:
        return []

    def read(row: Row, _: Group) -> Cell:
        cell = column.read(row, group)
        if cell.value is None or cell.other_machine:
            return Cell("")
        times = cell.value / unit
        text = f"{times:.2f}×" if times < 10 else f"{numbers.significant(round(times))}×"
        return Cell(f"~{text}" if cell.text.startswith("~") else text, times)

    name = f"× {_BLIND if blind else 'least'}"
    meaning = "times that of the model that sees no image" if blind else "times the least of this table"
    return [Column(name, read, f"{column.name}, {meaning}", name, descending=False)]


def _told(table: Table) -> Told:
    """The table without columns that are empty or the same in every row, which become sentences."""
    places = range(len(table.columns))
    empty = [place for place in places if not table.values(place)]
    same = [place for place in places if table.columns[place].key in _CONDITIONS and _is_same(table, place)]
    by_reason: dict[str, list[str]] = {}
    for place in empty:
        reasons = [line.cells[place].reason or "" for line in table.lines or table.references]
        # What seeds say alike is said once.
        parts = dict.fromkeys(_SEED.sub("", part) for reason in reasons for part in reason.split("; "))
        by_reason.setdefault("; ".join(filter(None, parts)), []).append(table.columns[place].name)
    sentences = [f"Not measured here: {'; '.join(names)} ({reason})." for reason, names in by_reason.items()]
    if same:
        said = "; ".join(f"{table.columns[place].name}: {table.lines[0].cells[place].text}" for place in same)
        sentences.append(f"The same in every row: {said}.")
    kept = [place for place in places if place not in empty and place not in same]
    return Told(table.only(kept) if kept else None, tuple(sentences))


def _is_same(table: Table, place: int) -> bool:
    beside = any(line.cells[place].value is not None for line in table.references)
    return len(table.lines) > 1 and not beside and len({line.cells[place].text for line in table.lines}) == 1
