"""Leaderboards as LaTeX tables for papers; they need only the package booktabs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reports.columns import RANK, Cell, Column, is_all_on_other_machine, is_noisy, paper_column_names
from reports.model_names import display_name
from reports.numbers import DASH, listed
from reports.tables.boards import separated_by
from reports.tables.contents import Contents
from reports.tables.facts import PLUG_IN, UNKNOWN_PRETRAINING, Badge
from reports.tables.selection import leaderboards_with
from reports.tables.table import Line, Table, letters
from reports.tables.verdict import part_of_split_note
from reports.text.grid import escape_latex, latex_row, one_line, tabular
from results.metrics import RANKING_METRIC
from results.runs.leaderboard import Group, Row
from results.signature import format_signature

_HEAD = "% Needs \\usepackage{booktabs}. In a two-column paper, table* takes the width of both columns.\n"
_UNIT = re.compile("[^\u202f]+\u202f(\\D+)")  # "45.2 s", not "1 min 33 s"


def latex(contents: Contents, metrics: Sequence[str] | None = None, renamed: Mapping[str, str] | None = None) -> str:
    """One `table` for each group, with its own label.

    In each column the best of the ranked models is bold, the second underlined. Deviations over seeds are in small
    print, and notes follow below the table. Without `metrics` the columns are those of `paper_column_names`, and
    the rank is left out if no model has one.
    """
    parts: list[str] = []
    labels: Counter[str] = Counter()
    for group, table in leaderboards_with(contents, metrics, paper_column_names):
        if metrics is None and not any(group.is_ranked(row) for row in group.rows):
            table = table.only([index for index, column in enumerate(table.columns) if column.key != RANK])
        label = re.sub(r"[^A-Za-z0-9-]+", "-", f"tab:{group.dataset}-{group.split}").replace("-", ":", 1)
        labels[label] += 1  # from the second on, a label has a number
        suffix = f"-{labels[label]}" if labels[label] > 1 else ""
        parts.append(_latex_table(group, table, renamed or {}, label + suffix))
    return _HEAD + "\n".join(parts)


_TOOL_NOTE: Final = f"{PLUG_IN}:"  # of all rows alike it says nothing to a paper's reader, and is a comment


@dataclass(frozen=True, slots=True)
class _PaperRow:
    """A line of a table with its row of the leaderboard and the name that the paper shows."""

    line: Line
    row: Row
    name: str
    is_ranked: bool

    @property
    def notes(self) -> list[str]:
        """Notes on the whole row."""
        notes = [_describe(badge) for badge in self.line.badges]
        described = ", ".join(filter(None, (self.line.tag, self.line.differs)))
        if self.row.role == "reference" and described.lower() not in {"", self.name.lower()}:
            notes.append(described)
        return notes


def _describe(badge: Badge) -> str:
    """What a badge stands for; of unknown pretraining no more than that."""
    return "The training data of the weights are not known" if badge.label == UNKNOWN_PRETRAINING.label else badge.note


def _latex_table(group: Group, table: Table, renamed: Mapping[str, str], label: str) -> str:
    rows = [
        _PaperRow(line, row, display_name(row.model, renamed), row.role == "model" and group.is_ranked(row))
        for line, row in zip(table.all_lines, (*group.rows, *group.references), strict=True)
    ]
    models, references = rows[: len(group.rows)], rows[len(group.rows) :]
    shared = _shared_notes(rows, table.columns)
    marks: dict[str, str] = {}

    def marked(text: str, notes: Sequence[str]) -> str:
        row_marks = [
            marks.setdefault(note, letters(len(marks))) for note in dict.fromkeys(notes) if note and note not in shared
        ]
        if not row_marks:
            return text
        return rf"{text}$^{{{','.join(row_marks)}}}$"

    columns = [_column(index, column, rows) for index, column in enumerate(table.columns)]
    seeds = {len(entry.line.runs) for entry in models}
    lines = []
    for row_index, entry in enumerate(rows):
        name = entry.name
        if entry.row.role == "model" and entry.line.differs:
            name += f" ({entry.line.differs})"
        if len(seeds) > 1 and len(entry.line.runs) > 1:
            name += f" ×{len(entry.line.runs)}"
        cells = [
            marked(column.texts[row_index], [entry.line.cells[index].note] if column.is_noted else [])
            for index, column in enumerate(columns)
        ]
        lines.append(latex_row([marked(escape_latex(name), entry.notes), *cells]))
    if models and references:
        lines.insert(len(models), r"\midrule")
    content = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape_latex(_caption(group, models, table, columns, shared))}}}",
        rf"\label{{{label}}}",
        r"\medskip\footnotesize",
        r"\setlength{\tabcolsep}{3pt}",
        *tabular(["Model", *(column.heading for column in columns)], lines),
    ]
    if marks:
        notes = r" \quad ".join(rf"$^{{{mark}}}$\,{escape_latex(note)}" for note, mark in marks.items())
        content.append(rf"\par\smallskip{{\footnotesize {notes}\par}}")
    content += [f"% {one_line(note)}" for note in sorted(shared) if note.startswith(_TOOL_NOTE)]
    if group.separating:
        content.append(f"% Not comparable with the other tables of this split: {one_line(separated_by(group))}")
    if group.rows:
        content.append(f"% {one_line(format_signature(group.signature, RANKING_METRIC, group.split))}")
    return "\n".join([*content, r"\end{table}"]) + "\n"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column in LaTeX: its heading, with the unit that all of its numbers have, and a text a row."""

    heading: str
    texts: Sequence[str]
    is_noted: bool
    has_best: bool


