"""`bench plan`: what a run would do and about what it would take, before anything starts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.benchmark.engines.choose import HERE
from harness.cli.options import refuse_typed
from harness.cli.output import OutFile, deliver
from harness.cli.plan_power import show_power
from harness.cli.plan_published import show_published_times
from harness.cli.plan_slurm import PlannedRuns, check_slurm, nodes_of, sbatch_script
from harness.cli.run_options import RunOptions, with_run_options
from harness.cli.run_request import make_request
from harness.config.limits import MAX_CHANNELS, MAX_REGIONS
from harness.utils.errors import BenchError
from harness.utils.files import expanded

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from harness.benchmark.benchmark import Request
    from harness.benchmark.models import RequestedModel
    from harness.benchmark.preview import Preview
    from harness.cli.plan_estimate import Estimate
    from harness.cli.plan_table import PlannedCounts
    from harness.utils.progress import Reporter

_MIN_TFLOPS, _MAX_TFLOPS = 1e-6, 1e6

EXAMPLES = """
Examples:

  bench plan

  bench plan --models expansionnet_v2,transformer_base --preset matched-width-scst --data coco --seeds 3 --throughput 60

  bench plan --models 'updown,aoanet' --preset small --data flickr8k/ --backbone resnet50 --measure

  bench plan --models 'updown,aoanet' --seeds 3 --control updown

  bench plan --models all --data coco --preset matched-width --seeds 5 --throughput 60 --slurm train.sbatch

  bench plan --detect 1.0 --workspace workspace

  bench plan --detect 1.0 --data coco --seed-deviation 0.5 --image-deviation 60
"""

_SEEN = (
    *("images", "backbone", "backbone_weights", "backbone_option", "image_size", "normalisation", "skip_bad_images"),
    *("regions", "region_count", "region_bins", "graphs", "graph_words", "graph_labels", "sentence_graphs"),
)
"""Options of what models see, which are looked at with the data."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plan", epilog=EXAMPLES)(with_run_options(plan))


def plan(
    options: RunOptions,
    context: typer.Context,
    cells: Annotated[int | None, typer.Option(min=1, max=MAX_REGIONS, help="Grid cells or regions an image.")] = None,
    channels: Annotated[int | None, typer.Option(min=1, max=MAX_CHANNELS, help="Channels of the features.")] = None,
    throughput: Annotated[float | None, typer.Option(help="TFLOP/s that a device sustains.")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="Time every model on --device for some seconds.")] = False,
    slurm: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the runs as an array of Slurm, for sbatch."),
        OutFile(rb"#!/bin/bash\n# Written by `bench plan"),
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
) -> None:
    """Show what bench run with the same options would do, with estimates of time and disk; nothing is started.

    Finished runs that would be re-used are counted. Multiply-accumulates are counted. Time is an estimate: what stored
    runs of these conditions took, or counts over a throughput that is stated, or measured here in a moment. --data may
    also be coco, flickr30k or flickr8k where there are no such data: their sizes are known. --detect, --seed-deviation
    and --image-deviation look at --data, --workspace and --db alone.
    """
    from harness.measure.estimate import KNOWN

    by_size = options.data in KNOWN and options.data != "scenes" and not expanded(options.data).exists()
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
        if options.data not in KNOWN:
            raise BenchError(
                f"--data {options.data}: the sizes of this data set are unknown", f"choose one of: {', '.join(KNOWN)}"
            )
        show_power(detect, seed_deviation, image_deviation, options.data, options.workspace, options.db)
        return
    if options.data not in KNOWN and not expanded(options.data).exists():
        raise BenchError(
            f"--data {options.data} does not exist, and the sizes of this data set are unknown",
            f"name a folder or file as for bench run, or one of: {', '.join(KNOWN)}",
        )
    if throughput is not None and measure:
        raise BenchError("--throughput states what --measure measures", "leave one of the two out")
    if throughput is not None and not _MIN_TFLOPS <= throughput <= _MAX_TFLOPS:
        raise BenchError(
            f"--throughput {throughput:g} is not between {_MIN_TFLOPS:g} and {_MAX_TFLOPS:g} TFLOP/s",
            "for example --throughput 60",
        )
    if by_size:
        refuse_typed(
            context,
            _SEEN,
            f"not read, since no {options.data} is here and its sizes alone are known",
            "say what models see by --cells and --channels, or name data that are here: --data FOLDER",
        )
    check_slurm(slurm, options.control)
    request = make_request(options, by_size=by_size)
    if slurm is not None:
        nodes_of(request.execution.devices)  # every model is counted below, which takes a while
    if request.workspace.remote is not None:
        request.workspace.remote.check_url()

    from rich.console import Console

    from harness.benchmark.benchmark import choose_device
    from harness.benchmark.control import choose_control
    from harness.benchmark.models import resolve_models, within_recipe
    from harness.cli.plan_estimate import Timing, estimate, stored_durations
    from harness.cli.plan_table import show_estimates, show_first, show_time
    from harness.measure.estimate import feature_bytes, run_bytes
    from harness.utils.progress import Reporter

    device, console = choose_device(request.device), Console(highlight=False)
    models = resolve_models(request.models, request.workspace, request.pretrained, request.hub)
    models, _ = within_recipe(models, request.models, request.preset)
    control = None if request.control is None else choose_control(request.control, models, request.features)
    for model in models:
        if model.kind in {"trained", "pretrained", "hub"}:
            request.preset.check_model(model.name)
    with Reporter(console) as reporter:
        found = _look(request, models, control, by_size, device, reporter)
    shape = replace(found.shape, cells=cells or found.shape.cells, channels=channels or found.shape.channels)
    counts, extra = _counted(request, models, control, found), _extra(request, control)
    names = [model.name for model in models if model.kind == "trained"]
    others = [model.name for model in models if model.kind != "trained"]
    timing = Timing(device, throughput, measure)
    if throughput is None and not measure:
        timing.stored = stored_durations(request, found.dataset)
        if options.on != HERE or slurm is not None:
            where = "by --slurm" if slurm is not None else f"--on {options.on}"
            timing.elsewhere = f"no run is stored here, and those {where} are elsewhere: state --throughput TFLOP/s"
    devices = request.execution.devices
    estimates = [estimate(name, request.preset, shape, timing, devices) for name in names]
    show_first(found.first, found.unknown, console)
    if names:
        for warning in request.preset.schedule.idle_stages(shape.train, round(shape.train * shape.captions)):
            console.print(warning, style="yellow", soft_wrap=True)
    show_estimates(estimates, counts, console)
    untrained = f", rows without training {len(others)}" if others else ""
    controls = "".join(f", control runs of {name} {more * request.seeds}" for name, more in extra.items())
    total = sum(counts.runs.values())
    what = "run" if total == 1 else "runs"
    seeds = _seeds(request.first_seed, request.seeds)
    console.print(f"{total} {what}: models {len(names)}, seeds {seeds}{untrained}{controls}")
    if counts.finished is not None:
        done = sum(counts.finished.values())
        console.print(f"{done} finished before and re-used, {total - done} to do")
    features = feature_bytes(shape.train + shape.val + shape.test, shape.cells, shape.channels)
    disk = features + sum(counts.left(each.model) * run_bytes(each.costs.parameters) for each in estimates)
    console.print(
        f"disk: about {disk / 1e9:.2f} GB: features of {shape.cells} x {shape.channels} once, weights and checkpoints"
    )
    if slurm is not None:
        _write_array(slurm, options, names, others, request, estimates)
        console.print(f"an array of Slurm with one element a run: sbatch {slurm}", soft_wrap=True)
    show_time(estimates, counts, devices, timing, console)
    show_published_times(request.preset, console)


