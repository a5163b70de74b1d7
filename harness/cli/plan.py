"""`bench plan`: what a run would do and about what it would take, before anything starts."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from harness.benchmark.engines import HERE
from harness.cli.inputs import open_results
from harness.cli.options import RunOptions, refuse_typed, with_run_options
from harness.cli.output import format_table
from harness.cli.run import make_request
from harness.config.limits import MAX_CHANNELS, MAX_REGIONS
from harness.utils.errors import BenchError
from harness.utils.files import disk_of, expanded

if TYPE_CHECKING:
    from rich.console import Console

    from harness.benchmark.plan import Asked, Request
    from harness.benchmark.preview import Preview
    from harness.measure.estimate import DataShape, PassCosts, StagePlan
    from harness.utils.progress import Reporter
    from results.records import DatasetRecord, RunSpec
    from results.runs.planning import Duration, StoredVariances

EXAMPLES = """
bench plan
bench plan --models expansionnet_v2,transformer_base --preset matched-width-scst --data coco --seeds 3
bench plan --models 'updown,aoanet' --preset small --data flickr8k/ --backbone resnet50
bench plan --models 'updown,aoanet' --seeds 3 --control updown
bench plan --models all --data dataset_coco.json --preset matched-width --seeds 5 --store
bench plan --detect 1.0 --workspace workspace
bench plan --detect 1.0 --data coco --seed-deviation 0.5 --image-deviation 60
"""

MOMENT_S, MOMENT_IMAGES = 0.1, 4
"""Least seconds of each of the two timings of a model, and the images of their batches."""
MOMENT_GMAC = 20.0
"""The most a forward pass over one image may take to be timed on a CPU: larger steps take half a minute."""
BUDGET_S = 20.0
"""After so long no further model is timed."""
_SEEN = (
    *("images", "backbone", "backbone_weights", "backbone_option", "image_size", "normalisation", "skip_bad_images"),
    *("regions", "region_count", "region_bins", "graphs", "graph_words", "graph_labels", "sentence_graphs"),
)
"""Options of what models see, which are looked at with the data."""
SEEDS = (2, 3, 5, 10, 20)
MORE_IMAGES = 4
"""How many times the images the second column is for."""
MIN_POINTS, MAX_POINTS = 0.01, 1000.0
"""The last digit of CIDEr-D points that is shown, and the highest score that there is."""
SPLIT = "test"
_HINT = "state both: --seed-deviation 5 --image-deviation 40; or run two models with --seeds 3 first"


def plan(
    options: RunOptions,
    context: typer.Context,
    cells: Annotated[int | None, typer.Option(min=1, max=MAX_REGIONS, help="Grid cells or regions an image.")] = None,
    channels: Annotated[int | None, typer.Option(min=1, max=MAX_CHANNELS, help="Channels of the features.")] = None,
    store: Annotated[bool, typer.Option("--store", help="Store the runs as planned, for bench work.")] = False,
    detect: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            min=MIN_POINTS,
            max=MAX_POINTS,
            help="Instead: how many seeds and images tell a difference in CIDEr-D points apart.",
        ),
    ] = None,
    seed_deviation: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            min=MIN_POINTS,
            max=MAX_POINTS,
            help="For --detect: of a model's seeds. Without it, that of stored runs.",
        ),
    ] = None,
    image_deviation: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            min=MIN_POINTS,
            max=MAX_POINTS,
            help="For --detect: of two models' paired differences by image. Without it, as stored.",
        ),
    ] = None,
) -> None:
    """Show what bench run with the same options would do, with an estimate of time and disk; nothing is started.

    Finished runs that would be re-used are counted. Multiply-accumulates are counted. Time is an estimate: what stored
    runs of these conditions took, or counts over a speed that is measured here in a moment. --data may also be coco,
    flickr30k or flickr8k where there are no such data: their sizes are known. --detect, --seed-deviation and
    --image-deviation look at --data, --workspace and --db alone.
    """
    from harness.measure.estimate import KNOWN

    if detect is not None:
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
    refuse_typed(
        context,
        ("seed_deviation", "image_deviation"),
        "what a difference is told from, but none is asked for",
        "add --detect 1.0, for example",
    )
    # What models see may be stated before the features are here, whether or not the data are.
    stated = cells and channels and options.backbone is None and options.regions is None
    here = options.data == "scenes" or (expanded(options.data).exists() and not (stated and options.data in KNOWN))
    if not here and options.data not in KNOWN:
        raise BenchError(
            f"--data {options.data} does not exist, and the sizes of this data set are unknown",
            f"name a folder or file as for bench run, or one of: {', '.join(KNOWN)}",
        )
    if not here:
        refuse_typed(
            context,
            (*_SEEN, "store"),
            f"not read, since of {options.data} the sizes alone are looked at",
            "say what models see by --cells and --channels, or name data that are here: --data FOLDER",
        )
    request = make_request(options, by_size=not here)
    if request.workspace.remote is not None:
        request.workspace.remote.check_url()

    from rich.console import Console

    from harness.benchmark.plan import resolve
    from harness.utils.progress import Reporter

    console = Console(highlight=False)
    with Reporter(console) as reporter:
        asked = resolve(request, reporter)
        found = _look(request, asked, here, reporter)
        if store:
            _left(request, found)  # refuses what cannot be planned before every model is counted
        shape = replace(found.shape, cells=cells or found.shape.cells, channels=channels or found.shape.channels)
        estimates = _estimates(request, asked, found, shape, options.on != HERE or store, reporter)
    _show(request, asked, found, shape, estimates, console)
    if store:
        _store(request, found)
        console.print("the runs are stored as planned; bench work executes them", soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one run of a model takes under a budget; seconds are None where `why` says why they are not known.

    They are the least and the most: equal as stored, and of a moment's measurement from a floor a step to its rate.

    `stages` are less the first `trunk` epochs, which the run of the next smaller budget trains.
    """

    model: str
    budget: int
    trunk: int
    costs: PassCosts
    stages: Sequence[StagePlan]
    captioning: StagePlan
    seconds: tuple[float, float] | None
    source: Literal["stored", "measured", ""] = ""
    why: str = ""

    @property
    def row(self) -> str:
        """Its name in the table."""
        return row_name(self.model, self.budget)