def _column(index: int, column: Column, rows: Sequence[_PaperRow]) -> _Column:
    cells = [entry.line.cells[index] for entry in rows]
    if column.key == RANK:
        texts = []
        for entry, cell in zip(rows, cells, strict=True):
            if cell.ranks:
                texts.append(escape_latex(cell.text))
            else:
                texts.append("" if entry.row.role == "reference" else escape_latex(DASH))
        return _Column(escape_latex(column.short), texts, False, False)
    units = set()
    for cell in cells:
        if cell.value is not None:
            match = _UNIT.fullmatch(cell.text)
            units.add(match[1] if match else "")
    unit = units.pop() if len(units) == 1 else ""
    heading = column.short if column.csv and not column.is_score else column.name
    if unit:
        heading += f" ({unit.removesuffix(column.short) or unit})"
    compared = [_is_compared(column, entry) for entry in rows]
    best, second = _best_two(column, [cell for cell, is_compared in zip(cells, compared, strict=True) if is_compared])
    widest = max((cell.deviation_text for cell in cells), key=len, default="")
    texts = []
    for cell, is_compared in zip(cells, compared, strict=True):
        text = escape_latex(cell.text.removesuffix(f"\u202f{unit}") if unit else cell.text)
        if is_compared and cell.text == best:
            text = rf"\textbf{{{text}}}"
        elif is_compared and cell.text == second:
            text = rf"\underline{{{text}}}"
        texts.append(text + _deviation(cell, widest))
    return _Column(escape_latex(heading), texts, True, best is not None)


def _deviation(cell: Cell, widest: str) -> str:
    """The deviation in small print, of the same width in every row of a column."""
    if not widest:
        return ""
    if not cell.deviation_text:
        return rf"\phantom{{\,{{\scriptsize$\pm${widest}}}}}" if cell.text.strip(DASH) else ""
    filler = ""
    if len(cell.deviation_text) < len(widest):
        filler = rf"\phantom{{{widest[: len(widest) - len(cell.deviation_text)]}}}"
    return rf"\,{{\scriptsize$\pm${filler}{cell.deviation_text}}}"


def _is_compared(column: Column, entry: _PaperRow) -> bool:
    """Whether a row's number may be the best: of a ranked model, measured, and on the machine of most rows."""
    if column.is_score or not entry.is_ranked:
        return entry.is_ranked and column.has_direction
    cost = entry.row.costs.get(column.key)
    is_measured = cost is not None and cost.value is not None
    return is_measured and not is_noisy(entry.row, column.key) and not is_all_on_other_machine(entry.row, column.key)


def _best_two(column: Column, cells: Sequence[Cell]) -> tuple[str | None, str | None]:
    """The texts of the best and the second best number; None if all are equal.

    Numbers with the same text count as equal.
    """
    values = {cell.text: cell.value for cell in cells if cell.value is not None}
    ordered = sorted(values, key=lambda text: values[text], reverse=column.descending)
    return (ordered[0], ordered[1]) if len(ordered) > 1 else (None, None)


def _shared_notes(rows: Sequence[_PaperRow], columns: Sequence[Column]) -> set[str]:
    """The notes that all models of the table share, for its caption."""
    models = [entry for entry in rows if entry.row.role == "model"]
    if len(models) < 2:
        return set()
    notes = [
        {
            *entry.notes,
            *(cell.note for column, cell in zip(columns, entry.line.cells, strict=True) if column.key != RANK),
        }
        for entry in models
    ]
    return set.intersection(*notes) - {""}


def _caption(
    group: Group,
    models: Sequence[_PaperRow],
    table: Table,
    columns: Sequence[_Column],
    shared: set[str],
) -> str:
    """The table's conditions, the meaning of its numbers and marks, and the models without a rank."""
    sentences = [f"{group.name}, {group.track} track." if models and not group.is_as_given else f"{group.name}."]
    seeds = {len(entry.line.runs) for entry in models}
    has_deviation = bool(models) and any(table.spreads)
    if has_deviation and len(seeds) == 1:
        sentences.append(f"Mean ± standard deviation over {seeds.pop()} seeds.")
    elif has_deviation:
        sentences.append("Mean ± standard deviation over seeds, of which ×n says how many there are.")
    ranked = sum(entry.is_ranked for entry in models)
    if any(column.has_best for column in columns):
        sentences.append(f"Bold: the best of the {ranked} ranked models; underlined: the second.")
    if any(column.key == RANK for column in table.columns):
        sentences.append(f"Rank: the ranks that the differences in {group.metric} allow.")
    unranked: dict[str, list[str]] = {}
    for entry in models:
        rank = entry.row.ranks.get(group.metric)
        if not entry.is_ranked and rank is not None:
            reason = "a baseline" if rank.is_baseline else (rank.reason or "not above a baseline").partition(":")[0]
            unranked.setdefault(reason, []).append(entry.name)
    if unranked:
        reasons = "; ".join(f"{listed(names)} ({reason})" for reason, names in unranked.items())
        sentences.append(f"Without a rank: {reasons}.")
    abbreviated = [
        f"{column.short}: {column.name.lower()}"
        for column in table.columns
        if column.csv and not column.is_score and column.short != column.name
    ]
    if abbreviated:
        sentences.append(f"{'; '.join(abbreviated)}.")
    noted = sorted(note for note in shared if not note.startswith(_TOOL_NOTE))
    sentences += [f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in noted]
    if group.is_as_given and ranked:
        sentences.append("Differences are tested by paired sign flips over images.")
    if part := part_of_split_note(group):
        sentences.append(part)
    return " ".join(sentences)
