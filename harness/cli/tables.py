"""Small tables as text, and the notes below them."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterable, Sequence
from enum import StrEnum

import typer

_NARROWEST_NAME = 17


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
    if form is TableFormat.csv:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows((header, *rows))
        return text.getvalue()
    if form is TableFormat.table:
        return _for_terminals(header, rows)
    from reports.export.latex import escape_latex
    from reports.export.markdown import escape_markdown

    if form is TableFormat.markdown:
        lines = [f"| {' | '.join(map(escape_markdown, cells))} |" for cells in (header, *rows)]
        lines.insert(1, f"| --- |{' ---: |' * (len(header) - 1)}")
    else:
        written = [" & ".join(map(escape_latex, cells)) + r" \\" for cells in (header, *rows)]
        begin = rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}"
        lines = [begin, r"\toprule", written[0], r"\midrule", *written[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def print_notes(notes: Iterable[str], form: TableFormat, lead: str = "") -> None:
    """Print each note as a paragraph after `lead`; as comments for LaTeX, and not at all for CSV."""
    if form is TableFormat.csv:
        return
    start, lead = ("% ", "") if form is TableFormat.latex else ("", lead)
    for note in notes:
        typer.echo(lead + textwrap.fill(note, 79, initial_indent=start, subsequent_indent=start))


def _for_terminals(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from reports.text.layout import folded

    console = Console(highlight=False, color_system=None)  # control characters are not printed from strings
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for number, title in enumerate(header):
        table.add_column(title, justify="right" if number else "left", no_wrap=True, overflow="fold")
    numbers = sum(2 + max(map(len, column)) for column in list(zip(header, *rows, strict=True))[1:])
    # Narrow windows break lines themselves: a number that is cut is another number.
    room = max(console.width - numbers - 2, _NARROWEST_NAME)  # a space at either end
    console.width = max(console.width, numbers + 2 + room)
    for name, *cells in rows:
        table.add_row(Text(folded(name, room)), *cells)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