def row_name(model: str, budget: int) -> str:
    """How the table names a model under a budget, as signatures name the schedule: `updown*2`."""
    return model if budget == 1 else f"{model}*{budget}"


def _look(request: Request, asked: Asked, here: bool, reporter: Reporter) -> Preview:
    """What is known of the data and of finished runs; of data that are not here, the sizes alone."""
    from harness.benchmark.preview import Preview, preview
    from harness.measure.estimate import KNOWN

    if here:
        return preview(request, asked, reporter)
    known, recipe = KNOWN[request.data], request.preset.recipe
    if recipe is not None and recipe.restval == "dropped":
        known = replace(known, train=known.train - known.restval)
    return Preview(request.data, known, unknown=f"{request.data} is known by its sizes alone")


def _estimates(
    request: Request, asked: Asked, found: Preview, shape: DataShape, elsewhere: bool, reporter: Reporter
) -> list[Estimate]:
    """What a run of each model takes under each budget; models are counted and timed one after the other."""
    names, stored, spent = [model.name for model in asked.trained()], _stored_durations(request, found.dataset), 0.0
    estimates = []
    with reporter.task("counting and timing", len(names)) as task:
        for number, name in enumerate(names):
            started = time.monotonic()
            why = "no run is stored here, and runs are elsewhere" if elsewhere else ""
            why = why or (f"{BUDGET_S:.0f} s of measuring are over" if spent >= BUDGET_S else "")
            say = partial(task.reach, number)
            estimates += _estimate(name, request, shape, asked.opening.device, stored, why, reporter, say)
            spent += time.monotonic() - started
    return estimates


