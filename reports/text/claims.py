"""Claims of papers and what stored runs say of them: on an 80-column terminal, and as a page of Markdown."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.text import Text

from reports.tables.numbers import DASH
from reports.text.grid import Grid, bullets, escape_markdown, interval, markdown_table, p_value, points
from results.comparison.claims import UNTESTABLE, Claim, ClaimRow, Finding
from results.text import printable

_LEGEND: Final = (
    "Differences in points of the metric, of the first models' mean over seeds less the second's, with its 95 % "
    "interval over seeds and images (t, seeds unpaired). Verdicts are at 5 % after Holm's correction for all tests of "
    "this table that can have one; no difference: it is surely below 3 % of the score, or --margin. What has one seed, "
    "was still learning, still gains by longer training or is not above the floor has none. ÷: how many times a cost "
    "is in another, by Welch's test of logarithms over seeds, each by itself."
)
_STYLES: Final = {"supported": "green", "contradicted": "red", "no difference": "cyan", "not comparable": "yellow"}
_HEAD: Final = """\
# What the papers claim, checked

Written by `bench claims` from stored runs. A claim is supported or
contradicted here by runs of one setting, often far from the paper's: smaller, on other data, with other features.
"""


def print_claims(rows: Sequence[ClaimRow], console: Console) -> None:
    lines = []
    for row in rows:
        verdict = Text(row.verdict, _STYLES.get(row.verdict, ""))
        lines.append((_label(row), _published(row.claim), _ours(row), _intervals(row), verdict))
    console.print(Grid(("Claim", "Published", "Ours", "95 %", "Verdict"), lines, 1, 1).rich())
    console.print()
    for row in rows:
        console.print(Text(f"{_label(row)}: {_reason(row)}"))
    if missing := _commands([row for row in rows if row.verdict in UNTESTABLE]):
        console.print("\nRuns that are missing are made by:")
        for line in missing:
            console.print(Text(f"  {line}"), soft_wrap=True)
    console.print()
    console.print(Text(_LEGEND, style="dim"))


def markdown(rows: Sequence[ClaimRow]) -> str:
    """A table of all rows, then each claim's paper, runs and conditions, and the commands that make all runs."""
    cells = []
    for row in rows:
        what, data = escape_markdown(f"{row.number}. {row.claim.sentence}"), escape_markdown(row.data) or "–"
        ours = _ours(row), _intervals(row).replace("\n", "<br>")
        cells.append((what, data, _published(row.claim), *ours, row.verdict))
    table = markdown_table(("Claim", "Data", "Published", "Ours", "95 %", "Verdict"), cells)
    parts = [_HEAD, table, f"{escape_markdown(_LEGEND)}\n"]
    parts += [_section(list(of)) for _, of in groupby(rows, key=lambda row: row.number)]
    if lines := _commands(rows):
        parts.append("## The runs\n\n```sh\n" + "\n".join(lines) + "\n```\n")
    return "\n".join(parts)


def _section(rows: Sequence[ClaimRow]) -> str:
    claim = rows[0].claim
    printed, after, (ours, theirs) = claim.published, claim.after, (claim.runs.described(), claim.than.described())
    then = "" if printed.after is None else f", then {printed.after:+.1f}"
    number = _published(claim) if printed.difference is None else f"{printed.difference:+.1f}{then} points"
    claimed = f"{ours} {claim.direction} than {theirs}"
    if after is not None:
        claimed = (
            f"the order of {ours} and {theirs} is reversed for {after.runs.described()} and {after.than.described()}"
        )
    lines = [
        f"{claim.paper}. Published, {printed.table}: {number} of {printed.metric}.",
        f"Claimed: {claimed}, {claim.metric} on {claim.split}.",
    ]
    for row in rows:
        lines.append(f"{row.data}{': ' * bool(row.data)}{row.verdict}: {_reason(row)}.")
        if row.conditions:
            lines.append(f"Conditions: {'; '.join(f'{name}:{value}' for name, value in row.conditions)}.")
    return f"## {rows[0].number}. {escape_markdown(claim.sentence)}\n\n{bullets(lines)}"


def _label(row: ClaimRow) -> str:
    return printable(f"{row.number}. {row.claim.sentence}{f' ({row.data})' * bool(row.data)}")


def _published(claim: Claim) -> str:
    """The printed difference in points, of an order both; of a cost the ratio."""
    if claim.published.ratio is not None:
        return f"÷{claim.published.ratio:g}"
    later = claim.published.after
    return f"{claim.published.difference or 0.0:+.1f}" + (f" → {later:+.1f}" if later is not None else "")


def _ours(row: ClaimRow) -> str:
    if row.ratio is not None:
        return f"÷{row.ratio[0]:.1f}"
    gaps = [finding.difference for finding in row.findings]
    return " → ".join(DASH if gap is None else points(gap, "+") for gap in gaps) or DASH


def _intervals(row: ClaimRow) -> str:
    if row.ratio is not None:
        return f"÷{row.ratio[1]:.1f}…÷{row.ratio[2]:.1f}"
    tests = (finding.score.architecture for finding in row.findings)
    return "\n".join(interval(wide.low, wide.high) if wide else DASH for wide in tests) or DASH


def _reason(row: ClaimRow) -> str:
    """Why the verdict is what it is, with p-values and seeds of what was compared."""
    return printable("; ".join([row.reason, *map(_compared, row.findings)]))


def _compared(finding: Finding) -> str:
    one, other = (
        f"{model} ({len(of)} seed{'s' if len(of) > 1 else ''})"
        for model, of in zip(finding.models, finding.seeds, strict=True)
    )
    p = "" if finding.score.test is None else f", p {p_value(finding.score.test.adjusted)}"
    return f"{one} less {other}{p}"


def _commands(rows: Sequence[ClaimRow]) -> list[str]:
    return [printable(line) for line in dict.fromkeys(command for row in rows for command in row.claim.commands)]
