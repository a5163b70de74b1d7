"""Which columns of a leaderboard an export shows, with the notes that these need."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from reports.content.columns import filled_columns
from reports.content.leaderboard_page import ranked_table
from reports.content.numbers import DASH
from reports.content.table_values import Notes, TableValue
from reports.content.tables import Badge, Line, Table
from reports.errors import ReportError
from results.queries.views import Group, RunDetail

ALL = "all"
DEFAULT = ("CIDEr-D", "interval", "place", "BLEU-4", "METEOR", "ROUGE-L", "SPICE", "computation")
"""As many as a column of a paper has room for."""


def whole_table(group: Group, runs: Mapping[str, RunDetail]) -> Table:
    """The leaderboard with every column that an export may show."""
    return ranked_table(group, runs, columns=filled_columns([*group.rows, *group.references], group.metric))


def chosen(table: Table, columns: Sequence[str] = DEFAULT) -> Table:
    """The table with these columns in this order, less those without any number; notes are marked anew.

    Args:
        columns: names, or parts of names, in any case; those of `DEFAULT` may be missing. ("all",) leaves out none.

    Raises:
        ReportError: a name is of no column or of several.
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
    names = [_plain(heading.name) for heading in table.headings]
    shown = ", ".join(heading.name for heading in table.headings)
    places = []
    for column in columns:
        wanted = _plain(column)
        found = [place for place, name in enumerate(names) if name == wanted] or [
            place for place, name in enumerate(names) if wanted and wanted in name
        ]
        if len(found) == 1:
            places.append(found[0])
        elif found:
            several = ", ".join(table.headings[place].name for place in found)
            raise ReportError(f"--columns {column} may be each of: {several}", "write more of its name")
        elif column not in DEFAULT:
            raise ReportError(f"--columns {column} is no column of the leaderboard", f"choose from {shown}, or all")
    return list(dict.fromkeys(places))


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
