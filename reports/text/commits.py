"""The effect of a code change on trained models: on an 80-column terminal, in Markdown and in JSON."""

from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from reports.numbers import DASH
from reports.text.comparison import caption_counts, main_costs, warnings
from reports.text.comparison import content as comparison_content
from reports.text.grid import Grid, bullets, escape_markdown, indented, interval, p_value, points, ratio
from results.comparison.changes import MetricChange
from results.comparison.commits import CommitComparison, LostRun
from results.statistics.architecture import OVER_IMAGES, OVER_SEEDS
from results.text import printable

_MARKS: Final = {0: "✅", 1: "❌", 2: "❔"}
_STYLES: Final = {0: "bold green", 1: "bold red", 2: "bold yellow"}
_TESTS: Final = {
    OVER_SEEDS: "Over seeds and images: t, seeds unpaired, images paired.",
    OVER_IMAGES: "Over images: paired sign flips, which say nothing of other seeds.",
}


def conclusion(result: CommitComparison) -> str:
    """One line that explains the exit code."""
    failures = [_worse(change) for change in result.worse] + [_lost(run) for run in result.lost]
    if failures:
        text = f"Failed: {failures[0]}."
        further_count = len(failures) - 1
        if further_count == 1:
            text += " And 1 more finding."
        elif further_count:
            text += f" And {further_count} more findings."
        return text
    if result.untested:
        change = result.untested[0]
        return f"Could not be judged: {_name(change)}: {change.estimate.reason}."
    if all(change.identical for change in result.changes):
        return "Passed: every score is identical."
    higher = f" {len(result.better)} significantly higher." if result.better else ""
    return f"Passed: no score is significantly lower.{higher}{_blind_spot(result)}"


def _blind_spot(result: CommitComparison) -> str:
    """A sentence on the largest fall that the test may have missed."""
    smallest_changes = [(change.smallest, change.metric) for change in result.changes if change.smallest is not None]
    if not smallest_changes:
        return ""
    smallest, metric = max(smallest_changes)
    return f" A fall of {metric} below {points(smallest)} points may go unseen."


def _name(change: MetricChange) -> str:
    return f"{change.model}: {change.metric} on {change.split}"


def _worse(change: MetricChange) -> str:
    estimate = change.estimate
    assert estimate.value is not None
    assert estimate.p is not None
    return f"{_name(change)} fell by {points(-estimate.value)} points, p {p_value(estimate.p)}"


def _lost(run: LostRun) -> str:
    return f"{run.model} seed {run.seed} no longer finishes: {run.reason}"


def print_findings(result: CommitComparison, console: Console) -> None:
    """Print the conclusion, every metric's change, costs, and other differences."""
    console.print(Text(printable(f"bench regress: {conclusion(result)}"), style=_STYLES[result.exit_code]))
    for sentence in _other_findings(result):
        console.print(indented(sentence, "bold red"))
    for line in warnings(result.comparison):
        console.print(Text(printable(line), style="yellow"))
    for grid in _grids(result):
        console.print()
        console.print(grid.rich())
    console.print()
    for line in caption_counts(result.comparison):
        console.print(Text(printable(line)))
    console.print(Text(printable(_legend(result)), style="dim"))


def markdown(result: CommitComparison) -> str:
    """A summary that pull requests show."""
    parts = [
        f"### {_MARKS[result.exit_code]} {escape_markdown(conclusion(result))}\n",
        bullets(_other_findings(result)),
        bullets(line.strip() for line in warnings(result.comparison)),
        *(grid.markdown() for grid in _grids(result)),
        bullets(caption_counts(result.comparison)),
        f"{escape_markdown(_legend(result))}\n",
    ]
    return "\n".join(part for part in parts if part)


def content(result: CommitComparison) -> dict[str, Any]:
    return {
        "conclusion": conclusion(result),
        "commit": result.commit,
        "changes": [_change_content(change) for change in result.changes],
        "lost": [asdict(run) for run in result.lost],
        "comparison": comparison_content(result.comparison),
    }


def _change_content(change: MetricChange) -> dict[str, Any]:
    return {"model": change.model, "split": change.split, **change.numbers, "over": change.over}


def _other_findings(result: CommitComparison) -> list[str]:
    """All findings but the first, which is in the conclusion, and the changes that could not be tested."""
    findings = [_worse(change) for change in result.worse] + [_lost(run) for run in result.lost]
    untested = [f"{_name(change)} could not be tested: {change.estimate.reason}" for change in result.untested]
    return [*findings[1:], *untested]


def _grids(result: CommitComparison) -> list[Grid]:
    """The changes, metric by metric; then the ratios of costs."""
    metrics = dict.fromkeys(change.metric for change in result.changes)
    grids = [_changes(result, metric) for metric in metrics]
    rows = []
    for pair in result.comparison.pairs:
        ratios = {cost.name: cost.ratio for cost in pair.costs}
        if ratios:
            rows.append((pair.after.model, *(ratio(ratios.get(name)) for name in main_costs())))
    if rows:
        grids.append(Grid(("Now by before", *main_costs().values()), rows))
    return grids


def _changes(result: CommitComparison, metric: str) -> Grid:
    headings = (metric, "Split", "Before", "Now", "Change", "95 %", "p", "Smallest")
    rows = [_cells(change) for change in result.changes if change.metric == metric]
    return Grid(headings, rows, 2)


def _cells(change: MetricChange) -> tuple[str, ...]:
    before, after = (DASH if value is None else points(value) for value in (change.before, change.after))
    estimate = change.estimate
    difference = DASH if estimate.value is None else points(estimate.value, "+")
    smallest = DASH if change.smallest is None else points(change.smallest)
    bounds = "identical" if change.identical else interval(estimate.low, estimate.high)
    p = DASH if estimate.p is None or change.identical else p_value(estimate.p)
    return change.model, change.split, before, after, difference, bounds, p, smallest


def _legend(result: CommitComparison) -> str:
    overs = {change.over for change in result.changes}
    tests = "1 test" if result.comparison.tests == 1 else f"{result.comparison.tests} tests"
    sentences = [
        f"Before: {result.commit}. Scores times 100, means over seeds.",
        f"95 % and p with Holm's correction for {tests}.",
        *(sentence for over, sentence in _TESTS.items() if over in overs),
        "Smallest: the smallest change that these seeds show, four times in five.",
    ]
    return " ".join(sentences)
