"""`bench tune`: search learning rate, dropout scale, warm-up and clipping, alike for every model."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.benchmark.engines import HERE
from harness.cli.options import ModelsOption, RunOptions, with_run_options
from harness.cli.output import ForceOption, check_out, deliver, echo, format_table
from harness.cli.run import make_request

if TYPE_CHECKING:
    from harness.benchmark.tune.tune import Tuning

EXAMPLES = """
bench tune --models updown,transformer_base --trials 12
bench tune --models all --trials 12 --jobs 2 --export tuned.yaml
bench tune --models all --trials 24 --on ray:head:6379 --gpus-per-run 0.5
bench run --models updown,transformer_base --seeds 3 --tuned workspace
"""


_NOT_OF_TRIALS = (
    "seeds", "first_seed", "budgets", "db", "devices", "hours_per_run", "tuned",
    "reuse", "accept_mixed", "margin", "place_unfinished",
    "same_machine", "pretrained", "hub", "more_metrics", "clip", "bert",
    "instances", "cards", "allow_subset", "log",
)  # fmt: skip


def tune(
    options: RunOptions,
    models: ModelsOption = "all",  # noqa: ARG001 - of the options
    on: Annotated[  # noqa: ARG001
        str, typer.Option("--on", metavar="WHERE", help="Where trials are trained: here or ray[:HOST:PORT].")
    ] = HERE,
    trials: Annotated[int, typer.Option(min=1, help="Trainings of each model, the untuned one included.")] = 12,
    finalists: Annotated[
        int,
        typer.Option(min=0, max=1000, help="Best trials that are trained again with further seeds, as the preset is."),
    ] = 2,
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="Further training seeds of the preset and each finalist.")
    ] = 2,
    tune_width: Annotated[
        bool, typer.Option("--tune-width", help="Search the width too: half to twice d_model and d_ff.")
    ] = False,
    stage: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Search the values of this stage alone, as a self-critical one; earlier stages are the preset's own.",
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the values as YAML, for bench run --tuned."),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Search learning rate, dropout scale, warm-up and clipping for every model, alike and with the same budget.

    The same command continues where it stopped. --jobs tunes several models at once, each by one process, --on ray
    on a Ray cluster; typed in several terminals, the processes share the models.
    """
    from harness.utils.progress import Reporter

    check_out(export, "--export", force=force)
    with Reporter() as reporter:
        with reporter.step("Loading torch"):
            request = make_request(options, tuning=True)
            from harness.benchmark.tune import tune as tuning
            from harness.config.tuning import WIDTHS, SearchSpace
        space = SearchSpace(width=WIDTHS if tune_width else (), stage=stage)
        found = tuning.tune(request, reporter, trials=trials, finalists=finalists, seeds=seeds, space=space)
    echo(_table(found))
    for name, error in found.errors.items():
        echo(f"{name} failed: {error}", err=True)
    chosen = found.done
    if export is not None and chosen:
        words = ["bench", "tune", "--models", options.models, "--trials", f"{trials}", "--preset", options.preset]
        words += [word for setting in options.change or () for word in ("--set", setting)]
        words += ["--finalists", f"{finalists}", "--seeds", f"{seeds}"]
        words += ["--tune-width"] if tune_width else []
        words += ["--stage", stage] if stage else []
        deliver(tuning.exported(found, shlex.join(words)), export, "--export")
        echo(f"values of {', '.join(chosen)}: {export}")
    if len(chosen) < len(found.models):
        sys.exit(1)


def _table(found: Tuning) -> str:
    """A line a model; scores are points of validation CIDEr-D, means over seeds where there are several."""
    header = ("Model", "Default", "Chosen", "Deviation", "Trials", "Pruned", "Failed", "Chosen values")
    rows = []
    for name, model in found.models.items():
        points = (model.default, model.best, model.deviation)
        scores = ["-" if score is None else f"{100 * score:.1f}" for score in points]
        counts = [str(model.count(state)) for state in ("finished", "pruned", "failed")]
        values = "-" if model.best is None else model.values.describe()
        rows.append((name, *scores, *counts, values if name in found.done else f"not done: {values}"))
    return format_table(header, rows, "table")


COMMAND = with_run_options(tune, _NOT_OF_TRIALS)
