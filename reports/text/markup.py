"""Leaderboards to paste, in GitHub's Markdown and LaTeX, times 100; and for programs, in CSV and JSON, as fractions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from reports.columns import PLACE, Cell, default_columns
from reports.numbers import DASH
from reports.tables.boards import separated_by
from reports.tables.budget_table import budget_table
from reports.tables.contents import Contents
from reports.tables.facts import contamination
from reports.tables.leaderboards import Titled, leaderboards, people
from reports.tables.table import Line, Table, letters
from reports.tables.verdict import as_given_note, part_of_split_note, verdict
from reports.text.grid import escape_latex, escape_markdown, latex_row, markdown_table, one_line, tabular
from results.errors import StoreError
from results.metrics import RANKING_METRIC
from results.published.scores import nearest, told_by_card
from results.runs.leaderboard import Group, Row
from results.runs.standings import STILL_LEARNING, Comparisons, RankInterval
from results.signature import format_signature
from results.text import printable

if TYPE_CHECKING:
    from pandas import DataFrame

ALL = "all"
_NEEDS = "% needs \\usepackage{booktabs} and \\usepackage{threeparttable}\n"


def markdown(contents: Contents, columns: Sequence[str] | None = None) -> str:
    """One table a group, with verdict, notes and signature; without `columns` those of `default_columns`."""
    parts: list[str] = []
    for group, table in _chosen_tables(contents, columns):
        parts.append(f"## {escape_markdown(_title(group))}\n")
        if group.separating:
            fields = escape_markdown(separated_by(group))
            parts.append(f"Not comparable with the other tables of this split: {fields}.\n")
        if said := verdict(group):
            parts.append(escape_markdown(" ".join(said)) + "\n")
        parts += _markdown_parts(table)
        if group.rows:
            signature = one_line(format_signature(group.signature, RANKING_METRIC, group.split))
            parts.append("`{}`\n".format(signature.replace("`", "'")))
        for further in _further_tables(group, contents).values():
            note = " ".join((further.note, *further.table.sentences))
            parts += [f"### {further.title}\n", f"{escape_markdown(note)}\n", *_markdown_parts(further.table)]
    return "\n".join(parts) or "No run has finished yet.\n"


def latex(contents: Contents, columns: Sequence[str] | None = None) -> str:
    """One `table` a group, with a label; best places are bold; without `columns` those of `default_columns`."""
    parts, labels = list[str](), dict[str, int]()
    for group, table in _chosen_tables(contents, columns):
        caption, name = f"{_title(group)}.", re.sub(r"[^A-Za-z0-9-]+", "-", f"{group.dataset}-{group.split}")
        if group.separating:
            caption += f" Separated from other tables by {separated_by(group)}."
        for note in (as_given_note([group]), part_of_split_note(group)):
            if note:
                caption += f" {note}"
        signature = format_signature(group.signature, RANKING_METRIC, group.split)
        tables = [(caption, name, table)]
        for kind, further in _further_tables(group, contents).items():
            further_caption = " ".join((f"{_title(group)}. {further.title}.", further.note, *further.table.sentences))
            tables.append((further_caption, f"{name}-{kind}", further.table))
        for table_caption, label, shown_table in tables:
            labels[label] = labels.get(label, 0) + 1  # from the second on, a label has a number
            number = f"-{labels[label]}" if labels[label] > 1 else ""
            parts.append(_latex_table(table_caption, shown_table, signature, f"{label}{number}"))
    return _NEEDS + "\n".join(parts)


def _chosen_tables(contents: Contents, columns: Sequence[str] | None) -> list[tuple[Group, Table]]:
    """Each group's table with these columns, named in part and in any case; a table that lacks one does without."""
    tables = [leaderboards([group], contents.runs, {})[0][0] for group in contents.groups]
    known = list(dict.fromkeys(column.name for table in tables for column in table.columns))
    for column in columns or ():
        if tables and column != ALL and not _matching(known, column):
            hint = f"choose from {', '.join(known)}, or all"
            if _matching(default_columns(RANKING_METRIC), column):
                raise StoreError(f"--columns {column}: no row has a number for it", hint)
            raise StoreError(f"--columns {column} is no column of the leaderboard", hint)
    return [
        (group, _chosen(table, default_columns(group.metric) if columns is None else columns))
        for group, table in zip(contents.groups, tables, strict=True)
    ]


