"""`bench plan`: what a run would do, before anything starts."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import options
from harness.cli.experiments import experiment_of
from harness.cli.inputs import doing, open_results
from harness.cli.options import refuse_typed
from harness.cli.output import echo, format_table
from harness.cli.run import make_benchmark
from harness.config.experiment import DEFAULT_DATA, DEFAULT_PRESET, PRESET_OF_SCENES, Experiment
from harness.executors import HERE
from harness.utils.errors import BenchError
from harness.utils.files import expanded
from harness.utils.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from rich.console import Console

    from harness.benchmark.plan import Benchmark, Resolved
    from harness.benchmark.preview import Preview
    from harness.data.dataset import Dataset
    from results.records import RunSpec
    from results.runs.run import DatasetInfo

EXAMPLES = """
bench plan
bench plan --models expansionnet_v2,transformer_base --preset matched-width-scst --data coco --seeds 3
bench plan --models 'updown,aoanet' --preset small --data flickr8k/ --backbone resnet50
bench plan --models all --data dataset_coco.json --preset matched-width --seeds 5 --store
bench plan --detect 1.0 --workspace workspace
bench plan --detect 1.0 --data coco --seed-deviation 0.5 --image-deviation 60
"""

_READ_FROM_DATA = (
    "images",
    "backbone",
    "backbone_weights",
    "backbone_option",
    "image_size",
    "normalisation",
    "skip_bad_images",
    "regions",
    "region_count",
    "graphs",
    "limit",
)
"""Options without effect where only the sizes of a data set are known."""
SEEDS = (2, 3, 5, 10, 20)
"""Rows of the table of --detect."""
IMAGES_FACTOR = 4
"""The table of --detect also has a column for so many times the images."""
_USUAL_SEEDS = (3, 5)
_POINTS: dict[str, Any] = {"metavar": "POINTS", "min": 0.01, "max": 1000.0}
"""From the smallest difference in CIDEr-D points that is printed to the highest possible score."""
SPLIT = "test"
_HINT = "give both: --seed-deviation 5 --image-deviation 40; or run two models with --seeds 3 first"


def plan(
    context: typer.Context,
    file: options.ExperimentArgument = None,
    models: options.RowsOption = "all",
    pretrained: options.PretrainedOption = None,
    cards: options.CardsOption = None,
    allow_subset: options.AllowSubsetOption = False,
    plugin: options.PluginOption = None,
    data: options.DataOption = DEFAULT_DATA,
    images: options.ImagesOption = None,
    skip_bad_images: options.SkipBadImagesOption = False,
    limit: options.LimitOption = None,
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
    seeds: options.SeedsOption = None,
    first_seed: options.FirstSeedOption = 0,
    budgets: options.BudgetsOption = "1",
    tuned: options.TunedOption = None,
    precision: options.PrecisionOption = "auto",
    log: options.TrackerOption = None,
    device: options.DeviceOption = "auto",
    devices: options.DevicesOption = None,
    jobs: options.JobsOption = "auto",
    executor: options.ExecutorOption = "here",
    cpus_per_run: options.CpusOption = None,
    gpus_per_run: options.GpusOption = None,
    memory_per_run: options.MemoryOption = None,
    hours_per_run: options.HoursOption = None,
    workspace: options.WorkspaceOption = DEFAULT,
    db: options.DatabaseOption = None,
    hub: options.HubOption = None,
    more_metrics: options.MoreMetricsOption = False,
    clip: options.ClipOption = None,
    bert: options.BertOption = None,
    instances: options.InstancesOption = None,
    reuse: options.ReuseOption = "same",
    store: Annotated[bool, typer.Option("--store", help="Store the runs as planned, for bench work.")] = False,
    detect: Annotated[
        float | None,
        typer.Option(
            **_POINTS, help="Instead: how many seeds and images detect a difference of so many CIDEr-D points."
        ),
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
    """Show what bench run with the same options would do; nothing is started.

    Finished runs that would be re-used are counted. Times are those of stored runs of the same model and preset on
    this kind of machine. --data may also be coco, flickr30k or flickr8k without the data: their sizes are known.
    --detect, --seed-deviation and --image-deviation use only --data, --images, --workspace and --db; --data may then
    also be the name of stored data.
    """
    from harness.data.known_sizes import KNOWN_SIZES

    experiment = experiment_of(context, file)
    data = experiment.data.annotations
    if detect is not None:
        used = {"file", "data", "images", "detect", "seed_deviation", "image_deviation", "workspace", "db"}
        unused = sorted({*context.params} - used)
        refuse_typed(context, unused, "not used by --detect, which is about scores alone", "leave them or --detect out")
        show_power(detect, seed_deviation, image_deviation, experiment)
        return
    refuse_typed(context, ("seed_deviation", "image_deviation"), "only used by --detect", "add --detect 1.0")
    here = data in PRESET_OF_SCENES or expanded(data).exists()
    if not here and data not in KNOWN_SIZES:
        raise _unknown_data(data)
    if not here:
        reason = f"not used, since only the sizes of {data} are known here"
        refuse_typed(context, (*_READ_FROM_DATA, "store"), reason, "leave it out, or give the data: --data FOLDER")
    if store:
        reason = "not computed by bench work"
        hint = "leave it out; run the same bench run afterwards to add it"
        refuse_typed(context, ("more_metrics", "clip", "bert", "instances"), reason, hint)
        if experiment.metrics.any:
            raise BenchError(f"metrics: {reason}", hint)
    from rich.console import Console

    from harness.utils.progress import Reporter

    console = Console(file=sys.stdout, highlight=False)
    with Reporter(console) as reporter:
        with reporter.step("Loading torch"):
            benchmark = make_benchmark(_with_one_job(experiment) if store else experiment, by_size=not here)
            from harness.benchmark.plan import resolve
            from harness.benchmark.preview import preview
            from harness.measure.environment import describe_environment
            from results.runs.spreads import machine_of
        with reporter.step("Planning the runs"):
            resolved = resolve(benchmark, reporter)
            machine = None
            if experiment.execution.executor == HERE and not store:
                machine = machine_of(describe_environment(resolved.conditions.execution.device), "trained")
            planned = preview(benchmark, resolved, reporter, here=here, machine=machine)
        new = [spec for spec in planned.specs if spec.key not in planned.finished]
        if store:
            _check_store(benchmark, planned, new)
    _show(benchmark, resolved, planned, machine, console)
    if store:
        _store(benchmark.workspace, planned, new, console)


def _unknown_data(data: str) -> BenchError:
    """The error for data that are neither here nor of known sizes."""
    from harness.data.known_sizes import KNOWN_SIZES

    return BenchError(
        f"--data {data} does not exist, and the sizes of this data set are unknown",
        f"name a folder or file as for bench run, or one of: {', '.join(KNOWN_SIZES)}",
    )


def _check_store(benchmark: Benchmark, planned: Preview, new: Sequence[RunSpec]) -> None:
    """BenchError if `--store` cannot store the `new` runs, or there are none."""
    if planned.record is None:
        raise BenchError(
            f"--store: {planned.unknown}",
            f"first run: {_features_command(benchmark)}, with the same --workspace and --images",
        )
    if benchmark.rerun:
        raise BenchError("--store: bench work re-uses finished runs", "leave --reuse none out")
    if not new:
        raise BenchError("--store: all runs are finished", "leave --store out")


def _features_command(benchmark: Benchmark) -> str:
    """The command that extracts the benchmark's features."""
    features = benchmark.features
    words = ["bench", "data", "features", benchmark.experiment.data.annotations, "--backbone", features.backbone]
    options = {
        "--backbone-weights": features.weights,
        "--image-size": features.image_size,
        "--normalisation": features.normalisation,
        "--regions": features.regions and features.regions.source,
    }
    for option, value in options.items():
        if value is not None:
            words += [option, str(value)]
    for name, value in features.options.items():
        words += ["--backbone-option", f"{name}={value}"]
    return shlex.join(words)


