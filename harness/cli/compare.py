"""`bench compare`: two models, two runs, two workspaces or two databases side by side."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from harness.cli.completion import complete_runs
from harness.cli.inputs import doing, open_results
from harness.cli.options import DatabaseOption, WorkspaceOption, refuse_typed
from harness.cli.output import ForceOption, Out, check_out, deliver, echo
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.workspace import DEFAULT, Workspace

EXAMPLES = r"""
bench compare transformer_base updown
bench compare transformer_base-s0-e91b35c5e1 updown-s0-e7956ed8e0
bench compare ../main/workspace workspace --format markdown \
    --out changes.md
bench compare old.sqlite postgresql://me@server/captions
bench compare accepted now --max-drop CIDEr-D=0.5
# differences that papers print, beside those of the stored runs
bench compare --pairs papers
"""


def compare(
    context: typer.Context,
    before: Annotated[
        str | None,
        typer.Argument(
            metavar="A", help="A model, a run's key, a workspace, or a database.", autocompletion=complete_runs
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Argument(metavar="B", help="What it is compared with, of the same kind.", autocompletion=complete_runs),
    ] = None,
    pairs: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="In place of A and B: a list of pairs of models in YAML, or 'papers'."),
    ] = None,
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
    captions: Annotated[
        int, typer.Option(min=0, max=100_000, help="How many captions to show, of those that changed most.")
    ] = 5,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Compare only these metrics, e.g. CIDEr-D; fewer tests give narrower intervals."
        ),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Compare only runs of this budget of bench run --budgets.")
    ] = None,
    max_drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=POINTS",
            help="Exit code 1 if a score falls by more than this from A to B, or is missing; may be repeated.",
        ),
    ] = None,
    all_costs: Annotated[bool, typer.Option("--all-costs", help="Show every cost, in place of the main ones.")] = False,
    format: Annotated[
        Literal["text", "markdown", "json"], typer.Option("--format", help="How the comparison is written.")
    ] = "text",
    out: Annotated[Path | None, Out(help="Write it to this file.")] = None,
    force: ForceOption = False,
) -> None:
    """Compare two models, runs or workspaces: scores with tests, ratios of costs, and changed captions.

    A and B are two models of a workspace, each with all its seeds; or two runs, by their keys; or two workspaces or
    databases, whose models are paired. Where each side has two seeds, the test is over seeds and images, else over
    images. To compare two commits, run each in a workspace of its own.

    --pairs compares pairs of models of a workspace with the differences that papers print of them, in one table whose
    tests are corrected together.
    """
    if pairs is not None:
        refuse_typed(
            context,
            ("before", "after", "captions", "metrics", "budget", "max_drop", "all_costs"),
            "not with --pairs",
            "leave it out",
        )
        check_out(out, force=force, inputs=[pairs, Workspace(workspace, db).database])
        _compare_pairs(pairs, workspace, db, format, out)
        return
    if before is None or after is None:
        raise BenchError("name two models, runs, workspaces or databases", "bench compare transformer_base updown")
    from harness.benchmark.compare_results import compare_results
    from reports.text import comparison as written
    from results.comparison.limits import exceeded_limits

    check_out(out, force=force, inputs=[before, after, Workspace(workspace, db).database])
    limits = parse_limits(max_drop or [])
    chosen = parse_metrics(metrics, limits)
    with doing("Comparing"):
        compared = compare_results(before, after, Workspace(workspace, db), captions, chosen, budget)
    if format == "text":
        deliver(partial(written.print_comparison, compared, all_costs=all_costs), out)
    elif format == "json":
        deliver(written.as_json(compared), out)
    else:
        deliver(written.markdown(compared, all_costs=all_costs), out)
    if out is not None:
        echo(out)
    exceeded = exceeded_limits(compared, limits) if limits else []
    for sentence in exceeded:
        echo(f"Failed, --max-drop: {sentence}", err=True)
    if exceeded:
        sys.exit(1)
    if limits:
        allowed = ", ".join(f"{metric} {limit:g}" for metric, limit in limits.items())
        echo(f"Passed: no score fell by more than --max-drop ({allowed} points)", err=True)


def _compare_pairs(
    name: str, workspace: Path, db: str | None, format: Literal["text", "markdown", "json"], out: Path | None
) -> None:
    """Compare the pairs of a file in one table."""
    from harness.config.load import load_pairs
    from reports.text import pairs as written
    from results.comparison.pairs import compare_pairs
    from results.runs.reading import stored_runs

    printed = load_pairs(name)
    with open_results(workspace, db) as store, doing("Comparing"):
        results = compare_pairs(stored_runs(store), printed)
    if format == "text":
        deliver(partial(written.print_pairs, results), out)
    else:
        deliver(written.as_json(results) if format == "json" else written.markdown(results), out)
    if out is not None:
        echo(out)


def parse_metrics(text: str | None, limits: Collection[str]) -> list[str] | None:
    """The metrics of `--metrics`; BenchError where one is unknown, or where a limit is of another."""
    if text is None:
        return None
    from results.metrics import metric_names

    metrics = [name.strip() for name in text.split(",")]
    for name in metrics:
        if name not in metric_names():
            hint = f"these are: {', '.join(metric_names())}"
            raise BenchError(f"--metrics: there is no metric {shortened(name)!r}", hint)
    for name in limits:
        if name not in metrics:
            raise BenchError(f"--max-drop {name}: --metrics leaves it out", f"write --metrics {text},{name}")
    return metrics


def parse_limits(texts: Sequence[str], other_metrics: Iterable[str] = ()) -> dict[str, float]:
    """The limits of `--max-drop` by metric, in points; `others` are metrics that were computed elsewhere."""
    from results.metrics import metric_names

    metrics = [*metric_names(), *other_metrics]
    limits = {}
    for text in texts:
        metric, _, value = text.partition("=")
        try:
            points = float(value)
        except ValueError:
            points = math.nan
        if not math.isfinite(points) or points < 0:
            hint = "write points of the metric times 100, for example CIDEr-D=0.5"
            raise BenchError(f"--max-drop {text!r} is not METRIC=POINTS", hint)
        if metric not in metrics:
            raise BenchError(f"--max-drop {text!r}: there is no such metric", f"these are: {', '.join(metrics)}")
        limits[metric] = points
    return limits
