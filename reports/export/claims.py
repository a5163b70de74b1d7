"""Claims of papers and what stored runs say of them, as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from reports.export.markdown import escape_markdown
from reports.text.claims import LEGEND, commands, intervals, ours, published, reason
from reports.text.differences import markdown_table
from results.comparison.claims import ClaimRow

_HEAD: Final = """\
# What the papers claim, checked

Written by `bench claims` from stored runs; [Claims of papers](own_claims.md) says how. A claim is supported or
contradicted here by runs of one setting, often far from the paper's: smaller, on other data, with other features.
"""
_COLUMNS: Final = ("Claim", "Data", "Published", "Ours", "95 %", "Verdict")


def markdown(rows: Sequence[ClaimRow]) -> str:
    """A table of all rows, then each claim's paper, runs and conditions, and the commands that make all runs."""
    table = markdown_table(_COLUMNS, map(_cells, rows))
    parts = [_HEAD, table, f"{escape_markdown(LEGEND)}\n"]
    parts += [_section(list(of)) for _, of in groupby(rows, key=lambda row: row.number)]
    if lines := list(commands(rows, missing=False)):
        parts.append("## The runs\n\n```sh\n" + "\n".join(lines) + "\n```\n")
    return "\n".join(parts)


def _cells(row: ClaimRow) -> tuple[str, ...]:
    numbers = (published(row.claim), ours(row), intervals(row).replace("\n", "<br>"))
    return (
        escape_markdown(f"{row.number}. {row.claim.sentence}"),
        escape_markdown(row.data) or "–",
        *numbers,
        row.verdict,
    )


def _section(rows: Sequence[ClaimRow]) -> str:
    claim = rows[0].claim
    after = "" if claim.published.after is None else f", then {claim.published.after:+.1f}"
    lines = [
        f"{claim.paper}. Published, {claim.published.table}: {claim.published.difference:+.1f}{after} points of "
        f"{claim.published.metric}.",
        f"Claimed: {claim.runs.described()} {claim.direction} than {claim.than.described()}, {claim.metric} on "
        f"{claim.split}."
        if claim.after is None
        else f"Claimed: the order of {claim.runs.described()} and {claim.than.described()} is reversed for "
        f"{claim.after.runs.described()} and {claim.after.than.described()}, {claim.metric} on {claim.split}.",
    ]
    text = "".join(f"- {escape_markdown(line)}\n" for line in (*lines, *_rows(rows)))
    return f"## {rows[0].number}. {escape_markdown(claim.sentence)}\n\n{text}"


def _rows(rows: Sequence[ClaimRow]) -> Iterator[str]:
    for row in rows:
        yield f"{row.data}{': ' * bool(row.data)}{row.verdict}: {reason(row)}."
        if row.conditions:
            yield f"Conditions: {'; '.join(f'{name}:{value}' for name, value in row.conditions)}."