def _store(workspace: Workspace, planned: Preview, new: Sequence[RunSpec], console: Console) -> None:
    """Store the `new` runs as planned, for `bench work`."""
    from results import Store

    assert planned.record is not None
    workspace.create()
    with Store(workspace.database) as results:
        results.record_dataset(planned.record)
        results.plan(new)
        progress = results.progress([spec.key for spec in new])
    ended = [key for key, run in progress.items() if run.status in {"failed", "skipped"}]
    console.print("the runs are stored as planned; bench work executes them", soft_wrap=True)
    if ended:
        console.print(
            f"{len(ended)} failed or were skipped before; to try them again, name them: bench work {' '.join(ended)}",
            soft_wrap=True,
        )


def _with_one_job(experiment: Experiment) -> Experiment:
    """The experiment with one job: `bench work` executes one run at a time, so its captioning can be timed."""
    return experiment.model_copy(update={"execution": experiment.execution.model_copy(update={"jobs": 1})})


def _row_name(model: str, budget: int) -> str:
    """The table's name of a model under a budget, as signatures name the schedule: `updown*2`."""
    return model if budget == 1 else f"{model}*{budget}"


def _show(benchmark: Benchmark, resolved: Resolved, planned: Preview, machine: str | None, console: Console) -> None:
    """Print what is prepared first, the stages, the table of runs, their time and their power."""
    from harness.config.run import config_of

    names = [model.name for model in resolved.models if model.kind == "trained"]
    others = [model.name for model in resolved.models if model.kind != "trained"]
    if planned.specs and "human" not in {spec.model for spec in planned.specs}:
        others = [name for name in others if name != "human"]  # a note said that it is left out
    seeds = benchmark.seeds
    budgets = benchmark.experiment.budgets
    trained = {_row_name(name, budget): (name, budget) for budget in budgets for name in names}
    runs = Counter(dict.fromkeys(trained, seeds)) + Counter(others)
    finished = [spec for spec in planned.specs if spec.key in planned.finished]
    done = Counter(_row_name(spec.model, config_of(spec).made_from.budget) for spec in finished)
    for line in planned.first:
        console.print(f"first: {line}", soft_wrap=True, markup=False)
    if planned.unknown:
        console.print(f"re-used: unknown, {planned.unknown}", soft_wrap=True, markup=False)
    if names:
        _show_stages(benchmark, planned, console)
    seconds = {row: planned.seconds[key] for row, key in trained.items() if key in planned.seconds}
    _print_table(runs, done, seconds, console, known=not planned.unknown)
    total = runs.total()
    summary = f"{total} run: " if total == 1 else f"{total} runs: "
    summary += f"models {len(names)}, seeds {seeds}"
    if first := benchmark.experiment.first_seed:
        summary += f" ({first})" if seeds == 1 else f" ({first} to {first + seeds - 1})"
    if budgets != (1,):
        summary += f", budgets {', '.join(map(str, budgets))}"
    if others:
        summary += f", rows without training {len(others)}"
    console.print(summary)
    if not planned.unknown:
        console.print(f"{done.total()} finished before and re-used, {total - done.total()} to do")
    _print_time({row: runs[row] - done[row] for row in trained}, seconds, machine, console)
    _print_power(seeds, planned, console)


