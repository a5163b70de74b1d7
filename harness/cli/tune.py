"""`bench tune`: search learning rate, dropout scale, warm-up and clipping, alike for every model."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import options
from harness.cli.experiments import experiment_of
from harness.cli.output import ForceOption, check_out, deliver, echo
from harness.cli.run import make_benchmark
from harness.config.experiment import DEFAULT_DATA, DEFAULT_PRESET
from harness.executors import HERE
from harness.utils.workspace import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.benchmark.tune.study import TunedModel

EXAMPLES = """
bench tune --models updown,transformer_base --trials 12
bench tune --models all --trials 12 --jobs 2 --export tuned.yaml
bench tune --models all --trials 24 --executor ray:head:6379 --gpus-per-run 0.5
bench run --models updown,transformer_base --seeds 3 --tuned workspace
"""


_ENDS = {"finished": "", "pruned": "pruned", "failed": "diverged"}


def tune(
    context: typer.Context,
    file: options.ExperimentArgument = None,
    models: options.ModelsOption = "all",
    executor: Annotated[
        str, typer.Option("--executor", metavar="WHERE", help="Where trials are trained: here or ray[:HOST:PORT].")
    ] = HERE,
    trials: Annotated[int, typer.Option(min=1, help="Trainings of each model, the untuned one included.")] = 12,
    plugin: options.PluginOption = None,
    data: options.DataOption = DEFAULT_DATA,
    images: options.ImagesOption = None,
    skip_bad_images: options.SkipBadImagesOption = False,
    tokenizer: options.TokenizerOption = "python",
    language: options.LanguageOption = None,
    backbone: options.BackboneOption = None,
    backbone_weights: options.BackboneWeightsOption = None,
    backbone_option: options.BackboneSettingOption = None,
    image_size: options.ImageSizeOption = None,
    normalisation: options.NormalisationOption = None,
    regions: options.RegionsOption = None,
    region_count: options.RegionCountOption = "all",
    graphs: options.GraphsOption = None,
    preset: options.PresetOption = DEFAULT_PRESET,
    change: options.ChangeOption = None,
    precision: options.PrecisionOption = "auto",
    device: options.DeviceOption = "auto",
    jobs: options.JobsOption = "auto",
    cpus_per_run: options.CpusOption = None,
    gpus_per_run: options.GpusOption = None,
    memory_per_run: options.MemoryOption = None,
    workspace: options.WorkspaceOption = DEFAULT,
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

    The same command continues where it stopped. --jobs tunes several models at once, each by one process, --executor
    ray on a Ray cluster; typed in several terminals, the processes share the models.
    """
    from harness.utils.progress import Reporter

    check_out(export, "--export", force=force, inputs=[file, *(plugin or ())])
    experiment = experiment_of(context, file)
    with Reporter() as reporter:
        with reporter.step("Loading torch"):
            benchmark = make_benchmark(experiment, tuning=True)
            from harness.benchmark.tune import tune as tuning
            from harness.config.tuning import WIDTHS, SearchSpace
        space = SearchSpace(width=WIDTHS if tune_width else (), stage=stage)
        tuned = tuning.tune(benchmark, reporter, trials=trials, space=space)
    echo(_table(tuned.models), nl=False)
    for name, error in tuned.errors.items():
        echo(f"{name} failed: {error}", err=True)
    if export is not None and tuned.done:
        words = ["bench", "tune", "--models", ",".join(experiment.models), "--trials", f"{trials}"]
        words += ["--preset", experiment.preset]
        words += [
            word for name, value in experiment.changes.items() for word in ("--set", f"{name}={json.dumps(value)}")
        ]
        words += ["--tune-width"] if tune_width else []
        words += ["--stage", stage] if stage else []
        deliver(tuning.tuned_yaml(tuned, shlex.join(words)), export, "--export")
        echo(f"values of {', '.join(tuned.done)}: {export}")
    if len(tuned.done) < len(tuned.models):
        sys.exit(1)


def _table(models: Mapping[str, TunedModel]) -> str:
    """A line a trial: validation CIDEr-D in points, factors of the preset's settings, and how it ended.

    The first trial of a model is the preset as it is. The trial whose values are used is marked.
    """
    from reports.text.grid import Grid

    header = ["Model", "Trial", "CIDEr-D", "Rate", "Dropout", "Warm-up", "Clip", ""]
    with_width = any(trial.width is not None for model in models.values() for trial in model.trials)
    if with_width:
        header.insert(-1, "Width")
    rows = []
    for name, model in models.items():
        used = model.used_trial()
        for number, trial in enumerate(model.trials, start=1):
            row = [
                name if number == 1 else "",
                f"{number}",
                "-" if trial.score is None else f"{100 * trial.score:.1f}",
                _factor(trial.learning_rate),
                _factor(trial.dropout_scale),
                "-" if trial.warmup is None else f"{100 * trial.warmup:.0f} %",
                _limit(trial.clip_norm),
                "used" if trial is used else _ENDS[trial.state],
            ]
            if with_width:
                row.insert(-1, _factor(trial.width))
            rows.append(row)
        if not model.trials:
            rows.append([name, *["-"] * (len(header) - 2), "failed"])
    return Grid(header, rows, last=1).terminal()


def _factor(value: float | None) -> str:
    """A factor of the preset's setting; a dash where the preset's is kept."""
    return "-" if value is None else f"x{value:.2f}"


def _limit(clip_norm: float | None) -> str:
    """The largest norm of gradients; 0 is no limit, and a dash the preset's."""
    if clip_norm is None:
        return "-"
    return f"{clip_norm:g}" if clip_norm else "none"
