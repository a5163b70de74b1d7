"""Tables of texts in a terminal, Markdown, LaTeX and CSV, with escaping and formats of numbers."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from reports.numbers import DASH
from results.text import printable

_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "—": "---",
    "×": r"$\times$",
    "→": r"$\to$",
    "–": "--",
    "±": r"$\pm$",
    "\u2212": "$-$",
    "\u202f": r"\,",
} | {character: f"\\{character}" for character in "#$%&_{}"}
_LONG_WORD: Final = 30
_NAME_WIDTH: Final = 40
_NARROWEST_NAME: Final = 17
_PART: Final = re.compile(r"[^/_ ,\]@#]+[/_ ,\]@#]*|[/_ ,\]@#]+")
_NEAR_ZERO: Final = 0.001


@dataclass(frozen=True, slots=True)
class Grid:
    """Headings and rows of texts: the first `texts` columns are words, the last `last` too, those between numbers."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    texts: int = 1
    last: int = 0

    def rich(self) -> RichTable:
        table = RichTable(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        words = len(self.headings) - self.last
        for index, heading in enumerate(self.headings):
            if index < self.texts:
                table.add_column(heading, overflow="fold", min_width=0 if index else 14)
            else:
                table.add_column(heading, justify="right" if index < words else "left", no_wrap=True)
        for row in self.rows:
            plain = (cell if isinstance(cell, Text) else printable(cell).replace("\u202f", " ") for cell in row)
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in plain))
        return table

    def terminal(self) -> str:
        """The table for a terminal; long names are folded, and numbers are never cut, even in narrow windows."""
        console = Console(highlight=False, color_system=None)  # control characters are not printed from strings
        columns = list(zip(self.headings, *self.rows, strict=True))[self.texts :]
        numbers = sum(2 + max(len(str(cell)) for cell in column) for column in columns)
        room = max(console.width - numbers, _NARROWEST_NAME)
        console.width = numbers + room
        rows = [(folded(str(name), room), *cells) for name, *cells in self.rows]
        with console.capture() as captured:
            console.print(Grid(self.headings, rows, self.texts, self.last).rich())
        return captured.get()

    def markdown(self) -> str:
        lines = [[escape_markdown(str(cell)) for cell in row] for row in (self.headings, *self.rows)]
        return markdown_table(lines[0], lines[1:])

    def latex(self) -> str:
        lines = [[escape_latex(str(cell)) for cell in row] for row in (self.headings, *self.rows)]
        return "\n".join(tabular(lines[0], map(latex_row, lines[1:]))) + "\n"

    def csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows((self.headings, *self.rows))
        return text.getvalue()


def indented(text: str, style: str = "", by: int = 2) -> Padding:
    """A text whose lines are all indented `by` columns."""
    return Padding(Text(printable(text), style=style), (0, 0, 0, by), expand=False)


def folded(name: str, width: int = _NAME_WIDTH) -> str:
    """A name that is too long for its column, on several lines, broken between words."""
    lines = [""]
    for part in _PART.findall(name):
        if lines[-1] and len(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def one_line(text: str) -> str:
    """Text without line breaks, which would end a table's row or a comment."""
    return " ".join(printable(text).splitlines())


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, also within a table."""
    text = re.sub(r"([\\`*|<>\[\]])", r"\\\1", one_line(text))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)


def bullets(lines: Iterable[str]) -> str:
    return "".join(f"- {escape_markdown(line)}\n" for line in lines)


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is words, the others numbers; cells are Markdown already."""
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, ("---", *["---:"] * (len(headings) - 1)), *rows))


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is; long words may be broken after their own signs."""

    def escaped(word: str) -> str:
        breaks = ",]@#" if len(word) > _LONG_WORD else ""
        signs = [_LATEX.get(sign, sign) + (r"\allowbreak{}" if sign in breaks else "") for sign in word]
        # Two hyphens, as before an option, would be set as a dash.
        return "".join("-{}" if word[index : index + 2] == "--" else sign for index, sign in enumerate(signs))

    return " ".join(map(escaped, one_line(text).split(" ")))


def tabular(headings: Sequence[str], rows: Iterable[str]) -> list[str]:
    """The lines of a tabular of booktabs whose first column is words, the others numbers; all is LaTeX already."""
    begin = rf"\begin{{tabular}}{{@{{}}l{'r' * (len(headings) - 1)}@{{}}}}"
    return [begin, r"\toprule", latex_row(headings), r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"]


def latex_row(cells: Iterable[str]) -> str:
    row = " & ".join(cells)
    return f"{'{}' if row.startswith(('[', '*')) else ''}{row} \\\\"  # the row before ends with what takes these


def points(fraction: float, sign: str = "") -> str:
    return f"{100 * fraction:{sign}.2f}"


def interval(low: float | None, high: float | None) -> str:
    return DASH if low is None or high is None else f"{points(low, '+')}…{points(high, '+')}"


def p_value(p: float) -> str:
    return f"<{_NEAR_ZERO}" if p < _NEAR_ZERO else f"{p:.3f}"


def ratio(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}×"