def _show(
    request: Request,
    asked: Asked,
    found: Preview,
    shape: DataShape,
    estimates: Sequence[Estimate],
    console: Console,
) -> None:
    """Print the table of runs, and what all of them take."""
    from harness.benchmark.control import nothing_to_vary
    from harness.benchmark.plan import trained_whole
    from harness.measure.estimate import feature_bytes, run_bytes
    from results.records import budget_of

    names = [model.name for model in asked.trained()]
    others = [model.name for model in asked.models if model.kind != "trained"]
    seeds, control, first, budgets = request.seeds, asked.control, request.first_seed, request.budgets
    extra = 0 if control is None else 1 if nothing_to_vary(control, request.features) else 2
    runs = dict.fromkeys((row_name(name, budget) for budget in budgets for name in names), seeds)
    runs |= dict.fromkeys(others, 1)
    if control is not None:
        for budget in budgets:
            runs[row_name(control.name, budget)] += extra * seeds
    reused = [spec for spec in found.specs if spec.key in found.finished]
    done = Counter(row_name(spec.model, budget_of(spec.config) if spec.kind == "trained" else 1) for spec in reused)
    for what in found.first:
        console.print(f"first: {what}", soft_wrap=True, markup=False)
    if found.unknown:
        console.print(f"re-used: not known, {found.unknown}", soft_wrap=True, markup=False)
        if names:
            counts, schedule = (shape.train, round(shape.train * shape.captions)), request.preset.schedule
            for warning in (*trained_whole(schedule, budgets, *counts), *schedule.idle_stages(*counts)):
                console.print(warning, style="yellow", soft_wrap=True)
    for each in estimates[: len(budgets)]:
        after = f", after the first {each.trunk} epochs of the budget before" if each.trunk else ""
        for stage in each.stages:
            epochs = "1 epoch" if stage.epochs == 1 else f"{stage.epochs:,} epochs"
            sizes = f"{epochs}, {stage.steps:,} steps, {stage.images:,} images{after}"
            console.print(f"stage {row_name(stage.stage, each.budget)}: {sizes}", soft_wrap=True)
    _print_table(estimates, runs, None if found.unknown else done, console)
    total, untrained = sum(runs.values()), f", rows without training {len(others)}" if others else ""
    which = "" if not first else f" ({first})" if seeds == 1 else f" ({first} to {first + seeds - 1})"
    controls = "" if control is None else f", control runs of {control.name} {extra * seeds * len(budgets)}"
    what = "run" if total == 1 else "runs"
    under = "" if budgets == (1,) else f", budgets {', '.join(map(str, budgets))}"
    console.print(f"{total} {what}: models {len(names)}, seeds {seeds}{which}{under}{untrained}{controls}")
    if not found.unknown:
        console.print(f"{sum(done.values())} finished before and re-used, {total - sum(done.values())} to do")
    left = {name: count - done[name] for name, count in runs.items()}
    features = feature_bytes(shape.train + shape.val + shape.test, shape.cells, shape.channels)
    disk = features + sum(left[each.row] * run_bytes(each.costs.parameters) for each in estimates)
    root, free = disk_of(request.workspace.root)
    console.print(
        f"disk: about {disk / 1e9:.2f} GB in {request.workspace.root}: features of {shape.cells} x {shape.channels} "
        f"once, weights and checkpoints; {free / 1e9:.1f} GB are free at {root}"
    )
    _print_time(estimates, left, request.execution.devices, asked.opening.device, console)


