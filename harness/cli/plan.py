"""`bench plan`: what a run would do and about what it would take, before anything starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.benchmark.engines import HERE
from harness.cli.inputs import doing, open_results
from harness.cli.options import RunOptions, refuse_typed, with_run_options
from harness.cli.output import echo, format_table
from harness.cli.run import make_request
from harness.config.limits import MAX_CHANNELS, MAX_REGIONS
from harness.utils.errors import BenchError
from harness.utils.files import disk_of, expanded
from harness.utils.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

    from harness.benchmark.plan import Asked, Request
    from harness.benchmark.preview import Estimate, Preview
    from harness.data.dataset import Dataset
    from harness.measure.estimate import DataShape
    from results.runs.run import DatasetInfo

EXAMPLES = """
bench plan
bench plan --models expansionnet_v2,transformer_base --preset matched-width-scst --data coco --seeds 3
bench plan --models 'updown,aoanet' --preset small --data flickr8k/ --backbone resnet50
bench plan --models all --data dataset_coco.json --preset matched-width --seeds 5 --store
bench plan --detect 1.0 --workspace workspace
bench plan --detect 1.0 --data coco --seed-deviation 0.5 --image-deviation 60
"""

_SEEN = (
    *("images", "backbone", "backbone_weights", "backbone_option", "image_size", "normalisation", "skip_bad_images"),
    *("regions", "region_count", "region_bins", "graphs", "graph_words", "graph_labels", "sentence_graphs"),
)
SEEDS = (2, 3, 5, 10, 20)
MORE_IMAGES = 4
_POINTS: dict[str, Any] = {"metavar": "POINTS", "min": 0.01, "max": 1000.0}
"""From the last digit of CIDEr-D points that is shown to the highest score that there is."""
SPLIT = "test"
_HINT = "state both: --seed-deviation 5 --image-deviation 40; or run two models with --seeds 3 first"
_SOURCES = {
    "stored": "as stored runs of these conditions took, all of their work included",
    "measured": "measured on {device} here for a moment",
}


def plan(
    options: RunOptions,
    context: typer.Context,
    cells: Annotated[int | None, typer.Option(min=1, max=MAX_REGIONS, help="Grid cells or regions an image.")] = None,
    channels: Annotated[int | None, typer.Option(min=1, max=MAX_CHANNELS, help="Channels of the features.")] = None,
    store: Annotated[bool, typer.Option("--store", help="Store the runs as planned, for bench work.")] = False,
    detect: Annotated[
        float | None,
        typer.Option(**_POINTS, help="Instead: how many seeds and images tell a difference in CIDEr-D points apart."),
    ] = None,
    seed_deviation: Annotated[
        float | None, typer.Option(**_POINTS, help="For --detect: of a model's seeds. Without it, that of stored runs.")
    ] = None,
    image_deviation: Annotated[
        float | None,
        typer.Option(
            **_POINTS, help="For --detect: of two models' paired differences by image. Without it, as stored."
        ),
    ] = None,
) -> None:
    """Show what bench run with the same options would do, with an estimate of time and disk; nothing is started.

    Finished runs that would be re-used are counted. Multiply-accumulates are counted. Time is an estimate: what stored
    runs of these conditions took, or counts over a speed that is measured here in a moment. --data may also be coco,
    flickr30k or flickr8k where there are no such data: their sizes are known. --detect, --seed-deviation and
    --image-deviation look at --data, --images, --workspace and --db alone; --data may also be the name of stored data.
    """
    from harness.measure.estimate import KNOWN

    if detect is not None:
        used = {"data", "images", "detect", "seed_deviation", "image_deviation", "workspace", "db"}
        why = "not used by --detect, which is about scores alone"
        refuse_typed(context, sorted({*context.params} - used), why, "leave --detect or these out")
        show_power(detect, seed_deviation, image_deviation, options)
        return
    why, deviations = "what a difference is told from, but none is asked for", ("seed_deviation", "image_deviation")
    refuse_typed(context, deviations, why, "add --detect 1.0, for example")
    # What models see may be stated before the features are here, whether or not the data are.
    stated = cells and channels and options.backbone is None and options.regions is None
    here = options.data == "scenes" or (expanded(options.data).exists() and not (stated and options.data in KNOWN))
    if not here and options.data not in KNOWN:
        hint = f"name a folder or file as for bench run, or one of: {', '.join(KNOWN)}"
        raise BenchError(f"--data {options.data} does not exist, and the sizes of this data set are unknown", hint)
    if not here:
        why = f"not read, since of {options.data} the sizes alone are looked at"
        hint = "say what models see by --cells and --channels, or name data that are here: --data FOLDER"
        refuse_typed(context, (*_SEEN, "store"), why, hint)
    if store:
        more, hint = (
            ("more_metrics", "clip", "bert", "instances"),
            "leave it out; the same bench run adds it afterwards",
        )
        refuse_typed(context, more, "what bench work does not compute", hint)
    # What bench work executes is alone in its process, and several of these see by themselves what the cores do beside.
    from rich.console import Console

    from harness.utils.progress import Reporter

    console = Console(highlight=False)
    with Reporter(console) as reporter:
        with reporter.step("Loading torch"):
            request = make_request(replace(options, jobs="1") if store else options, by_size=not here)
            from harness.benchmark.plan import resolve
            from harness.benchmark.preview import estimates, preview
            from results import Store
        with reporter.step("Planning the runs"):
            asked = resolve(request, reporter)
            found = preview(request, asked, reporter, here=here)
        left = [spec for spec in found.specs if spec.key not in found.finished]
        if store and found.record is None:
            looks, regions = request.features, request.features.regions
            seen = f"--backbone {looks.backbone}" + (f" --regions {regions.source}" if regions else "")
            hint = f"type first: bench data features {request.data} {seen}, with the same --workspace and --images"
            raise BenchError(f"--store: {found.unknown}", hint)
        if store and request.rerun:
            raise BenchError("--store: bench work re-uses what is finished", "leave --reuse none out")
        if store and not left:
            raise BenchError("--store: no run is left to do", "leave --store out")
        shape = replace(found.shape, cells=cells or found.shape.cells, channels=channels or found.shape.channels)
        taken = estimates(request, asked, found, shape, reporter, elsewhere=(options.on != HERE or store))
    _show(request, asked, found, shape, taken, console)
    if store and found.record is not None:
        request.workspace.create()
        with Store(request.workspace.database) as results:
            results.record_dataset(found.record)
            results.plan(left)
            known = results.progress([spec.key for spec in left])
        ended = [key for key, run in known.items() if run.status in {"failed", "skipped"}]
        console.print("the runs are stored as planned; bench work executes them", soft_wrap=True)
        if ended:
            console.print(
                f"{len(ended)} ended before and need their names: bench work {' '.join(ended)}", soft_wrap=True
            )


def _row(model: str, budget: int) -> str:
    """How the table names a model under a budget, as signatures name the schedule: `updown*2`."""
    return model if budget == 1 else f"{model}*{budget}"


def _show(
    request: Request, asked: Asked, found: Preview, shape: DataShape, taken: Sequence[Estimate], console: Console
) -> None:
    """Print what is made first, the stages, the table of runs, and what all of them take."""
    from harness.measure.estimate import feature_bytes, run_bytes
    from results.records import budget_of

    say = partial(console.print, soft_wrap=True, markup=False)
    names = [model.name for model in asked.models if model.kind == "trained"]
    others = [model.name for model in asked.models if model.kind != "trained"]
    if found.specs and "human" not in {spec.model for spec in found.specs}:
        others = [name for name in others if name != "human"]  # left out, as the note says
    seeds, first, budgets = request.seeds, request.first_seed, request.budgets
    runs = Counter({_row(name, budget): seeds for budget in budgets for name in names}) + Counter(others)
    done = Counter(_row(spec.model, budget_of(spec.config)) for spec in found.specs if spec.key in found.finished)
    for what in found.first:
        say(f"first: {what}")
    if found.unknown:
        say(f"re-used: not known, {found.unknown}")
        if names:
            counts, schedule = (shape.train, round(shape.train * shape.captions)), request.preset.schedule
            for warning in schedule.idle_stages(*counts):
                say(warning, style="yellow")
    for each in taken[: len(budgets)]:
        for stage in each.stages:
            epochs = f"{stage.epochs:,} epoch{'s' * (stage.epochs != 1)}"
            sizes = f"{epochs}, {stage.steps:,} steps, {stage.images:,} images"
            say(f"stage {_row(stage.stage, each.budget)}: {sizes}")
    by_row = {_row(each.model, each.budget): each for each in taken}
    _print_table(by_row, runs, done, console, known=not found.unknown)
    total, untrained = runs.total(), f", rows without training {len(others)}" if others else ""
    which = "" if not first else f" ({first})" if seeds == 1 else f" ({first} to {first + seeds - 1})"
    what = "run" if total == 1 else "runs"
    under = "" if budgets == (1,) else f", budgets {', '.join(map(str, budgets))}"
    console.print(f"{total} {what}: models {len(names)}, seeds {seeds}{which}{under}{untrained}")
    if not found.unknown:
        console.print(f"{done.total()} finished before and re-used, {total - done.total()} to do")
    left = {row: runs[row] - done[row] for row in by_row}
    features = feature_bytes(shape.train + shape.val + shape.test, shape.cells, shape.channels)
    disk = features + sum(left[row] * run_bytes(each.parameters) for row, each in by_row.items())
    root, free = disk_of(request.workspace.root)
    console.print(
        f"disk: about {disk / 1e9:.2f} GB in {request.workspace.root}: features of {shape.cells} x {shape.channels} "
        f"once, weights and checkpoints; {free / 1e9:.1f} GB are free at {root}"
    )
    to_do = {row: each for row, each in by_row.items() if left[row]}
    if by_row and not to_do:
        console.print("time: none to train")
    _print_time(to_do, left, request.execution.devices, asked.opening.device, console)


def _print_table(
    taken: Mapping[str, Estimate], runs: Counter[str], done: Counter[str], console: Console, *, known: bool
) -> None:
    """A line a row of the benchmark: runs to do and re-used ones, and what one run of a trained model takes."""
    from reports.tables.numbers import count, macs
    from reports.text.grid import Grid

    def shortened(name: str, width: int) -> str:
        """A name in so many columns: its middle is left out, since variants differ at their ends."""
        kept = max(width - 1, 2)
        return name if len(name) <= width else f"{name[: kept - kept // 2]}…{name[len(name) - kept // 2 :]}"

    header, rows = ("Model", "New", "Re-used", "Parameters", "Work", "Time"), []
    for name, number in runs.items():
        told = ("-", "-", "-")
        if (each := taken.get(name)) is not None:
            seconds = "-" if each.seconds is None else _span(*map(_rough, each.seconds))
            told = (count(each.parameters), macs(each.work), seconds)
        rows.append((name, f"{number - done[name]}", f"{done[name]}" if known else "?", *told))
    numbers = sum(2 + max(map(len, column)) for column in list(zip(header, *rows, strict=True))[1:])
    # A name alone may be cut, so that a model has one line and every number is whole.
    console.print(Grid(header, [(shortened(name, console.width - numbers), *told) for name, *told in rows]).rich())
    console.print("Work and time are of one run: training, validation and captioning.")


def _print_time(
    taken: Mapping[str, Estimate], left: Mapping[str, int], devices: int, device: str, console: Console
) -> None:
    """The time of all runs that are left, one after the other, what it is told from, and why it cannot be told."""
    from harness.benchmark.preview import MOMENT_IMAGES

    if known := [(left[row], each.seconds) for row, each in taken.items() if each.seconds is not None]:
        span = [sum(count * seconds[end] for count, seconds in known) for end in (0, 1)]
        sources = Counter(each.told for each in taken.values() if each.seconds is not None)
        told = "; ".join(
            _SOURCES[source].format(device=device) + f" ({number} models)" * (len(sources) > 1)
            for source, number in sources.items()
        )
        hours = _span(*(f"{seconds * devices / 3600:,.2f}" for seconds in span))
        times = _span(*map(_rough, span))
        console.print(f"an ESTIMATE of {hours} device-hours ({times} on {devices}), {told}; one model at a time")
        if "measured" in sources:
            console.print(
                f"The least: every step takes as long as one of {MOMENT_IMAGES} images, as where a GPU waits for small "
                "models. The most: all work at the rate of these, as on a processor. Extraction of features, scoring "
                "and waiting for data come on top."
            )
    unknown: dict[str, list[str]] = {}
    for row, each in taken.items():
        if each.seconds is None:
            unknown.setdefault(each.told, []).append(row)
    for why, rows in unknown.items():
        of = f" of {', '.join(rows)}" if len(rows) < len(taken) else ""
        console.print(f"time{of}: not estimated, {why}", soft_wrap=True)


def _span(least: str, most: str) -> str:
    return least if least == most else f"{least} – {most}"


def _rough(seconds: float) -> str:
    """A duration as exact as an estimate is."""
    for unit, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 3 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def _images_to_test(options: RunOptions) -> tuple[str, int]:
    """The name of `--data`, and how many images its test split has, by its known size or by its files."""
    from harness.data.dataset import SCENES
    from harness.data.scenes.dataset import ScenesConfig
    from harness.measure.estimate import KNOWN

    if options.data == SCENES:  # whose known size counts both evaluated splits
        return SCENES, ScenesConfig().test
    if options.data in KNOWN:
        return options.data, KNOWN[options.data].test
    if not expanded(options.data).exists():
        hint = f"name a folder or file as for bench run, or one of: {', '.join(KNOWN)}"
        raise BenchError(f"--data {options.data} does not exist, and the sizes of this data set are unknown", hint)
    dataset = _open_data(options)
    return dataset.name, len(dataset.split(SPLIT))


def _open_data(options: RunOptions) -> Dataset:
    from harness.data.dataset import open_dataset

    cache = Workspace(options.workspace, options.db).cache
    with doing(f"Reading {options.data}"):
        return open_dataset(options.data, cache_dir=cache, images=options.images)


@dataclass(frozen=True)
class _StoredData:
    """A data set of the results: what finds its runs (`key`), its name, and a remark where its files are others."""

    key: str
    name: str
    remark: str = ""


def _stored_data(options: RunOptions, stored: Sequence[DatasetInfo]) -> _StoredData:
    """The data set of the results that `--data` names, by its name there or by its files."""
    from harness.data.dataset import SCENES

    names = dict.fromkeys(dataset.name for dataset in stored)
    if options.data in names or options.data == SCENES or not stored:
        return _StoredData(options.data, options.data)
    if not expanded(options.data).exists():
        hint = f"write --data as reports name it: {', '.join(names)}" if names else _HINT
        raise BenchError(f"--data {options.data} is neither data of the results database nor a file or folder", hint)
    from harness.benchmark.identity.signature import data_field

    dataset = _open_data(options)
    fingerprint = data_field(dataset, ())
    for info in stored:
        if info.fingerprint == fingerprint or info.fingerprint.startswith(f"{fingerprint},"):
            return _StoredData(info.fingerprint, dataset.name)
    remark = "The stored runs are of data of this name with other pictures or captions."
    return _StoredData(dataset.name, dataset.name, remark)


def show_power(points: float, seed: float | None, image: float | None, options: RunOptions) -> None:
    """Print what numbers of seeds detect, from deviations in points that are stated or, where None, stored."""
    from results.runs.planning import stored_variances
    from results.runs.reading import datasets
    from results.statistics.power import detectable, deviation_bounds, seed_deviation_over

    if seed is not None and image is not None:
        name, images = _images_to_test(options)
        columns = {images: seed}
        sources = [f"Seeds deviate by {seed:g}, images by {image:g} points: as stated."]
    else:
        try:
            store = open_results(options.workspace, options.db)
        except BenchError as error:
            raise BenchError(str(error), _HINT) from error
        with store:
            data = _stored_data(options, datasets(store))
            stored = stored_variances(store, data.key, SPLIT)
        name = data.name
        if stored is None:
            where = f"in the results database has two seeds on {name} {SPLIT}"
            raise BenchError(f"no model {where}: how much they vary is not known", _HINT)
        if image is None and stored.image_deviation is None:
            hint = "state it: --image-deviation 40; or run another model with --seeds 3 first"
            raise BenchError("how much images vary is not known: one model alone has several stored seeds", hint)
        images, together = stored.images, stored.interaction_deviation
        models = f"{stored.models} stored model{'s' * (stored.models > 1)}, {stored.runs} runs"
        of_seeds, of_images = (f"{what:g} points: as stated" if what else "" for what in (seed, image))
        if seed is None:
            seed = stored.seed_deviation
            low, high = deviation_bounds(seed, stored.degrees)
            of_seeds = f"{seed:.2f} points (95 %: {low:.2f} to {high:.2f}): {models}"
        if image is None:
            image = stored.image_deviation or 0.0
            of_images = f"{image:.2f} points: {models}"
        sources = [
            f"Seeds deviate by {of_seeds}.",
            f"Seed and image together deviate by {together:.2f} points; this part falls with images.",
            f"Images deviate by {of_images}.",
        ]
        if data.remark:
            sources.append(data.remark)
        more = MORE_IMAGES * images
        columns = {images: seed, more: seed_deviation_over(more, seed, together, images)}
    rows = []
    for seeds in SEEDS:
        least = (detectable(seeds, many, deviation, image) for many, deviation in columns.items())
        rows.append([f"{seeds}", *(f"{each:,.2f}" for each in least)])
    echo("The smallest difference of two models that is found four times in five,")
    echo(f"in CIDEr-D points; two-sided 5 %; {name} {SPLIT} has {images:,} images:")
    header = ["Seeds of each model", *(f"{many:,} images" for many in columns)]
    echo(format_table(header, rows, "table"), nl=False)
    for line in (_verdict(points, images, seed, image), *sources):
        echo(line)


def _verdict(points: float, images: int, seed: float, image: float) -> str:
    from results.statistics.power import MAX_SEEDS, detectable_at_best, least_images, least_seeds

    what = "1 point" if points == 1 else f"{points:g} points"
    if (needed := least_seeds(points, images, seed, image)) is not None:
        return f"{what}: {needed:,} seeds of each model or more."
    if (best := detectable_at_best(images, image)) <= points:
        return f"{what}: more than {MAX_SEEDS:,} seeds of each model."
    many = f"{images:,} images suffice only for {best:,.2f} points; {least_images(points, image):,} would be needed."
    return f"{what}: not with any number of seeds:\n{many}"


COMMAND = with_run_options(plan)
