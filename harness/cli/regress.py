"""`bench regress`: the gate that fails when a workspace's runs are worse than a baseline."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.inputs import open_results
from harness.cli.options import DatabaseOption, WorkspaceOption
from harness.cli.output import OutFile, deliver
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT
from results.errors import without_passwords

if TYPE_CHECKING:
    from rich.console import Console

    from results.comparison.baseline import Baseline
    from results.comparison.gate import GateResult, Settings
    from results.runs.run import Run

_EXAMPLES = """
Examples:

  bench run --models transformer_base --seeds 5 --preset gate --workspace gate

  bench regress --workspace gate --baseline baselines/mine.json --update

  bench regress --workspace gate --baseline baselines/mine.json

  bench regress --baseline b.json --tolerance CIDEr-D=1 --strict-timing 1.5

  bench regress --baseline b.json --format junit --out regress.xml
"""


class Format(StrEnum):
    """How findings are written."""

    text = "text"
    markdown = "markdown"
    junit = "junit"
    json = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("regress", epilog=_EXAMPLES)(regress)


def regress(
    baseline: Annotated[Path, typer.Option(help="The baseline file, JSON."), OutFile(only_with="update")],
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
    update: Annotated[
        bool, typer.Option("--update", help="Write the baseline from the finished runs instead of judging.")
    ] = False,
    drop: Annotated[list[str] | None, typer.Option(help="With --update: a model that the baseline may lose.")] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="With --update: a metric to test; CIDEr-D by default.")
    ] = None,
    tolerance: Annotated[
        list[str] | None, typer.Option(help="METRIC=POINTS: tolerate losses below this; 0.5 by default.")
    ] = None,
    require_power: Annotated[
        bool, typer.Option("--require-power", help="Fail, or with --update refuse, where such a loss could go unseen.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact/--no-exact", help="Fail where losses or captions differ at all.")
    ] = True,
    strict_timing: Annotated[
        float | None, typer.Option(help="Fail where a time grows by more than this factor.")
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How findings are written.")] = Format.text,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write them to this file."),
        OutFile(rb'Baseline of |### |<\?xml [^>]*>\s*<testsuites>|\{\s*"exit_code":'),
    ] = None,
) -> None:
    """Judge a workspace's finished runs against a baseline, or write one with --update.

    Deterministic: losses and captions equal to the last bit, on the platform of the baseline. Statistical: a test over
    seeds and images (of one seed: over images), and a least effect. Times are only reported. Exit code 1: a regression,
    or an expected run was not measured; 2: could not judge.
    """
    from results.comparison.baseline import baseline_of, read_baseline
    from results.runs.reading import failures, finished_with_images

    if not update and (drop or metric):
        raise BenchError("--drop and --metric define a new baseline", "add --update")
    if update and (strict_timing or out or not exact or format is not Format.text):
        options = "--strict-timing, --no-exact, --format and --out"
        raise BenchError("--update writes a baseline and does not judge", f"leave out {options}")
    tolerances = _tolerances(tolerance or ())
    if strict_timing is not None and not (math.isfinite(strict_timing) and strict_timing > 1):
        raise BenchError(f"--strict-timing {strict_timing:g} must be above 1", "write --strict-timing 1.5")
    expected = read_baseline(baseline) if not update or baseline.exists() else None
    metrics = metric or (expected.metrics if expected else ["CIDEr-D"])
    with open_results(workspace, db) as store:
        runs = finished_with_images(store)
        measured, unfinished = baseline_of(runs, metrics) if runs else None, failures(store)
    if unknown := sorted(tolerances.keys() - set(metrics)):
        raise BenchError(
            f"--tolerance {unknown[0]}: the baseline has no per-image scores of this metric",
            f"it has: {', '.join(metrics)}; choose others with --update --metric",
        )

    from results.comparison.gate import Settings

    settings = Settings(tolerances, exact, strict_timing, require_power)
    if update:
        _update(baseline, expected, measured, unfinished, metrics, drop or (), settings)
        return
    assert expected is not None

    from reports.text.regression import conclusion, may_be_meant
    from results.comparison.gate import judge

    judgement = judge(expected, measured, unfinished, settings)
    deliver(_findings(judgement, format), out)
    if out is not None:
        typer.echo(conclusion(judgement))
    if may_be_meant(judgement) and (out is not None or format is Format.text):
        words = ["bench", "regress", "--update", "--baseline", str(baseline)]
        words += ["--workspace", str(workspace)] if db is None else ["--db", db]
        typer.echo(without_passwords(shlex.join(words)))
    sys.exit(judgement.exit_code)


def _tolerances(given: Sequence[str]) -> dict[str, float]:
    """Points by metric, from METRIC=POINTS."""
    found = {}
    for text in given:
        metric, _, number = text.partition("=")
        try:
            points = float(number)
        except ValueError:
            points = math.nan
        if not metric or not math.isfinite(points) or points < 0:
            raise BenchError(
                f"--tolerance {text!r} is not METRIC=POINTS",
                "write points of the metric times 100, for example CIDEr-D=0.5",
            )
        found[metric] = points
    return found


def _update(
    path: Path,
    old: Baseline | None,
    new: Baseline | None,
    unfinished: Sequence[Run],
    metrics: Sequence[str],
    drop: Sequence[str],
    settings: Settings,
) -> None:
    """Write the new baseline, unless it would lose what the old one expects, and say what fall it could not see."""
    from results.comparison.baseline import check_metrics, compare_baselines, write_out
    from results.comparison.gate import foresee, unseen

    if new is None:
        raise BenchError(
            "no run has finished here: a baseline would be empty", "make some with: bench run --preset gate --seeds 5"
        )
    check_metrics(metrics, new)
    update = compare_baselines(old, new)
    lost = [run for run in update.dropped if run.model not in drop]
    if lost:
        why = {(each.role, each.model, each.seed): each.reason or each.status for each in unfinished}
        named = ", ".join(f"{run.name} ({why.get(run.who, 'not measured')})" for run in lost)
        models = " ".join(f"--drop {model}" for model in dict.fromkeys(run.model for run in lost))
        raise BenchError(f"the baseline {path} would lose what it expects: {named}", f"measure it, or add {models}")
    if strange := set(drop) - {run.model for run in update.dropped}:
        raise BenchError(f"--drop {min(strange)}: the new baseline still has it", "leave the option out")
    foreseen = foresee(new, settings)
    doubt = unseen(foreseen)
    if doubt is not None and settings.require_power:
        raise BenchError(f"--require-power: {doubt[0]}", doubt[1])
    text = write_out(new)
    deliver(text, path, "--baseline")
    for run in update.added:
        typer.echo(f"added: {run.name}")
    for run in update.dropped:
        typer.echo(f"dropped: {run.name}")
    for run, fields in update.changed:
        typer.echo(f"other conditions: {run.name}: {'; '.join(fields)}")
    for each in unfinished:
        typer.echo(f"not in it: {each.model} seed {each.seed}: {each.status}")
    if foreseen:
        typer.echo("Where bits cannot be compared, the smallest falls found four times in five:")
    for row in foreseen:
        typer.echo(f"  {row.said}")
    if doubt is not None:
        typer.echo(f"WARNING: {doubt[0]}: {doubt[1]}")
    typer.echo(f"{path}: {len(new.runs)} runs, {len(text.encode()) / 1000:.0f} kB")


def _findings(judgement: GateResult, format: Format) -> str | Callable[[Console], None]:
    """The judgement in a format; text depends on the terminal that it is printed to."""
    from reports.text import regression as written

    if format is Format.text:
        return partial(written.print_gate_result, judgement)
    writers = {Format.markdown: written.markdown, Format.junit: written.junit, Format.json: written.as_json}
    return writers[format](judgement)
