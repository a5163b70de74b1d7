"""The cost page: what the rows of each group cost by theme, and what fvcore counted of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reports.tables import numbers, table_values, tables
from reports.tables.cost_columns import CostTable, prediction_note, told
from reports.tables.leaderboard_page import apart, by_size, dressed
from reports.tables.table_values import Notes, TableValue
from results.records import Quantity
from results.runs.leaderboard import Group
from results.runs.run import Run


@dataclass(frozen=True, slots=True)
class Part:
    """One traced part of a model: multiply-accumulates, and operators counted and not counted, as text."""

    name: str
    macs: str
    counted: str
    uncounted: str


@dataclass(frozen=True, slots=True)
class CostSection:
    """What one set of rows costs: a table a theme, and by model the counted parts; `apart` separates it from others."""

    id: str
    title: str
    track: str
    apart: str
    tables: dict[str, CostTable]
    operators: list[tuple[str, list[Part]]]


def cost_sections(groups: Sequence[Group], runs: Mapping[str, Run]) -> list[CostSection]:
    """Costs by group; splits of the same runs share their costs, so they share one section."""
    seen: dict[frozenset[str], Group] = {}
    for group in by_size(groups):
        seen.setdefault(frozenset(key for row in group.rows for key in row.keys), group)  # splits rank them otherwise
    found = []
    for number, group in enumerate((group for keys, group in seen.items() if keys), start=1):
        shown = {
            theme: told(replace(table, lines=dressed(table.lines, runs), references=dressed(table.references, runs)))
            for theme, table in tables.cost_tables(group).items()
        }
        counted = [(row.model, counted_parts(runs[row.keys[0]].operators)) for row in group.rows]
        counted = [(model, parts) for model, parts in counted if parts]
        if shown:
            found.append(CostSection(f"costs-{number}", group.dataset, group.track, apart(group), shown, counted))
    return found


def cost_list(measured: Mapping[str, Quantity]) -> list[tuple[str, str, TableValue]]:
    """A run's costs as label, meaning and number; the reason of a missing one stands beside it."""
    found = []
    for name in numbers.cost_order(measured):
        quantity = measured[name]
        kind = numbers.cost_kind(name, quantity.unit)
        cell = table_values.cost_value(quantity, Notes())
        if quantity.value is not None:
            cell = replace(cell, text=numbers.amount(name, quantity.value, quantity.unit))
        cell = replace(table_values.estimated(cell, name, Notes()), mark="")
        if name == "predicted_train_seconds" and (why := _off(measured)):
            cell = replace(cell, reason=why)
        found.append((kind.label, kind.meaning, cell))
    return found


def _off(measured: Mapping[str, Quantity]) -> str:
    """Why the predicted training time of a run was off, where it was far off."""
    missing = Quantity(None)
    predicted, taken = (measured.get(f"{kind}train_seconds", missing).value for kind in ("predicted_", ""))
    return prediction_note(predicted, taken)


def counted_parts(operators: Mapping[str, Any]) -> list[Part]:
    """Traced parts as the counter of multiply-accumulates leaves them; entries of another form are not parts."""
    return [
        Part(
            name=name.replace("_", " "),
            macs=numbers.macs(part["macs"]),
            counted=_amounts(part["by_operator"], numbers.macs),
            uncounted=_amounts(part["uncounted"], lambda times: f"×{times:,.0f}"),
        )
        for name, part in operators.items()
        if isinstance(part, Mapping) and {"macs", "by_operator", "uncounted"} <= part.keys()
    ]


def _amounts(by_name: Mapping[str, float], show: Callable[[float], str]) -> str:
    ordered = sorted(by_name.items(), key=lambda entry: (-entry[1], entry[0]))
    return ", ".join(f"{name} {show(amount)}" for name, amount in ordered) or numbers.DASH