def _show_stages(benchmark: Benchmark, planned: Preview, console: Console) -> None:
    """Print the length of all stages under each budget, and warnings of learning rates that stay near zero."""
    images = planned.images
    captions = planned.captions
    if planned.unknown:  # otherwise planning has warned
        for warning in benchmark.preset.schedule.idle_stages(images, captions):
            console.print(warning, soft_wrap=True, markup=False, style="yellow")
    for budget in benchmark.experiment.budgets:
        for stage in benchmark.preset.schedule.times(budget).stages:
            epochs = "1 epoch" if stage.epochs == 1 else f"{stage.epochs:,} epochs"
            steps = stage.steps_per_epoch(images, captions) * stage.epochs
            presented = stage.images_per_epoch(images, captions) * stage.epochs
            sizes = f"{epochs}, {steps:,} steps, {presented:,} images"
            console.print(f"stage {_row_name(stage.name, budget)}: {sizes}", soft_wrap=True, markup=False)


def _print_table(
    runs: Counter[str], done: Counter[str], seconds: Mapping[str, float], console: Console, *, known: bool
) -> None:
    """Print, for each row of the benchmark, the new and the re-used runs, and how long one stored run took."""
    from reports.text.grid import Grid

    def shortened(name: str, width: int) -> str:
        """A name in so many columns: its middle is left out, since variants differ at their ends."""
        if len(name) <= width:
            return name
        kept = max(width - 1, 2)
        return f"{name[: kept - kept // 2]}…{name[len(name) - kept // 2 :]}"

    header = ("Model", "New", "Re-used", "Time of a run")
    rows = []
    for name, count in runs.items():
        reused = f"{done[name]}" if known else "?"
        time = _describe_roughly(seconds[name]) if name in seconds else "-"
        rows.append((name, f"{count - done[name]}", reused, time))
    # On a narrow terminal only names are shortened, so that each model has one line.
    _, *other_columns = zip(header, *rows, strict=True)
    name_width = console.width - sum(2 + max(map(len, column)) for column in other_columns)
    console.print(Grid(header, [(shortened(name, name_width), *cells) for name, *cells in rows]).rich())


