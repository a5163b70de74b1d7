"""Leaderboards as GitHub's Markdown to paste. Metrics are times 100, as papers print them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from reports.export.columns import DEFAULT, chosen, leaderboards
from reports.export.names import cell_text, described, one_line, separated_by, title
from reports.tables.people import TITLE, beside_people
from reports.tables.tables import Table, signature_text
from reports.tables.verdict import verdict
from results.runs.leaderboard import Group
from results.runs.run import Run


def markdown(groups: Sequence[Group], runs: Mapping[str, Run], columns: Sequence[str] = DEFAULT) -> str:
    """One table a group, with verdict, notes and signature.

    Raises:
        ReportError: `columns` names what is no column.
    """
    parts = [_group(group, groups, table) for group, table in leaderboards(groups, runs, columns)]
    return "\n".join(parts) or "No run has finished yet.\n"


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, also within a table."""
    text = re.sub(r"([\\`*|<>\[\]])", r"\\\1", one_line(text))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)


def _group(group: Group, groups: Sequence[Group], table: Table) -> str:
    lines = [f"## {escape_markdown(title(group))}", ""]
    if group.separating:
        apart = escape_markdown(separated_by(group, groups))
        lines += [f"Not comparable with the other tables of this split: {apart}.", ""]
    if said := verdict(group):
        lines += [escape_markdown(" ".join(said)), ""]
    lines += _table(table)
    signature = one_line(signature_text(group.signature, group.split)).replace("`", "'")
    lines += ["", f"`{signature}`"] if group.rows else []
    if people := beside_people(group):
        lines += ["", f"### {TITLE}", "", people.note, "", *_table(chosen(people.table))]
    return "\n".join([*lines, ""])


def _table(table: Table) -> list[str]:
    lines = ["| Model | " + " | ".join(escape_markdown(heading.name) for heading in table.headings) + " |"]
    lines.append("|---|" + "---:|" * len(table.headings))
    for line in (*table.lines, *table.references):
        cells = (
            escape_markdown(cell_text(cell)) + (f" <sup>{cell.mark}</sup>" if cell.mark else "") for cell in line.cells
        )
        said = ", ".join(filter(None, (described(line), "not ranked" if line in table.references else "")))
        several = f" ×{len(line.runs)}" if len(line.runs) > 1 else ""
        name = escape_markdown(f"{line.model}{several}" + (f" ({said})" if said else ""))
        name += "".join(f" <sup>{badge.mark}</sup>" for badge in line.badges)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    notes = [f"<sup>{mark}</sup> {escape_markdown(reason)}  " for reason, mark in table.notes.marks.items()]
    return [*lines, *(["", *notes] if notes else [])]
