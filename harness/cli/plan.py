"""`bench plan`: what a run would do and about what it would take, before anything starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import (
    ChangeOption,
    ControlOption,
    DatabaseOption,
    FirstSeedOption,
    ModelsOption,
    PluginOption,
    PresetOption,
    SeedsOption,
    WorkspaceOption,
    check_seeds,
    refuse_typed,
)
from harness.cli.output import deliver
from harness.cli.plan_power import show_power
from harness.cli.plan_slurm import PlannedRuns, check_slurm, sbatch_script
from harness.config.limits import MAX_CHANNELS, MAX_PROCESSES, MAX_REGIONS
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from harness.config.preset import Preset

_MIN_TFLOPS, _MAX_TFLOPS = 1e-6, 1e6

EXAMPLES = """
Examples:

  bench plan

  bench plan --models expansionnet_v2,transformer_base --preset matched-width-scst --data coco --seeds 3 --throughput 60

  bench plan --models 'updown,aoanet' --preset small --data flickr8k --measure

  bench plan --models 'updown,aoanet' --seeds 3 --control updown

  bench plan --models all --data coco --preset matched-width --seeds 5 --throughput 60 --slurm train.sbatch

  bench plan --detect 1.0 --workspace workspace

  bench plan --detect 1.0 --data coco --seed-deviation 0.5 --image-deviation 60
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plan", epilog=EXAMPLES)(plan)


