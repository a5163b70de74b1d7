"""Leaderboards as text to paste: Markdown, and LaTeX with booktabs. Metrics are times 100, as papers print them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from reports.content.leaderboard_page import by_size, ranked_table, separations
from reports.content.numbers import printable
from reports.content.people import TITLE, beside_people
from reports.content.table_values import TableValue
from reports.content.tables import Line, Table, signature_text
from reports.content.verdict import verdict
from results.queries.views import Group, RunDetail

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


def markdown(groups: Sequence[Group], runs: Mapping[str, RunDetail]) -> str:
    """One table a group in GitHub's Markdown, with notes and signature."""
    parts = [_markdown_group(group, groups, runs) for group in by_size(groups)]
    return "\n".join(parts) or "No run has finished yet.\n"


def latex(groups: Sequence[Group], runs: Mapping[str, RunDetail]) -> str:
    """One `table` a group; needs `\\usepackage{booktabs}`."""
    parts = [_latex_group(group, groups, runs) for group in by_size(groups)]
    return "% needs \\usepackage{booktabs}\n" + "\n".join(parts)


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, also within a table."""
    text = re.sub(r"([\\`*|<>\[\]])", r"\\\1", _one_line(text))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(character, character) for character in _one_line(text))


def _one_line(text: str) -> str:
    """Whatever ends a line ends a table's row too, or a comment."""
    return " ".join(printable(text).splitlines())


def _markdown_group(group: Group, groups: Sequence[Group], runs: Mapping[str, RunDetail]) -> str:
    table = ranked_table(group, runs)
    lines = [f"## {escape_markdown(_title(group))}", ""]
    if group.separating:
        lines += [f"Not comparable with the other tables of this split: {escape_markdown(_apart(group, groups))}.", ""]
    if said := verdict(group):
        lines += [escape_markdown(" ".join(said)), ""]
    lines += _markdown_table(table)
    signature = _one_line(signature_text(group.signature, group.split)).replace("`", "'")
    lines += ["", f"`{signature}`"] if group.rows else []
    if people := beside_people(group):
        lines += ["", f"### {TITLE}", "", people.note, "", *_markdown_table(people.table)]
    return "\n".join([*lines, ""])


def _markdown_table(table: Table) -> list[str]:
    lines = ["| Model | " + " | ".join(escape_markdown(heading.name) for heading in table.headings) + " |"]
    lines.append("|---|" + "---:|" * len(table.headings))
    for line in (*table.lines, *table.references):
        cells = (
            escape_markdown(_cell(cell)) + (f" <sup>{cell.mark}</sup>" if cell.mark else "") for cell in line.cells
        )
        name = escape_markdown(_name(line, line in table.references))
        name += "".join(f" <sup>{badge.mark}</sup>" for badge in line.badges)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    notes = [f"<sup>{mark}</sup> {escape_markdown(reason)}  " for reason, mark in table.notes.marks.items()]
    return [*lines, *(["", *notes] if notes else [])]


def _latex_group(group: Group, groups: Sequence[Group], runs: Mapping[str, RunDetail]) -> str:
    caption = f"{_title(group)}. " + (
        f"Separated from other tables by {_apart(group, groups)}. " if group.separating else ""
    )
    comment = "% " + _one_line(signature_text(group.signature, group.split))
    found = _latex_table(caption, ranked_table(group, runs), comment)
    if people := beside_people(group):
        found += _latex_table(f"{_title(group)}. {TITLE}. {people.note}", people.table, comment)
    return found


def _latex_table(caption: str, table: Table, comment: str) -> str:
    lines = [
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{escape_latex(caption)}}}",
        f"\\begin{{tabular}}{{l{'r' * len(table.headings)}}}",
        r"\toprule",
        _latex_row("Model", [escape_latex(heading.name) for heading in table.headings]),
        r"\midrule",
        *(_latex_line(line, reference=False) for line in table.lines),
        *([r"\midrule"] if table.lines and table.references else []),
        *(_latex_line(line, reference=True) for line in table.references),
        r"\bottomrule",
        r"\end{tabular}",
        *(
            f"\\par{{\\footnotesize $^{{{mark}}}$ {escape_latex(reason)}}}"
            for reason, mark in table.notes.marks.items()
        ),
        comment,
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_line(line: Line, *, reference: bool) -> str:
    cells = [escape_latex(_cell(cell)) + (f"$^{{{cell.mark}}}$" if cell.mark else "") for cell in line.cells]
    name = escape_latex(_name(line, reference)) + "".join(f"$^{{{badge.mark}}}$" for badge in line.badges)
    return _latex_row(name, cells)


def _latex_row(name: str, cells: Sequence[str]) -> str:
    return f"{name} & " + " & ".join(cells) + r" \\"


def _cell(cell: TableValue) -> str:
    return cell.text + (f" ±{cell.spread}" if cell.spread else "")


def _name(line: Line, reference: bool) -> str:
    several = f" ×{len(line.runs)}" if len(line.runs) > 1 else ""
    labels = [badge.label for badge in line.badges]
    said = ", ".join(filter(None, (line.tag, *labels, "not ranked" if reference else "", line.differs)))
    return f"{line.model}{several}" + (f" ({said})" if said else "")


def _title(group: Group) -> str:
    return f"{group.dataset} {group.split}" + (f", {group.track} track" if group.rows else "")


def _apart(group: Group, groups: Sequence[Group]) -> str:
    return ", ".join(f"{each.field}: {each.own}" for each in separations(group, groups))
