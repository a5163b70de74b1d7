"""Claims of papers and what stored runs say of them, on an 80-column terminal, and the words that all formats share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from reports.tables.numbers import DASH, printable
from reports.text.differences import interval, p_value, points
from reports.text.layout import plain_table
from results.comparison.claims import UNTESTABLE, Claim, ClaimRow, Finding

LEGEND: Final = (
    "Differences in points of the metric, of the first models' mean over seeds less the second's, with its 95 % "
    "interval over seeds and images (t, seeds unpaired). Verdicts are at 5 % after Holm's correction for all tests of "
    "this table. What has one seed, was still learning or is not above the floor has none."
)
_STYLES: Final = {"supported": "green", "contradicted": "red", "not comparable": "yellow"}


def print_claims(rows: Sequence[ClaimRow], console: Console) -> None:
    """Print a table of all rows, the reason of each verdict, and what to type for runs that are missing."""
    table = plain_table(("Claim",), ("Published", "Ours", "95 %"), ("Verdict",))
    for row in rows:
        cells = (published(row.claim), ours(row), intervals(row))
        table.add_row(Text(label(row)), *cells, Text(row.verdict, style=_STYLES.get(row.verdict, "")))
    console.print(table)
    console.print()
    for row in rows:
        console.print(Text(f"{label(row)}: {reason(row)}"))
    for line in commands(rows, missing=True):
        console.print(Text(line), soft_wrap=True)
    console.print()
    console.print(Text(LEGEND, style="dim"))


def label(row: ClaimRow) -> str:
    """The claim's number and sentence, and the data that it was tested on."""
    return printable(f"{row.number}. {row.claim.sentence}{f' ({row.data})' * bool(row.data)}")


def published(claim: Claim) -> str:
    """The printed difference in points, of an order both."""
    later = claim.published.after
    return f"{claim.published.difference:+.1f}" + (f" → {later:+.1f}" if later is not None else "")


def ours(row: ClaimRow) -> str:
    """The differences that stored runs show, in points."""
    return " → ".join(map(difference, row.findings)) or DASH


def difference(finding: Finding) -> str:
    """One difference in points; a dash where a side has no score."""
    return DASH if finding.difference is None else points(finding.difference, "+")


def intervals(row: ClaimRow) -> str:
    """The 95 % intervals of the differences, where they are over seeds and images; one a line."""
    return "\n".join(map(interval_of, row.findings)) or DASH


def interval_of(finding: Finding) -> str:
    """The interval of one difference over seeds and images; a dash where a side has one seed."""
    wide = finding.score.architecture
    if wide is None or wide.low is None or wide.high is None:
        return DASH
    return interval(wide.low, wide.high)


def reason(row: ClaimRow) -> str:
    """Why the verdict is what it is, with p-values and seeds of what was compared."""
    shown = [_compared(finding) for finding in row.findings]
    return printable("; ".join([row.reason, *shown]))


def _compared(finding: Finding) -> str:
    one, other = (
        f"{model} ({len(of)} seed{'s' if len(of) > 1 else ''})"
        for model, of in zip(finding.models, finding.seeds, strict=True)
    )
    p = "" if finding.score.test is None else f", p {p_value(finding.score.test.adjusted)}"
    return f"{one} less {other}{p}"


def commands(rows: Sequence[ClaimRow], *, missing: bool) -> Iterator[str]:
    """Commands that make the runs of claims, each once; of those alone that nothing was compared for, or of all."""
    chosen = [row.claim for row in rows if row.verdict in UNTESTABLE or not missing]
    lines = list(dict.fromkeys(command for claim in chosen for command in claim.commands))
    if missing and lines:
        yield "\nRuns that are missing are made by:"
    for line in lines:
        yield f"  {printable(line)}" if missing else printable(line)
