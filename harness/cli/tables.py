"""Small tables as text, and the notes below them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from enum import StrEnum

import typer


class TableFormat(StrEnum):
    """How a table is written."""

    table = "table"
    markdown = "markdown"
    csv = "csv"
    latex = "latex"


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], form: TableFormat) -> str:
    """A table as text that ends with a line break; the first column holds names, the others numbers.

    `latex` is a tabular of booktabs.
    """
    from reports.text.grid import Grid

    grid = Grid(header, rows)
    write = {
        TableFormat.table: grid.terminal,
        TableFormat.markdown: grid.markdown,
        TableFormat.csv: grid.csv,
        TableFormat.latex: grid.latex,
    }
    return write[form]()


def print_notes(notes: Iterable[str], form: TableFormat, lead: str = "") -> None:
    """Print each note as a paragraph after `lead`; as comments for LaTeX, and not at all for CSV."""
    if form is TableFormat.csv:
        return
    start, lead = ("% ", "") if form is TableFormat.latex else ("", lead)
    for note in notes:
        typer.echo(lead + textwrap.fill(note, 79, initial_indent=start, subsequent_indent=start))
