"""Two results side by side for other programs: Markdown and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from reports.export.markdown import escape_markdown
from reports.text.comparison import (
    caption_counts,
    caption_line,
    cost_label,
    costs,
    left_over,
    legend,
    most_changed,
    scopes,
    score_cells,
    shown_scores,
    side_line,
    title,
    untested,
    warnings,
)
from reports.text.differences import cost_line, cost_ratio, markdown_table
from results.comparison.comparison import Comparison, Pair, Side


def markdown(comparison: Comparison) -> str:
    """Every pair with all its scores and costs, then the captions that changed most."""
    parts = ["".join(f"- {escape_markdown(line.strip())}\n" for line in warnings(comparison))]
    parts += [_pair(pair) for pair in comparison.pairs]
    tests = (*scopes(comparison, everything=True), *untested(comparison, everything=True))
    notes = (*tests, *caption_counts(comparison), *left_over(comparison))
    parts.append("".join(f"- {escape_markdown(line)}\n" for line in notes))
    for change in most_changed(comparison):
        captions = (
            ("A", change.before),
            ("B", change.after),
            *(("reference", text) for text in change.image.references),
        )
        lines = "".join(f"- {who}: {escape_markdown(text)}\n" for who, text in captions)
        parts.append(f"**{escape_markdown(caption_line(change))}**\n\n{lines}")
    parts.append(f"{escape_markdown(legend(comparison))}\n")
    return "\n".join(filter(None, parts))


def as_json(comparison: Comparison) -> str:
    """Everything, fractions unrounded."""
    return json.dumps(asdict(comparison), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _pair(pair: Pair) -> str:
    scores = markdown_table(
        ("Metric", "Split", "A", "B", "Change", "95 %", "p"),
        (
            (escape_markdown(score.metric), escape_markdown(score.split), *score_cells(score))
            for score in shown_scores(pair, everything=True)
        ),
    )
    spent = markdown_table(
        ("Cost", "A → B", "B by A"),
        ((escape_markdown(cost_label(each)), cost_line(each), cost_ratio(each)) for each in costs(pair)),
    )
    sides = "".join(f"- {letter}: {escape_markdown(side_line(side))}\n" for letter, side in _sides(pair))
    return f"## {escape_markdown(title(pair))}\n\n{sides}\n{scores}\n{spent}"


def _sides(pair: Pair) -> tuple[tuple[str, Side], ...]:
    return ("A", pair.before), ("B", pair.after)
