"""Small tables of text, as several commands print them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from enum import StrEnum


class Format(StrEnum):
    """How a table is written."""

    table = "table"
    markdown = "markdown"
    csv = "csv"
    latex = "latex"


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], form: Format) -> str:
    """A table as text that ends with a line break; the first column is of names, the others of numbers.

    `latex` is a tabular of booktabs.
    """
    if form is Format.csv:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows((header, *rows))
        return text.getvalue()
    if form is Format.table:
        return _for_terminals(header, rows)
    from reports.export.text import escape_latex, escape_markdown

    if form is Format.markdown:
        lines = [f"| {' | '.join(map(escape_markdown, cells))} |" for cells in (header, *rows)]
        lines.insert(1, f"| --- |{' ---: |' * (len(header) - 1)}")
    else:
        written = [" & ".join(map(escape_latex, cells)) + r" \\" for cells in (header, *rows)]
        begin = rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}"
        lines = [begin, r"\toprule", written[0], r"\midrule", *written[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _for_terminals(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for number, title in enumerate(header):
        table.add_column(title, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
