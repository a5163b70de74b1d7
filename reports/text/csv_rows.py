"""Leaderboards as CSV: one row a model, plain column names (`docs/notebook.md`)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from reports.columns import INTERVAL, RANK, Cell, Column
from reports.model_names import display_name
from reports.tables.contents import Contents
from reports.tables.selection import NumberedTable, leaderboards_with, with_tables
from reports.tables.table import Line
from results.metrics import RANKING_METRIC
from results.signature import format_signature
from results.text import printable

Value = str | int | float | None


def as_csv(
    contents: Contents,
    tables: Sequence[NumberedTable],
    metrics: Sequence[str] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> str:
    """The rows of these tables; a blank was not measured, with the reason in `notes`.

    Scores are times 100, and costs in the unit that ends their name.
    """
    rows = []
    boards = leaderboards_with(with_tables(contents, tables), ("all",) if metrics is None else ("rank", *metrics))
    for numbered_table, (group, table) in zip(tables, boards, strict=True):
        signature = format_signature(group.signature, RANKING_METRIC, group.split) if group.rows else ""
        for line in table.all_lines:
            rows.append(
                {
                    "model": line.model,
                    "name": display_name(line.model, renamed),
                    "differs": line.differs,
                    "role": "reference" if line in table.references else "model",
                    "seeds": len(line.runs),
                    **_values(line, table.columns),
                    "notes": "; ".join(_notes(line, table.columns)),
                    "table": numbered_table.number,
                    "dataset": group.dataset,
                    "split": group.split,
                    "track": group.track,
                    "signature": signature,
                }
            )
    names = sorted(dict.fromkeys(name for row in rows for name in row), key=lambda name: name in _LAST)
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _quote_formula(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


_LAST = {"notes", "table", "dataset", "split", "track", "signature"}


def _values(line: Line, columns: Sequence[Column]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for column, cell in zip(columns, line.cells, strict=True):
        values |= _cell_values(column, cell)
    return values


def _cell_values(column: Column, cell: Cell) -> dict[str, Value]:
    """The values of a cell by CSV column: two ranks for a rank; for a score, also deviation and interval."""
    if column.key == INTERVAL:
        return {}
    if column.key == RANK:
        low, high = cell.ranks or (None, None)
        reason = None if cell.ranks else cell.text or None
        return {"rank_low": low, "rank_high": high, "unranked_because": reason}
    if not column.is_score:
        return {column.csv: None if cell.value is None else float(f"{cell.value:.9g}")}
    low_bound, high_bound = cell.bounds or (None, None)
    parts = {"": cell.value, "_std": cell.deviation, "_low": low_bound, "_high": high_bound}
    return {f"{column.csv}{part}": _percent(value) for part, value in parts.items()}


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 6)


def _notes(line: Line, columns: Sequence[Column]) -> list[str]:
    notes = [badge.note for badge in line.badges]
    notes += [
        f"{column.csv or column.key}: {cell.note}"
        for column, cell in zip(columns, line.cells, strict=True)
        if cell.note
    ]
    return notes


def _quote_formula(value: Value) -> Value:
    """Quote text that a spreadsheet would read as a formula by an apostrophe."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text