def _chosen(table: Table, columns: Sequence[str]) -> Table:
    names = [column.name for column in table.columns]
    chosen: list[int] = []
    for column in columns:
        indices = list(range(len(names))) if column == ALL else _matching(names, column)
        if len(indices) > 1 and column != ALL:
            several = ", ".join(names[index] for index in indices)
            raise StoreError(f"--columns {column} may be each of: {several}", "write more of its name")
        chosen += indices
    table = table.only([index for index in dict.fromkeys(chosen) if table.shows(index)])
    references = []
    for line in table.references:  # rows without a model do not say why they have no cost
        references.append(replace(line, cells=tuple(Cell("") if cell.text == DASH else cell for cell in line.cells)))
    return replace(table, references=tuple(references))


def _matching(names: Sequence[str], column: str) -> list[int]:
    """The indices of the columns of this name; else of those with this part of a name."""
    wanted, *plain = (re.sub(r"[^a-z0-9]", "", name.lower()) for name in (column, *names))
    exact = [index for index, name in enumerate(plain) if name == wanted]
    return exact or [index for index, name in enumerate(plain) if wanted and wanted in name]


def _further_tables(group: Group, contents: Contents) -> dict[str, Titled]:
    tables = {"budgets": budget_table(group, contents.groups, {}), "people": people(group, contents.facets)}
    return {name: replace(titled, table=_chosen(titled.table, (ALL,))) for name, titled in tables.items() if titled}


def _title(group: Group) -> str:
    by = "" if group.metric == RANKING_METRIC else f", by {group.metric}"
    return group.name + (f", {group.track} track{by}" if group.rows else "")


def _described(line: Line) -> str:
    """What sets a row apart in words; that its model was still learning is said by its place."""
    labels = (badge.label for badge in line.badges if badge.label != STILL_LEARNING.partition(":")[0])
    return ", ".join(filter(None, (line.tag, *labels, line.differs)))


def _with_spread(cell: Cell) -> str:
    return cell.text + (f" ±{cell.spread}" if cell.spread else "")


def _markdown_parts(table: Table) -> Iterator[str]:

    def marked(text: str, *notes: str) -> str:
        return escape_markdown(text) + "".join(f" <sup>{table.marks[note]}</sup>" for note in notes if note)

    def row(line: Line) -> list[str]:
        said = ", ".join(filter(None, (_described(line), "not ranked" if line in table.references else "")))
        name = marked(line.name + (f" ({said})" if said else ""), *(badge.note for badge in line.badges))
        return [name, *(marked(_with_spread(cell), cell.note) for cell in line.cells)]

    headings = ["Model", *(escape_markdown(column.name) for column in table.columns)]
    yield markdown_table(headings, map(row, (*table.lines, *table.references)))
    if table.marks:
        notes = (f"<sup>{mark}</sup> {escape_markdown(note)}  " for note, mark in table.marks.items())
        yield "\n".join(notes) + "\n"