def _print_time(counts: Mapping[str, int], seconds: Mapping[str, float], machine: str | None, console: Console) -> None:
    """Print how long the runs that are left take one after the other; `counts` are their numbers by row."""
    if not counts:
        return
    to_do = {row: count for row, count in counts.items() if count}
    if not to_do:
        console.print("time: nothing to train")
        return
    known = {row: count * seconds[row] for row, count in to_do.items() if row in seconds}
    unknown = [row for row in to_do if row not in seconds]
    where = "" if machine is None else f" on {machine or 'this machine'}"
    if not known:
        console.print(f"time: unknown, no such run{where} is stored")
        return
    total = _describe_roughly(sum(known.values()))
    console.print(f"time: {total} one run after the other, by stored runs{where}")
    if unknown:
        console.print(f"time of {', '.join(unknown)}: unknown", soft_wrap=True)


def _print_power(seeds: int, planned: Preview, console: Console) -> None:
    """Print the smallest difference of two models that several numbers of seeds detect, by stored variances."""
    from results.statistics.power import detectable

    stored = planned.variances
    if stored is None or stored.image_deviation is None:
        console.print("power: unknown until two models besides blind have two seeds each", soft_wrap=True)
        return
    counts = sorted({*_USUAL_SEEDS, max(seeds, 2)})
    points = [detectable(count, stored.images, stored.seed_deviation, stored.image_deviation) for count in counts]
    text = f"{counts[0]} seeds and {stored.images:,} images detect {points[0]:.1f} points of CIDEr-D"
    for count, difference in zip(counts[1:], points[1:], strict=True):
        text += f", {count} seeds {difference:.1f}"
    console.print(f"power: {text}", soft_wrap=True)


def _describe_roughly(seconds: float) -> str:
    """A duration in one unit, rounded."""
    for unit, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 3 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def _images_to_test(experiment: Experiment) -> tuple[str, int]:
    """The name of `--data` and the number of its test images, from its known sizes or its files."""
    from harness.data.known_sizes import KNOWN_SIZES
    from harness.data.scenes.dataset import SCENES

    if experiment.data.annotations in SCENES:  # whose known size counts both evaluated splits
        return experiment.data.annotations, SCENES[experiment.data.annotations].test
    if experiment.data.annotations in KNOWN_SIZES:
        return experiment.data.annotations, KNOWN_SIZES[experiment.data.annotations].test
    if not expanded(experiment.data.annotations).exists():
        raise _unknown_data(experiment.data.annotations)
    dataset = _open_data(experiment)
    return dataset.name, len(dataset.split(SPLIT))


def _open_data(experiment: Experiment) -> Dataset:
    from harness.data.opening import open_dataset

    cache = Workspace(experiment.workspace, experiment.db).cache
    with doing(f"Reading {experiment.data.annotations}"):
        return open_dataset(experiment.data.annotations, cache_dir=cache, images=experiment.data.images)


@dataclass(frozen=True)
class _StoredData:
    """A data set of the results.

    Attributes:
        key: name or fingerprint that its runs are selected by.
        remark: a sentence for the reader where the stored data differ from those of `--data`.
    """

    key: str
    name: str
    remark: str = ""


def _stored_data(experiment: Experiment, stored: Sequence[DatasetInfo]) -> _StoredData:
    """The data set of the results that `--data` names, by its name there or by its files."""
    names = dict.fromkeys(dataset.name for dataset in stored)
    if experiment.data.annotations in {*names, *PRESET_OF_SCENES} or not stored:
        return _StoredData(experiment.data.annotations, experiment.data.annotations)
    if not expanded(experiment.data.annotations).exists():
        hint = f"use the data set's name: --data {' or '.join(names)}" if names else _HINT
        raise BenchError(
            f"--data {experiment.data.annotations} is neither in the results database nor a file or folder", hint
        )
    from harness.benchmark.signature import data_field

    dataset = _open_data(experiment)
    fingerprint = data_field(dataset, ())
    for info in stored:
        if info.fingerprint == fingerprint or info.fingerprint.startswith(f"{fingerprint},"):
            return _StoredData(info.fingerprint, dataset.name)
    remark = "The stored runs are on data of the same name with other pictures or captions."
    return _StoredData(dataset.name, dataset.name, remark)


