"""Leaderboards as LaTeX to paste. Metrics are times 100, as papers print them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from reports.export.columns import DEFAULT, chosen, leaderboards
from reports.export.names import cell_text, described, one_line, separated_by, title
from reports.tables.numbers import DASH
from reports.tables.people import TITLE, beside_people
from reports.tables.tables import Line, Table, signature_text
from results.runs.leaderboard import Group
from results.runs.run import Run

_LATEX = {
    "\\": r"\textbackslash{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "—": "---",
    "×": r"$\times$",
    "–": "--",
    "±": r"$\pm$",
    "\u202f": r"\,",
} | {character: f"\\{character}" for character in "#$%&_{}"}
_LONG_WORD = 30
_NEEDS = "% needs \\usepackage{booktabs} and \\usepackage{threeparttable}\n"


def latex(groups: Sequence[Group], runs: Mapping[str, Run], columns: Sequence[str] = DEFAULT) -> str:
    """One `table` a group, with a label; best places are bold.

    Raises:
        ReportError: `columns` names what is no column.
    """
    labels: dict[str, int] = {}
    return _NEEDS + "\n".join(
        _group(group, groups, table, labels) for group, table in leaderboards(groups, runs, columns)
    )


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is; long words may be broken after their own signs."""
    return " ".join(map(_escaped_word, one_line(text).split(" ")))


def _escaped_word(word: str) -> str:
    breaks = ",]@#" if len(word) > _LONG_WORD else ""
    return "".join(
        _LATEX.get(character, character) + (r"\allowbreak{}" if character in breaks else "") for character in word
    )


def _group(group: Group, groups: Sequence[Group], table: Table, labels: dict[str, int]) -> str:
    caption = f"{title(group)}. " + (
        f"Separated from other tables by {separated_by(group, groups)}. " if group.separating else ""
    )
    comment = "% " + one_line(signature_text(group.signature, group.split))
    best = {
        (row.model, row.seeds)
        for row in group.rows
        if (standing := row.standings.get(group.metric)) is not None and standing.best == 1
    }
    label = f"{group.dataset}-{group.split}"
    found = _table(caption, table, comment, _label(label, labels), best)
    if people := beside_people(group):
        caption = f"{title(group)}. {TITLE}. {people.note}"
        found += _table(caption, chosen(people.table), comment, _label(f"{label}-people", labels), set())
    return found


def _label(name: str, labels: dict[str, int]) -> str:
    """A label that no other table has: its name, and from the second on a number."""
    plain = re.sub(r"[^A-Za-z0-9-]+", "-", name)
    labels[plain] = labels.get(plain, 0) + 1
    return plain if labels[plain] == 1 else f"{plain}-{labels[plain]}"


def _table(caption: str, table: Table, comment: str, label: str, best: set[tuple[str, tuple[int, ...]]]) -> str:
    rows = [
        *(_line(line, table, best) for line in table.lines),
        *([r"\midrule"] if table.lines and table.references else []),
        *(_line(line, table, set()) for line in table.references),
    ]
    notes = [rf"\item[{mark}] {escape_latex(reason)}" for reason, mark in table.notes.marks.items()]
    lines = [
        r"\begin{table}",
        r"\centering",
        r"\begin{threeparttable}",
        f"\\caption{{{escape_latex(caption.strip())}}}",
        f"\\label{{tab:{label}}}",
        r"\footnotesize",
        r"\setlength{\tabcolsep}{3pt}",
        f"\\begin{{tabular}}{{@{{}}l{'r' * len(table.headings)}@{{}}}}",
        r"\toprule",
        _row("Model", [escape_latex(heading.short) for heading in table.headings]),
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        *([r"\begin{tablenotes}", *notes, r"\end{tablenotes}"] if notes else []),
        r"\end{threeparttable}",
        comment,
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _line(line: Line, table: Table, best: set[tuple[str, tuple[int, ...]]]) -> str:
    """A row; what a name or a place says in words is a note, and the first number alone has its deviation over seeds,
    since a paper's column is narrow."""
    leads = (line.model, tuple(seed for seed, _ in line.runs)) in best
    cells = []
    for number, (heading, cell) in enumerate(zip(table.headings, line.cells, strict=True)):
        text = cell_text(cell) if number == 0 else cell.text
        text = escape_latex(DASH if heading.name == "Place" and cell.mark else text)
        text = f"\\textbf{{{text}}}" if leads and heading.name == "Place" else text
        cells.append(text + _note(cell.mark))
    marks = [badge.mark for badge in line.badges]
    said = described(line)
    marks += [table.notes.mark(said)] if said else []
    several = f" ×{len(line.runs)}" if len(line.runs) > 1 else ""
    return _row(escape_latex(f"{line.model}{several}") + _note(*marks), cells)


def _note(*marks: str) -> str:
    """Marks beside a text, in one: they take no width, so that two would be printed over each other."""
    shown = ",".join(filter(None, marks))
    return rf"\tnote{{{shown}}}" if shown else ""


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name} & " + " & ".join(cells) + r" \\"