def _estimate(
    model: str,
    request: Request,
    shape: DataShape,
    device: str,
    stored: Mapping[tuple[str, int], Duration],
    why: str,
    reporter: Reporter,
    say: Callable[[str], None],
) -> list[Estimate]:
    """Count one run of a model under each budget, and tell its time; `say` what is being done.

    The time is as stored, or else measured for a moment, unless `why` is said.
    """
    from harness.benchmark.training_costs import pass_costs
    from harness.measure.estimate import plan_captioning, plan_stages
    from harness.measure.memory import create_within_memory
    from harness.measure.speed import measure_speed
    from harness.training.sentence_graphs import stages_for
    from zoo import HasBackbone

    preset, sizes = request.preset, {"vocab_size": shape.words, "visual_dim": shape.channels}
    say(f"{model}: building")
    built = create_within_memory(model, **sizes, **preset.model_arguments(model, **sizes))
    if isinstance(built, HasBackbone):
        reporter.note(f"counting {model} with its backbone, which takes minutes where that is large")
    length = min(shape.caption_length, built.max_len)
    say(f"{model}: counting")
    costs, visual = pass_costs(built, cells=shape.cells, caption_length=length)
    decoding = preset.decoding
    captioning = plan_captioning(costs, shape, decoding.beam_size, decoding.max_len)
    pass_gmac = (costs.backbone + costs.encoder + costs.caption) / 1e9
    if not why and device == "cpu" and pass_gmac > MOMENT_GMAC:
        why = f"an image takes {pass_gmac:.0f} GMAC, too many to time on a CPU in a moment"
    measured = not why and any((model, budget) not in stored for budget in request.budgets)
    speed = None
    if measured:
        say(f"{model}: timing")
        speed = measure_speed(built.to(device), visual.to(device), costs, length, images=MOMENT_IMAGES, min_s=MOMENT_S)
    schedule, before, found = stages_for(built, preset.schedule), None, list[Estimate]()
    for budget in request.budgets:
        longer = schedule.times(budget)
        trunk = 0 if before is None else before.shared_epochs(longer, shape.train, round(shape.train * shape.captions))
        stages = plan_stages(longer.without_first(trunk), costs, shape, decoding.max_len)
        known = partial(Estimate, model, budget, trunk, costs, stages, captioning)
        if (duration := stored.get((model, budget))) is not None:
            found.append(known((duration.seconds, duration.seconds), "stored"))
        elif speed is None:
            found.append(known(None, why=why))
        else:
            floor = speed.step_s * sum(stage.steps for stage in stages)
            rate = sum(each.seconds(speed, request.execution.devices) for each in (*stages, captioning))
            found.append(known((min(floor, rate), max(floor, rate)), "measured"))
        before = longer
    return found


def _stored_durations(request: Request, dataset: str) -> Mapping[tuple[str, int], Duration]:
    """What runs on the data of this name took in the request's workspace, by model and budget; empty without any.

    Raises:
        BenchError: the workspace is no folder.
        StoreError: `--db` is no database, or cannot be read.
    """
    from harness.benchmark.identity.signature import training_fields
    from harness.benchmark.preview import has_results
    from results.runs.planning import run_durations

    place = request.workspace
    if os.path.lexists(place.root) and not place.root.is_dir():
        raise BenchError(f"the workspace {place.root} is not a folder", "name a folder with --workspace")
    if not has_results(request):
        return {}
    found: dict[tuple[str, int], Duration] = {}
    with open_results(place.root, place.db) as store:
        for budget in request.budgets:
            schedule = request.preset.schedule.times(budget)
            preset = request.preset.model_copy(update={"schedule": schedule})
            took = run_durations(store, dataset, training_fields(preset))
            found |= {(model, budget): duration for model, duration in took.items()}
    return found


