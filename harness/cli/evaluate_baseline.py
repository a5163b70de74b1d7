"""`bench evaluate --baseline`: what changed since scores that were written before, and whether any fell too far."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.output import echo, print_notes, write_errors
from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from harness.metrics.evaluator import Report
    from harness.metrics.stored_scores import StoredScores
    from results.comparison.limits import LimitedChange

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


def changes_since(
    stored: StoredScores,
    report: Report,
    labels: Mapping[int, str],
    limits: Mapping[str, float],
    *,
    baseline: Path,
    command: str,
) -> list[LimitedChange]:
    """The changes of the metrics that have a limit, or else of all; `command` writes the baseline anew.

    BenchError if the baseline was scored under other conditions, or lacks a metric that has a limit.
    """
    from harness.metrics.stored_scores import refuse_other_conditions
    from results.comparison.evaluations import compare_scores
    from results.comparison.limits import LimitedChange

    hint = f"score the accepted captions under the same conditions: {command}"
    refuse_other_conditions(f"--baseline {baseline}", stored.signature, report.signature, hint)
    ids = {labels.get(image_id, str(image_id)): image_id for image_id in report.evaluation.ids}
    try:
        before = stored.image_scores(ids)
        after = report.image_scores()
    except BenchError as error:
        raise BenchError(f"--baseline {baseline}: {error}", hint) from error
    for metric in limits:
        if metric not in before.scores:
            reason = before.reasons.get(metric, "it was not computed")
            raise BenchError(f"--baseline {baseline} has no {metric}: {reason}", hint)
    metrics = list(limits or {**before.scores, **after.scores})
    changes = compare_scores(before, {"now": after}, metrics, images="all")
    return [LimitedChange(change, limits.get(change.metric)) for change in changes]


def print_changes(changes: list[LimitedChange], baseline: Path) -> None:
    """Print the changes and whether they are within their limits."""
    from reports.text.evaluations import changes_grid, conclusion, legend, remarks

    echo(f"\nsince {baseline}")
    echo(changes_grid(changes).terminal(), nl=False)
    print_notes([*remarks(changes), legend(changes)], "table")
    if verdict := conclusion(changes):
        print_notes([verdict], "table")


def write_summary(changes: list[LimitedChange], file: Path, baseline: Path) -> None:
    """Append the changes to the summary of a step of GitHub's, where this is one."""
    from reports.text.evaluations import markdown

    if summary := os.environ.get(SUMMARY_VARIABLE):
        with write_errors(Path(summary), f"${SUMMARY_VARIABLE}"), Path(summary).open("a", encoding="utf-8") as written:
            written.write(markdown(changes, f"{file.name} since {baseline.name}"))


def baseline_content(changes: list[LimitedChange], baseline: Path) -> dict[str, Any]:
    """What scores.json says of the comparison."""
    from reports.text.evaluations import content

    return {"baseline": str(baseline), "changes": [content(limited.change, limited.limit) for limited in changes]}