def show_power(points: float, seed: float | None, image: float | None, experiment: Experiment) -> None:
    """Print which differences various numbers of seeds detect.

    Args:
        points: the difference in CIDEr-D points that the last lines are about.
        seed: the standard deviation of a model's seeds, in points; None: that of stored runs.
        image: the standard deviation of two models' paired differences by image, in points; None: that of stored runs.
    """
    from results.statistics.power import detectable

    if seed is not None and image is not None:
        name, images = _images_to_test(experiment)
        seed_deviations = {images: seed}
        sources = [f"Seeds deviate by {seed:g}, images by {image:g} points: as given."]
    else:
        name, images, seed_deviations, image, sources = _stored_deviations(seed, image, experiment)
    rows = []
    for seeds in SEEDS:
        differences = [detectable(seeds, count, deviation, image) for count, deviation in seed_deviations.items()]
        rows.append([f"{seeds}", *(f"{difference:,.2f}" for difference in differences)])
    echo("The smallest difference of two models that is found four times in five,")
    echo(f"in CIDEr-D points; two-sided 5 %; {name} {SPLIT} has {images:,} images:")
    header = ["Seeds of each model", *(f"{count:,} images" for count in seed_deviations)]
    echo(format_table(header, rows, "table"), nl=False)
    echo(_verdict(points, images, seed_deviations[images], image))
    for line in sources:
        echo(line)


def _stored_deviations(
    seed: float | None, image: float | None, experiment: Experiment
) -> tuple[str, int, dict[int, float], float, list[str]]:
    """Deviations of stored runs, where `seed` or `image` does not give them.

    Returns:
        The data set's name, its test images, the deviation of seeds by number of images, that of images, and sentences
        that say where they come from.
    """
    from results.runs.planning import stored_variances
    from results.runs.reading import datasets
    from results.statistics.power import deviation_bounds, seed_deviation_over

    try:
        store = open_results(experiment.workspace, experiment.db)
    except BenchError as error:
        raise BenchError(str(error), _HINT) from error
    with store:
        data = _stored_data(experiment, datasets(store))
        stored = stored_variances(store, data.key, SPLIT)
    if stored is None:
        raise BenchError(f"the results database has no model with two seeds on {data.name} {SPLIT}", _HINT)
    if image is None and stored.image_deviation is None:
        raise BenchError(
            "the deviation of images needs two models with several stored seeds",
            "give it: --image-deviation 40; or run another model with --seeds 3 first",
        )
    models = "1 stored model" if stored.models == 1 else f"{stored.models} stored models"
    models += f", {stored.runs} runs"
    if seed is None:
        seed = stored.seed_deviation
        low, high = deviation_bounds(seed, stored.degrees)
        seed_source = f"{seed:.2f} points (95 %: {low:.2f} to {high:.2f}): {models}"
    else:
        seed_source = f"{seed:g} points: as given"
    if image is None:
        image = stored.image_deviation or 0.0
        image_source = f"{image:.2f} points: {models}"
        if image == 0:
            image_source = f"0 points (too small to estimate): {models}"
    else:
        image_source = f"{image:g} points: as given"
    together = stored.interaction_deviation
    sources = [
        f"Seeds deviate by {seed_source}.",
        f"Seed and image together deviate by {together:.2f} points; more images lower this.",
        f"Images deviate by {image_source}.",
    ]
    if data.remark:
        sources.append(data.remark)
    more_images = IMAGES_FACTOR * stored.images
    seed_deviations = {
        stored.images: seed,
        more_images: seed_deviation_over(more_images, seed, together, stored.images),
    }
    return data.name, stored.images, seed_deviations, image, sources


def _verdict(points: float, images: int, seed: float, image: float) -> str:
    """How many seeds, or else images, detect a difference of so many points."""
    from results.statistics.power import MAX_SEEDS, detectable_at_best, least_images, least_seeds

    difference = "1 point" if points == 1 else f"{points:g} points"
    seeds = least_seeds(points, images, seed, image)
    if seeds is not None:
        return f"{difference}: {seeds:,} seeds of each model or more."
    smallest = detectable_at_best(images, image)
    if smallest <= points:
        return f"{difference}: more than {MAX_SEEDS:,} seeds of each model."
    needed = least_images(points, image)
    return (
        f"{difference}: not with any number of seeds:\n"
        f"{images:,} images suffice only for {smallest:,.2f} points; {needed:,} would be needed."
    )