def _print_table(
    estimates: Sequence[Estimate], runs: Mapping[str, int], done: Mapping[str, int] | None, console: Console
) -> None:
    """A line a row of the benchmark: runs to do and re-used ones, and what one run of a trained model takes."""
    from reports.tables.numbers import count, macs
    from reports.text.grid import Grid

    header, rows = ("New", "Re-used", "Parameters", "Work", "Time"), []
    by_model = {each.row: each for each in estimates}
    for name, number in runs.items():
        told = ["-", "-", "-"]
        if (each := by_model.get(name)) is not None:
            work = sum(stage.training + stage.decoding for stage in each.stages) + each.captioning.decoding
            seconds = "-" if each.seconds is None else _span(*map(_rough, each.seconds))
            told = [count(each.costs.parameters), macs(work), seconds]
        reused = 0 if done is None else done.get(name, 0)
        rows.append((name, f"{number - reused}", "?" if done is None else f"{reused}", *told))
    numbers = sum(2 + max(map(len, column)) for column in list(zip(("", *header), *rows, strict=True))[1:])
    # A name alone may be cut, so that a model has one line and every number is whole.
    shown = [(shortened_to(name, console.width - numbers), *told) for name, *told in rows]
    console.print(Grid(("Model", *header), shown).rich())
    shared = ", less what the budget before it trains" if any(each.trunk for each in estimates) else ""
    console.print(f"Work and time are of one run: training, validation and captioning{shared}.")


def _print_time(
    estimates: Sequence[Estimate], left: Mapping[str, int], devices: int, device: str, console: Console
) -> None:
    """The time of all runs that are left, one after the other, what it is told from, and why it cannot be told."""

    to_do = [each for each in estimates if left[each.row]]
    if estimates and not to_do:
        console.print("time: none to train")
    if known := [each for each in to_do if each.seconds is not None]:
        span = [sum(left[each.row] * each.seconds[end] for each in known if each.seconds) for end in (0, 1)]
        sources = Counter(each.source for each in known)
        said = {
            "stored": "as stored runs of these conditions took, all of their work included",
            "measured": f"measured on {device} here for a moment",
        }
        told = "; ".join(
            said[source] + (f" ({number} models)" if len(sources) > 1 else "") for source, number in sources.items()
        )
        hours = _span(*(f"{seconds * devices / 3600:,.2f}" for seconds in span))
        times = _span(*map(_rough, span))
        console.print(f"an ESTIMATE of {hours} device-hours ({times} on {devices}), {told}; one model at a time")
        if "measured" in sources:
            console.print(
                f"The least: every step takes as long as one of {MOMENT_IMAGES} images, as where a GPU waits for small "
                "models. The most: all work at the rate of these, as on a processor. Extraction of features, scoring "
                "and waiting for data come on top.",
            )
    for why in dict.fromkeys(each.why for each in to_do if each.seconds is None):
        models = [each.row for each in to_do if each.why == why and each.seconds is None]
        of = f" of {', '.join(models)}" if len(models) < len(to_do) else ""
        console.print(f"time{of}: not estimated, {why}", soft_wrap=True)


def _span(least: str, most: str) -> str:
    return least if least == most else f"{least} – {most}"


def _rough(seconds: float) -> str:
    """A duration as exact as an estimate is."""
    for unit, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 3 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def shortened_to(name: str, width: int) -> str:
    """A name in so many columns: its middle is left out, since variants differ at their ends."""
    if len(name) <= width:
        return name
    kept = max(width - 1, 2)
    return f"{name[: kept - kept // 2]}…{name[len(name) - kept // 2 :]}"


def _store(request: Request, found: Preview) -> None:
    """Store the runs that are left as planned."""
    from results import Store

    left, record = _left(request, found)
    request.workspace.create()
    with Store(request.workspace.database) as store:
        store.record_dataset(record)
        store.plan(left)


def _left(request: Request, found: Preview) -> tuple[list[RunSpec], DatasetRecord]:
    """The runs to store, and their data set; BenchError where there are none, or not yet."""
    left = [spec for spec in found.specs if spec.key not in found.finished]
    if found.record is not None and left:
        return left, found.record
    raise BenchError(
        f"--store: {'no run is left to do' if found.record is not None else found.unknown}",
        f"type first: bench data features {request.data}, with the same --workspace, --images, --regions or --backbone"
        if found.record is None
        else "leave --store out",
    )


