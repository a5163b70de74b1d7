"""Columns of a cost table beside what is measured: how many times the blind model's, and which say nothing apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from reports.tables import numbers
from reports.tables.table_values import Notes, TableValue
from reports.tables.tables import Heading, Line, Table

COMPARED = ("parameters", "gmac_beam_mean_length", "gmac_beam", "train_seconds", "latency_median")
"""Costs with a ratio; of the two that count a caption, only the first that is there has one."""
_CONDITIONS = ("latency_batch", "latency_threads", "latency_repeats", "latency_images", "train_steps", "train_beside")
_SEED = re.compile(r"seed -?\d+: ")
_OFF = 2.0
BLIND = "blind"


@dataclass(frozen=True, slots=True)
class CostTable:
    """A table without columns that say nothing, None where none is left, and sentences for what was left out."""

    table: Table | None
    sentences: tuple[str, ...]


def told(table: Table) -> CostTable:
    """The table with ratios; empty columns and those that are the same in every row become sentences."""
    table = _with_ratios(_with_explained_prediction(table))
    empty = [place for place in range(len(table.headings)) if not _values(table, place)]
    labels = {numbers.cost_kind(name, "").label for name in _CONDITIONS}
    same = [place for place, heading in enumerate(table.headings) if heading.name in labels and _is_same(table, place)]
    sentences = _why_empty(table, empty)
    if same:
        said = "; ".join(f"{table.headings[place].name}: {table.lines[0].cells[place].text}" for place in same)
        sentences.append(f"The same in every row: {said}.")
    kept = [place for place in range(len(table.headings)) if place not in empty and place not in same]
    return CostTable(_only(table, kept) if kept else None, tuple(sentences))


def prediction_note(predicted: float | None, taken: float | None) -> str:
    """Why a predicted training time was off, where it was by more than twice; else ""."""
    if not predicted or not taken or 1 / _OFF <= predicted / taken <= _OFF:
        return ""
    times = predicted / taken
    said = f"{times:.1f} times" if times > 1 else f"1/{1 / times:.1f} of"
    return (
        f"{said} what training took: the probe before the first step lasts a moment, in which whatever else the "
        "machine did counts in full, and a stage that stops early takes fewer steps than planned"
    )


def _with_ratios(table: Table) -> Table:
    """After each of the compared costs a column of how many times the blind model's it is, or else the least."""
    names = [heading.name for heading in table.headings]
    caption = numbers.cost_kind("gmac_beam_mean_length", "").label in names
    wanted = {numbers.cost_kind(name, "").label for name in COMPARED if not (name == "gmac_beam" and caption)}
    for place in reversed([place for place, name in enumerate(names) if name in wanted]):
        table = _with_ratio(table, place)
    return table


def _with_ratio(table: Table, place: int) -> Table:
    cells = [(line, line.cells[place]) for line in table.all_lines if not line.cells[place].other_machine]
    values = [cell.value for _, cell in cells if cell.value is not None]
    blind = [cell.value for line, cell in cells if line.model == BLIND]
    unit = next((value for value in blind if value), 0.0)
    name, meaning = f"× {BLIND}", "times that of the model that sees no image"
    if not unit:
        name, meaning, unit = "× least", "times the least of this table", min(values, default=0.0)
    if unit <= 0 or len(values) < 2:
        return table

    def ratio(line: Line) -> TableValue:
        value = line.cells[place].value
        if value is None or line.cells[place].other_machine:
            return TableValue("", None)
        noise = "~" if line.cells[place].text.startswith("~") else ""
        return TableValue(f"{noise}{_times(value / unit)}", value / unit)

    heading = Heading(name, name, f"{table.headings[place].name}, {meaning}", descending=False)
    headings = (*table.headings[: place + 1], heading, *table.headings[place + 1 :])
    return replace(
        _each(table, lambda line: (*line.cells[: place + 1], ratio(line), *line.cells[place + 1 :])),
        headings=headings,
    )


def _times(ratio: float) -> str:
    return f"{ratio:.2f}×" if ratio < 10 else f"{numbers.significant(round(ratio))}×"


def _with_explained_prediction(table: Table) -> Table:
    names = [heading.name for heading in table.headings]
    predicted, taken = (numbers.cost_kind(f"{kind}train_seconds", "s").label for kind in ("predicted_", ""))
    if predicted not in names or taken not in names:
        return table
    place, beside = names.index(predicted), names.index(taken)

    def cells(line: Line) -> tuple[TableValue, ...]:
        why = prediction_note(line.cells[place].value, line.cells[beside].value)
        if not why:
            return line.cells
        cell = replace(line.cells[place], reason=why, mark=table.notes.mark(why))
        return (*line.cells[:place], cell, *line.cells[place + 1 :])

    return _each(table, cells)


def _each(table: Table, cells: Callable[[Line], tuple[TableValue, ...]]) -> Table:
    """The table with other cells in its lines."""
    lines, references = (
        tuple(replace(line, cells=cells(line)) for line in part) for part in (table.lines, table.references)
    )
    return replace(table, lines=lines, references=references)


def _only(table: Table, kept: Sequence[int]) -> Table:
    """Some of the columns, with the notes of these alone."""
    notes = Notes()

    def cells(line: Line) -> tuple[TableValue, ...]:
        chosen = [line.cells[place] for place in kept]
        return tuple(replace(cell, mark=notes.mark(cell.reason or "")) if cell.mark else cell for cell in chosen)

    return replace(_each(table, cells), headings=tuple(table.headings[place] for place in kept), notes=notes)


def _values(table: Table, place: int) -> list[float]:
    return [value for line in table.all_lines if (value := line.cells[place].value) is not None]


def _is_same(table: Table, place: int) -> bool:
    """Whether all models have the same value, and reference rows none."""
    beside = any(line.cells[place].value is not None for line in table.references)
    return len(table.lines) > 1 and not beside and len({line.cells[place].text for line in table.lines}) == 1


def _why_empty(table: Table, empty: Sequence[int]) -> list[str]:
    """A sentence for the columns that are empty for the same reasons; what seeds say alike is said once."""
    by_reason: dict[str, list[str]] = {}
    for place in empty:
        reasons = [line.cells[place].reason or "" for line in table.lines or table.references]
        parts = dict.fromkeys(_SEED.sub("", part) for reason in reasons for part in reason.split("; "))
        by_reason.setdefault("; ".join(filter(None, parts)), []).append(table.headings[place].name)
    return [f"Not measured here: {'; '.join(names)} ({reason})." for reason, names in by_reason.items()]