def _look(
    request: Request,
    models: Sequence[RequestedModel],
    control: RequestedModel | None,
    by_size: bool,
    device: torch.device,
    reporter: Reporter,
) -> Preview:
    """What is known of the data and of finished runs; of data that are not here, the sizes alone."""
    from harness.benchmark.preview import Preview, preview
    from harness.measure.estimate import KNOWN

    if by_size:
        known, recipe = KNOWN[request.data], request.preset.recipe
        if recipe is not None and recipe.restval == "dropped":
            known = replace(known, train=known.train - known.restval)
        return Preview(request.data, known, unknown=f"{request.data} is known by its sizes alone")
    return preview(request, models, control, device, reporter)


def _counted(
    request: Request, models: Sequence[RequestedModel], control: RequestedModel | None, found: Preview
) -> PlannedCounts:
    """Runs and finished ones by model, trained models first."""
    from harness.cli.plan_table import PlannedCounts

    extra = _extra(request, control)
    ordered = sorted(models, key=lambda model: model.kind != "trained")
    runs = {
        model.name: request.seeds * (1 + extra.get(model.name, 0)) if model.kind == "trained" else 1
        for model in ordered
    }
    if found.unknown:
        return PlannedCounts(runs, None)
    done = Counter(spec.model for spec in found.specs if spec.key in found.finished)
    return PlannedCounts(runs, done)


def _extra(request: Request, control: RequestedModel | None) -> dict[str, int]:
    """How often `--control` trains a model's seeds besides."""
    from harness.benchmark.control import nothing_to_vary

    return {} if control is None else {control.name: 1 if nothing_to_vary(control, request.features) else 2}


def _write_array(
    file: Path,
    options: RunOptions,
    names: Sequence[str],
    others: Sequence[str],
    request: Request,
    estimates: Sequence[Estimate],
) -> None:
    """The script of Slurm; options of data and features are added where it is submitted, as it says."""
    words = ["--preset", options.preset, *(f"--set={setting}" for setting in options.change or ())]
    words += [*(f"--plugin={each}" for each in options.plugin or ()), "--workspace", str(options.workspace)]
    words += [] if options.db is None else ["--db", options.db]
    by_model = {each.model: each.seconds for each in estimates if each.seconds is not None}
    planned = PlannedRuns(names, others, request.first_seed, request.seeds, request.execution.devices, by_model)
    deliver(sbatch_script(file.name, planned, words), file, "--slurm")


def _seeds(first: int, count: int) -> str:
    """How many seeds, and which where these are not the first ones."""
    if not first:
        return str(count)
    return f"{count} ({first})" if count == 1 else f"{count} ({first} to {first + count - 1})"