def show_power(
    points: float, seed: float | None, image: float | None, data: str, workspace: Path, db: str | None
) -> None:
    """Print what numbers of seeds detect, from deviations in points that are stated or, where None, stored.

    Raises:
        BenchError: a number makes no sense, or a deviation is neither stated nor stored.
    """
    from harness.data.dataset import SCENES
    from harness.data.scenes.dataset import ScenesConfig
    from harness.measure.estimate import KNOWN
    from results.statistics.power import detectable, seed_deviation_over

    interaction = None
    if seed is not None and image is not None:
        # Known sizes count all evaluated splits, of which the scenes have two.
        images = ScenesConfig().test if data == SCENES else KNOWN[data].test
        sources = [f"Seeds deviate by {seed:g}, images by {image:g} points: as stated."]
    else:
        stored = _stored(data, workspace, db)
        images, sources, interaction = stored.images, _sources(stored, seed, image), stored.interaction_deviation
        seed = stored.seed_deviation if seed is None else seed
        image = stored.image_deviation if image is None else image
        if image is None:
            raise BenchError(
                "how much images vary is not known: one model alone has several stored seeds",
                "state it: --image-deviation 40; or run another model with --seeds 3 first",
            )
    columns = {images: seed}
    if interaction is not None:
        more = MORE_IMAGES * images
        columns[more] = seed_deviation_over(more, seed, interaction, images)
    rows = [
        [f"{seeds}", *(f"{detectable(seeds, many, deviation, image):,.2f}" for many, deviation in columns.items())]
        for seeds in SEEDS
    ]
    typer.echo("The smallest difference of two models that is found four times in five,")
    typer.echo(f"in CIDEr-D points; two-sided 5 %; {data} {SPLIT} has {images:,} images:")
    header = ["Seeds of each model", *(f"{many:,} images" for many in columns)]
    typer.echo(format_table(header, rows, "table"), nl=False)
    for line in (*_verdict(points, images, seed, image), *sources):
        typer.echo(line)


def _verdict(points: float, images: int, seed: float, image: float) -> list[str]:
    from results.statistics.power import MAX_SEEDS, detectable_at_best, least_images, least_seeds

    what = "1 point" if points == 1 else f"{points:g} points"
    needed = least_seeds(points, images, seed, image)
    if needed is not None:
        return [f"{what}: {needed:,} seeds of each model or more."]
    best = detectable_at_best(images, image)
    if best <= points:
        return [f"{what}: more than {MAX_SEEDS:,} seeds of each model."]
    return [
        f"{what}: not with any number of seeds:",
        f"{images:,} images suffice only for {best:,.2f} points; {least_images(points, image):,} would be needed.",
    ]


def _stored(data: str, workspace: Path, db: str | None) -> StoredVariances:
    from results.runs.planning import stored_variances

    try:
        with open_results(workspace, db) as store:
            found = stored_variances(store, data, SPLIT)
    except BenchError as error:
        raise BenchError(str(error), _HINT) from error
    if found is None:
        raise BenchError(
            f"no model in the results database has two seeds on {data} {SPLIT}: how much they vary is not known",
            _HINT,
        )
    return found


def _sources(stored: StoredVariances, seed: float | None, image: float | None) -> list[str]:
    """Where each deviation comes from, and how well stored seeds tell theirs."""
    from results.statistics.power import deviation_bounds

    models = f"{stored.models} stored model{'s' * (stored.models > 1)}, {stored.runs} runs"
    low, high = deviation_bounds(stored.seed_deviation, stored.degrees)
    return [
        f"Seeds deviate by {stored.seed_deviation:.2f} points (95 %: {low:.2f} to {high:.2f}): {models}."
        if seed is None
        else f"Seeds deviate by {seed:g} points: as stated.",
        f"Seed and image together deviate by {stored.interaction_deviation:.2f} points; this part falls with images.",
        f"Images deviate by {stored.image_deviation or 0.0:.2f} points: {models}."
        if image is None
        else f"Images deviate by {image:g} points: as stated.",
    ]


COMMAND = with_run_options(plan)
