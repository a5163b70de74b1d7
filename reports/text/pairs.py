"""Measured differences of pairs of models and those printed in sources: on an 80-column terminal, Markdown and JSON."""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.text import Text

from reports.numbers import DASH
from reports.text.grid import escape_markdown, indented, interval, markdown_table, p_value, points
from results.comparison.pairs import PairResult
from results.statistics.estimate import Estimate
from results.text import printable

_HEADINGS: Final = ("A", "B", "Runs", "Printed", "A - B", "95 %", "p", "Verdict")
_STYLES: Final = {"as printed": "green", "opposite": "red", "not measured": "yellow", "one seed": "yellow"}
_LABEL_WIDTH: Final = 27
_LINE: Final = f"  {{:<{_LABEL_WIDTH}}} {{:>7}} {{:>16}} {{:>6}}  {{}}"
LEGEND: Final = (
    "A - B: difference of CIDEr-D on the test split, in points, of means over seeds. 95 % and p are over seeds and "
    "images and corrected for all tests of this table (Holm). Significant: p < 0.05."
)


def print_pairs(results: Sequence[PairResult], console: Console) -> None:
    """Print one table: each pair with what its source prints, then a line for each set of conditions."""
    console.print(Text(_LINE.format("A - B, printed", "here", "95 %", "p", "verdict"), style="dim"))
    for pair, group in groupby(results, key=lambda result: result.pair):
        printed = "" if pair.printed is None else f", {pair.printed:+.1f}"
        console.print(Text(printable(f"{pair.a} - {pair.b}{printed}"), style="bold"))
        if pair.source:
            console.print(indented(printable(pair.source), "dim"))
        for result in group:
            if result.reason is not None:
                console.print(indented(printable(f"{result.verdict}, {result.reason}"), _STYLES[result.verdict]))
                continue
            _, _, label, _, *cells = _cells(result)
            style = _STYLES.get(result.verdict, "")
            if len(label) > _LABEL_WIDTH:
                console.print(indented(printable(label), style))
                label = ""
            console.print(Text(printable(_LINE.format(label, *cells)), style=style))
    console.print()
    console.print(Text(LEGEND, style="dim"))


def markdown(results: Sequence[PairResult]) -> str:
    """The table, and the notes below it."""
    rows = [[escape_markdown(cell) for cell in _cells(result)] for result in results]
    notes = "\n\n".join(escape_markdown(line) for line in (*_notes(results), LEGEND))
    return f"{markdown_table(_HEADINGS, rows)}\n{notes}\n"


def as_json(results: Sequence[PairResult]) -> str:
    """Every pair as an object; scores and differences are fractions, `printed` is in points."""
    content = []
    for result in results:
        score = result.score
        estimate = Estimate(None) if score is None else score.estimate
        content.append(
            {
                **result.pair.model_dump(),
                "conditions": result.conditions,
                "seeds": result.seeds,
                "difference": result.difference,
                "low": estimate.low,
                "high": estimate.high,
                "p": estimate.p,
                "over": None if score is None else score.over,
                "verdict": result.verdict,
                "reason": result.reason,
            }
        )
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _cells(result: PairResult) -> list[str]:
    pair = result.pair
    estimate = Estimate(None) if result.score is None else result.score.estimate
    return [
        pair.a,
        pair.b,
        result.conditions or DASH,
        DASH if pair.printed is None else f"{pair.printed:+.1f}",
        DASH if result.difference is None else points(result.difference, "+"),
        interval(estimate.low, estimate.high),
        DASH if estimate.p is None else p_value(estimate.p),
        result.verdict,
    ]


def _notes(results: Sequence[PairResult]) -> list[str]:
    """The reasons for pairs that were not measured, then the sources."""
    reasons: dict[str, list[str]] = {}
    for result in results:
        if result.reason is not None:
            reasons.setdefault(result.reason, []).append(f"{result.pair.a} - {result.pair.b}")
    lines = [f"Not measured, {reason}: {', '.join(pairs)}." for reason, pairs in reasons.items()]
    sources = dict.fromkeys((result.pair.a, result.pair.b, result.pair.source) for result in results)
    return lines + [f"{a} - {b}: {source}." for a, b, source in sources if source]