def plan(
    context: typer.Context,
    models: ModelsOption = "all",
    data: Annotated[str, typer.Option(help="scenes, coco, flickr30k or flickr8k: their known sizes.")] = "scenes",
    preset: PresetOption = "quick",
    change: ChangeOption = None,
    seeds: SeedsOption = None,
    first_seed: FirstSeedOption = 0,
    control: ControlOption = None,
    devices: Annotated[int, typer.Option(min=1, max=MAX_PROCESSES, help="Devices that train each model together.")] = 1,
    cells: Annotated[int | None, typer.Option(min=1, max=MAX_REGIONS, help="Grid cells or regions an image.")] = None,
    channels: Annotated[int | None, typer.Option(min=1, max=MAX_CHANNELS, help="Channels of the features.")] = None,
    throughput: Annotated[float | None, typer.Option(help="TFLOP/s that a device sustains.")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time each model on this machine for some seconds.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="For --measure: auto, cpu, cuda or cuda:N.  [default: auto]")
    ] = None,
    plugin: PluginOption = None,
    slurm: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the runs as an array of Slurm, for sbatch.")
    ] = None,
    detect: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS", help="Instead: how many seeds and images tell a difference in CIDEr-D points apart."
        ),
    ] = None,
    seed_deviation: Annotated[
        float | None,
        typer.Option(metavar="POINTS", help="For --detect: of a model's seeds. Without it, that of stored runs."),
    ] = None,
    image_deviation: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS", help="For --detect: of two models' paired differences by image. Without it, as stored."
        ),
    ] = None,
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
) -> None:
    """Show runs, stages, steps and images of a benchmark, with estimates of time and disk; nothing is started.

    Multiply-accumulates are counted. Time is an estimate: what stored runs of these conditions took, or counts over a
    throughput that is stated or measured. --detect, --seed-deviation and --image-deviation look at --data, --workspace
    and --db alone.
    """
    from harness.config.load import load_preset
    from harness.measure.estimate import KNOWN, SCENE_REGIONS
    from harness.utils.plugins import load_plugins

    if detect is None:
        refuse_typed(
            context,
            ("seed_deviation", "image_deviation"),
            "what a difference is told from, but none is asked for",
            "add --detect 1.0, for example",
        )
    else:
        unused = set(context.params) - {"data", "detect", "seed_deviation", "image_deviation", "workspace", "db"}
        refuse_typed(
            context, sorted(unused), "not used by --detect, which is about scores alone", "leave --detect or these out"
        )
    load_plugins(plugin)
    if data not in KNOWN:
        raise BenchError(f"--data {data}: the sizes of this data set are unknown", f"choose one of: {', '.join(KNOWN)}")
    if throughput is not None and measure:
        raise BenchError("--throughput states what --measure measures", "leave one of the two out")
    if device is not None and not measure:
        raise BenchError("--device is where --measure times, which is not asked for", "add --measure, or leave it out")
    if throughput is not None and not _MIN_TFLOPS <= throughput <= _MAX_TFLOPS:
        raise BenchError(
            f"--throughput {throughput:g} is not between {_MIN_TFLOPS:g} and {_MAX_TFLOPS:g} TFLOP/s",
            "for example --throughput 60",
        )
    settings, known = load_preset(preset, tuple(change or ())), KNOWN[data]
    seeds = seeds or settings.seeds
    check_seeds(first_seed, seeds, 2 if control else 1)
    check_slurm(slurm, control)
    if detect is not None:
        show_power(detect, seed_deviation, image_deviation, data, workspace, db)
        return
    if data == "scenes" and settings.features is not None:
        known = replace(known, cells=SCENE_REGIONS[0], channels=SCENE_REGIONS[1])
    if settings.recipe is not None and settings.recipe.restval == "dropped":
        known = replace(known, train=known.train - known.restval)
    shape = replace(known, cells=cells or known.cells, channels=channels or known.channels)
    names, others, extra = _models(models, control, settings)
    rest = len(others)

    from rich.console import Console

    from harness.cli.plan_estimate import estimate, show_estimates, show_time, stored_durations
    from harness.measure.estimate import feature_bytes, run_bytes

    console = Console(highlight=False)
    stored = {} if throughput is not None or measure else stored_durations(settings, data, workspace, db)
    measure_on = (device or "auto") if measure else None
    estimates = [
        estimate(name, settings, shape, stored=stored, measure_on=measure_on, throughput=throughput, devices=devices)
        for name in names
    ]
    runs = {name: seeds * (1 + extra.get(name, 0)) for name in names}
    show_estimates(estimates, console)
    untrained = f", rows without training {rest}" if rest else ""
    controls = "".join(f", control runs of {name} {more * seeds}" for name, more in extra.items())
    total = sum(runs.values()) + rest
    what = "run" if total == 1 else "runs"
    console.print(f"{total} {what}: models {len(names)}, seeds {_seeds(first_seed, seeds)}{untrained}{controls}")
    features = feature_bytes(shape.train + shape.val + shape.test, shape.cells, shape.channels)
    disk = features + sum(runs[each.model] * run_bytes(each.costs.parameters) for each in estimates)
    console.print(
        f"disk: about {disk / 1e9:.2f} GB: features of {shape.cells} x {shape.channels} once, weights and checkpoints"
    )
    if slurm is not None:
        words = ["--preset", preset, *(f"--set={setting}" for setting in change or ())]
        words += [*(f"--plugin={each}" for each in plugin or ()), "--workspace", str(workspace)]
        words += [] if db is None else ["--db", db]
        by_model = {each.model: each.seconds for each in estimates if each.seconds is not None}
        planned = PlannedRuns(names, others, first_seed, seeds, devices, by_model)
        deliver(sbatch_script(slurm.name, planned, words), slurm, "--slurm")
        console.print(f"an array of Slurm with one element a run: sbatch {slurm}", soft_wrap=True)
    how = "throughput measured here on a few images" if measure else ""
    how = f"throughput stated as {throughput:g} TFLOP/s" if throughput is not None else how
    show_time(estimates, runs, devices, how=how, console=console)


def _seeds(first: int, count: int) -> str:
    """How many seeds, and which where these are not the first ones."""
    if not first:
        return str(count)
    return f"{count} ({first})" if count == 1 else f"{count} ({first} to {first + count - 1})"


def _models(models: str, control: str | None, preset: Preset) -> tuple[list[str], list[str], dict[str, int]]:
    """Models that a run trains, the other rows, and how often `--control` trains a model's seeds besides."""
    from harness.config.features import FeatureConfig
    from harness.config.model_patterns import split_patterns
    from harness.runner.control import choose_control, nothing_to_vary
    from harness.runner.models import resolve_models, within_recipe

    patterns = split_patterns(models)
    requested, _ = within_recipe(resolve_models(patterns, Workspace(DEFAULT)), patterns, preset)
    trained = [model.name for model in requested if model.kind == "trained"]
    extra = {}
    if control is not None:
        chosen = choose_control(control, requested, FeatureConfig())
        extra[chosen.name] = 1 if nothing_to_vary(chosen, FeatureConfig()) else 2
    return trained, [model.name for model in requested if model.kind != "trained"], extra