def _latex_table(caption: str, table: Table, signature: str, label: str) -> str:
    """A row's words are notes, and the first score alone has its deviation over seeds: a paper's column is narrow."""
    marks = dict(table.marks)

    def described(line: Line) -> str:  # the note of a badge says its label too
        return _described(replace(line, badges=()))

    for said in filter(None, map(described, table.all_lines)):
        marks.setdefault(said, letters(len(marks)))

    def marked(text: str, *notes: str) -> str:
        # In one: marks take no width, so that two would be printed over each other.
        shown = ",".join(marks[note] for note in notes if note)
        return text + (rf"\tnote{{{shown}}}" if shown else "")

    def row(line: Line) -> str:
        cells = []
        for at, (column, cell) in enumerate(zip(table.columns, line.cells, strict=True)):
            if column.key == PLACE:
                text = escape_latex(DASH if cell.note else cell.text)
                text = rf"\textbf{{{text}}}" if cell.ranks and cell.ranks[0] == 1 else text
            else:
                text = escape_latex(cell.text if at else _with_spread(cell))
            cells.append(marked(text, cell.note))
        name = marked(escape_latex(line.name), *(badge.note for badge in line.badges), described(line))
        return latex_row([name, *cells])

    between = [r"\midrule"] if table.lines and table.references else []
    rows = [*map(row, table.lines), *between, *map(row, table.references)]
    headers = "; ".join(f"{each.short}: {each.name}" for each in table.columns if each.short != each.name)
    notes = [rf"\item[{mark}] {escape_latex(note)}" for note, mark in [(headers, ""), *marks.items()] if note]
    lines = [
        r"\begin{table}",
        r"\centering",
        r"\begin{threeparttable}",
        rf"\caption{{{escape_latex(caption)}}}",
        rf"\label{{tab:{label}}}",
        r"\footnotesize",
        r"\setlength{\tabcolsep}{3pt}",
        *tabular(["Model", *(escape_latex(column.short) for column in table.columns)], rows),
        *([r"\begin{tablenotes}", *notes, r"\end{tablenotes}"] if notes else []),
        r"\end{threeparttable}",
        f"% {one_line(signature)}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def as_csv(leaderboard: DataFrame) -> str:
    """The frame of `Results.leaderboard`, a line a row; blank: not measured."""

    def harmless(value: str) -> str:
        """Text that a spreadsheet would take for a formula is quoted by an apostrophe."""
        text = printable(value)
        return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text

    text = leaderboard.select_dtypes(["category", "string"]).columns
    columns = {name: leaderboard[name].astype("string").map(harmless, na_action="ignore") for name in text}
    return leaderboard.assign(**columns).to_csv(index=False, lineterminator="\n")


def as_json(contents: Contents) -> str:
    """Every group with its signature and rows; what was not measured is null with its reason."""
    shown = ("dataset", "fingerprint", "split", "track", "signature", "separating")
    leaderboards = [
        {
            **{name: getattr(group, name) for name in shown},
            "verdict": verdict(group),
            "metric": group.metric,
            "comparisons": group.comparisons and _comparisons_content(group.comparisons),
            "rows": [_row(row, group, contents) for row in group.rows],
            "references": [_row(row, group, contents) for row in group.references],
        }
        for group in contents.groups
    ]
    return json.dumps(leaderboards, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _row(row: Row, group: Group, contents: Contents) -> dict[str, Any]:
    run = contents.runs[row.keys[0]]
    match, told = nearest(row.model, group.split, run.signature, run.config), told_by_card(run.config)
    published = match and {
        "value": match.score.fraction,
        "source": match.score.source,
        "matches": match.matches,
        "differing": match.differing,
        "not_stated": match.unstated,
        "not_comparable": match.unclear,
        "footnotes": list(match.footnotes),
    }
    seen = contamination(row.pretraining, group.dataset, group.split)
    if told is not None:
        published = {"value": told / 100, "source": run.card.get("printed_in") or None}
    content: dict[str, Any] = {}
    for name, value in asdict(replace(row, ranks={})).items():
        if name == "ranks":
            content["standings"] = {metric: _rank_content(rank, metric, group) for metric, rank in row.ranks.items()}
        elif name == "other_hardware":
            content["elsewhere"] = value
        elif name != "budget_series":
            content[name] = value
    return {**content, "contamination": seen and asdict(seen), "published": published}


def _rank_content(rank: RankInterval, metric: str, group: Group) -> dict[str, Any]:
    content: dict[str, Any] = {
        "best": rank.best,
        "worst": rank.worst,
        "reason": rank.reason,
        "against_best": rank.p_against_best,
        "against_above": rank.p_against_above,
        "floors": [
            {
                "floor": test.floor,
                "difference": test.estimate.value,
                "p": test.estimate.p,
                "significant": test.estimate.is_significant,
            }
            for test in rank.floors
        ],
        "is_floor": rank.is_floor,
    }
    if metric != group.metric:  # a row's floors are those of the metric that ranks it
        content["floors"] = None
        content["floors_reason"] = f"rows are tested against floors on {group.metric} alone"
    return content


def _comparisons_content(comparisons: Comparisons) -> dict[str, Any]:
    return {
        "metric": comparisons.metric,
        "images": comparisons.images,
        "seeds": comparisons.seeds,
        "rows": comparisons.rows,
        "pairs": [
            {
                "first": pair.first,
                "second": pair.second,
                "difference": pair.estimate.value,
                "low": pair.estimate.low,
                "high": pair.estimate.high,
                "p": pair.estimate.p,
                "verdict": pair.verdict,
                "seeds": pair.seeds_needed,
                "images": pair.images_needed,
            }
            for pair in comparisons.pairs
        ],
        "margin": comparisons.margin,
        "margin_of": comparisons.margin_of,
        "lent": comparisons.prior_df,
        "deviate_alike": comparisons.bartlett_p,
        "floor_tests": comparisons.floor_tests,
    }
