"""Which columns of a leaderboard an export shows, with the notes that these need."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from reports.errors import ReportError
from reports.tables.columns import filled_columns
from reports.tables.leaderboard_page import by_size, ranked_table
from reports.tables.numbers import DASH
from reports.tables.table_values import Notes, TableValue
from reports.tables.tables import Badge, Line, Table
from results.runs.leaderboard import Group
from results.runs.run import Run

ALL = "all"
DEFAULT = ("CIDEr-D", "interval", "place", "BLEU-4", "METEOR", "ROUGE-L", "SPICE", "computation")
"""As many as a column of a paper has room for."""


def leaderboards(groups: Sequence[Group], runs: Mapping[str, Run], columns: Sequence[str]) -> list[tuple[Group, Table]]:
    """Each group's table with these columns, the largest group first.

    Args:
        columns: names, or parts of names, in any case; ("all",) leaves out none. A table that lacks one does without.

    Raises:
        ReportError: a name is of several columns, or of none in any table and not in `DEFAULT`.
    """
    whole = [
        (group, ranked_table(group, runs, columns=filled_columns([*group.rows, *group.references], group.metric)))
        for group in by_size(groups)
    ]
    if tuple(columns) != (ALL,):
        _refuse_unknown([table for _, table in whole], columns)
    return [(group, chosen(table, columns)) for group, table in whole]


def chosen(table: Table, columns: Sequence[str] = DEFAULT) -> Table:
    """The table with those of these columns that it has, in this order; notes are marked anew.

    Columns without any number are left out.

    Raises:
        ReportError: a name is of several columns.
    """
    places = range(len(table.headings)) if tuple(columns) == (ALL,) else _places(table, columns)
    lines = (*table.lines, *table.references)
    filled = [place for place in places if any(line.cells[place].text.strip(DASH) for line in lines)]
    notes = Notes()
    return replace(
        table,
        headings=tuple(table.headings[place] for place in filled),
        lines=tuple(_cut(line, filled, table.notes, notes) for line in table.lines),
        references=tuple(_cut(line, filled, table.notes, notes, reference=True) for line in table.references),
        notes=notes,
    )


def _places(table: Table, columns: Sequence[str]) -> list[int]:
    places = []
    for column in columns:
        found = _named(table, column)
        if len(found) > 1:
            several = ", ".join(table.headings[place].name for place in found)
            raise ReportError(f"--columns {column} may be each of: {several}", "write more of its name")
        places += found
    return list(dict.fromkeys(places))


def _named(table: Table, column: str) -> list[int]:
    """The places of the columns that have this name; else of those with this part of a name."""
    wanted = _plain(column)
    names = [_plain(heading.name) for heading in table.headings]
    return [place for place, name in enumerate(names) if name == wanted] or [
        place for place, name in enumerate(names) if wanted and wanted in name
    ]


def _refuse_unknown(tables: Sequence[Table], columns: Sequence[str]) -> None:
    for column in columns:
        if tables and column not in DEFAULT and not any(_named(table, column) for table in tables):
            known = dict.fromkeys(heading.name for table in tables for heading in table.headings)
            hint = f"choose from {', '.join(known)}, or all"
            raise ReportError(f"--columns {column} is no column of the leaderboard", hint)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _cut(line: Line, places: Sequence[int], before: Notes, notes: Notes, *, reference: bool = False) -> Line:
    """The line's cells of these places; of rows without a model what they cannot have is blank, without a note."""
    reasons = {mark: reason for reason, mark in before.marks.items()}
    badges = tuple(Badge(badge.label, badge.sentence, notes.mark(reasons[badge.mark])) for badge in line.badges)
    cells = []
    for place in places:
        cell = line.cells[place]
        if reference and cell.text == DASH:
            cell = TableValue("", None)
        cells.append(replace(cell, mark=notes.mark(reasons[cell.mark])) if cell.mark else cell)
    return replace(line, cells=tuple(cells), badges=badges)
