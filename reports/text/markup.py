"""Leaderboards in GitHub's Markdown, times 100, and in JSON, as fractions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from reports.columns import Cell
from reports.tables.boards import separated_by
from reports.tables.budget_table import budget_table
from reports.tables.contents import Contents
from reports.tables.facts import contamination
from reports.tables.leaderboards import Titled, people
from reports.tables.selection import ALL_COLUMNS, choose_columns, leaderboards_with
from reports.tables.table import Line, Table
from reports.tables.verdict import verdict
from reports.text.grid import escape_markdown, markdown_table, one_line
from results.metrics import RANKING_METRIC
from results.published.scores import nearest, told_by_card
from results.runs.leaderboard import Group, Row
from results.runs.standings import STILL_LEARNING, Comparisons, RankInterval
from results.signature import format_signature


def markdown(contents: Contents, metrics: Sequence[str] | None = None) -> str:
    """One table a group, with verdict, notes and signature; without `metrics` the columns of `default_column_names`."""
    parts: list[str] = []
    for group, table in leaderboards_with(contents, metrics):
        parts.append(f"## {escape_markdown(_title(group))}\n")
        if group.separating:
            fields = escape_markdown(separated_by(group))
            parts.append(f"Not comparable with the other tables of this split: {fields}.\n")
        sentences = verdict(group)
        if sentences:
            parts.append(escape_markdown(" ".join(sentences)) + "\n")
        parts += _markdown_parts(table)
        if group.rows:
            signature = one_line(format_signature(group.signature, RANKING_METRIC, group.split))
            parts.append("`{}`\n".format(signature.replace("`", "'")))
        for extra in _further_tables(group, contents).values():
            note = " ".join((extra.note, *extra.table.sentences))
            parts += [f"### {extra.title}\n", f"{escape_markdown(note)}\n", *_markdown_parts(extra.table)]
    return "\n".join(parts) or "No run has finished yet.\n"


def _further_tables(group: Group, contents: Contents) -> dict[str, Titled]:
    tables = {"budgets": budget_table(group, contents.groups, {}), "people": people(group, contents.facets)}
    return {
        name: replace(titled, table=choose_columns(titled.table, (ALL_COLUMNS,)))
        for name, titled in tables.items()
        if titled
    }


def _title(group: Group) -> str:
    title = group.name
    if group.rows:
        title += f", {group.track} track"
        if group.metric != RANKING_METRIC:
            title += f", by {group.metric}"
    return title


def _described(line: Line) -> str:
    """A row's tag, badges and differing settings; a model that was still learning has this at its rank."""
    labels = (badge.label for badge in line.badges if badge.label != STILL_LEARNING.partition(":")[0])
    return ", ".join(filter(None, (line.tag, *labels, line.differs)))


def _with_spread(cell: Cell) -> str:
    return f"{cell.text} ±{cell.deviation_text}" if cell.deviation_text else cell.text


def _markdown_parts(table: Table) -> Iterator[str]:

    def marked(text: str, *notes: str) -> str:
        return escape_markdown(text) + "".join(f" <sup>{table.marks[note]}</sup>" for note in notes if note)

    def row(line: Line) -> list[str]:
        parts = [_described(line)]
        if line in table.references:
            parts.append("not ranked")
        description = ", ".join(part for part in parts if part)
        name = f"{line.name} ({description})" if description else line.name
        notes = (badge.note for badge in line.badges)
        return [marked(name, *notes), *(marked(_with_spread(cell), cell.note) for cell in line.cells)]

    headings = ["Model", *(escape_markdown(column.name) for column in table.columns)]
    yield markdown_table(headings, map(row, (*table.lines, *table.references)))
    if table.marks:
        notes = (f"<sup>{mark}</sup> {escape_markdown(note)}  " for note, mark in table.marks.items())
        yield "\n".join(notes) + "\n"


def as_json(contents: Contents) -> str:
    """Every group with its signature and rows; values that were not measured are null with a reason."""
    group_fields = ("dataset", "fingerprint", "split", "track", "signature", "separating")
    leaderboards = [
        {
            **{name: getattr(group, name) for name in group_fields},
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
    match = nearest(row.model, group.split, run.signature, run.config)
    stated = told_by_card(run.config)
    published = match and {
        "value": match.score.fraction,
        "source": match.score.source,
        "matches": match.matches,
        "differing": match.differing,
        "not_stated": match.unstated,
        "not_comparable": match.unclear,
        "footnotes": list(match.footnotes),
    }
    seen_data = contamination(row.pretraining, group.dataset, group.split)
    if stated is not None:
        published = {"value": stated / 100, "source": run.card.get("printed_in") or None}
    content: dict[str, Any] = {}
    for name, value in asdict(replace(row, ranks={})).items():
        if name == "ranks":
            content["ranks"] = {metric: _rank_content(rank, metric, group) for metric, rank in row.ranks.items()}
        elif name != "without_schedule":
            content[name] = value
    return {**content, "contamination": seen_data and asdict(seen_data), "published": published}


def _rank_content(rank: RankInterval, metric: str, group: Group) -> dict[str, Any]:
    content: dict[str, Any] = {
        "best": rank.best,
        "worst": rank.worst,
        "reason": rank.reason,
        "against_best": rank.p_against_best,
        "against_above": rank.p_against_above,
        "baselines": [
            {
                "baseline": test.baseline,
                "difference": test.estimate.value,
                "p": test.estimate.p,
                "significant": test.estimate.is_significant,
            }
            for test in rank.baselines
        ],
        "is_baseline": rank.is_baseline,
    }
    if metric != group.metric:  # a row's baselines are those of the metric that ranks it
        content["baselines"] = None
        content["baselines_reason"] = f"rows are tested against baselines on {group.metric} alone"
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
        "baseline_tests": comparisons.baseline_tests,
    }
