"""`bench plan`: what a run would do, before anything starts."""

from __future__ import annotations

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
    *("regions", "region_count", "graphs", "limit"),
)
SEEDS = (2, 3, 5, 10, 20)
MORE_IMAGES = 4
_USUAL_SEEDS = (3, 5)
_POINTS: dict[str, Any] = {"metavar": "POINTS", "min": 0.01, "max": 1000.0}
"""From the last digit of CIDEr-D points that is shown to the highest score that there is."""
SPLIT = "test"
_HINT = "state both: --seed-deviation 5 --image-deviation 40; or run two models with --seeds 3 first"


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
    on: options.WhereOption = "here",
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
    """Show what bench run with the same options would do; nothing is started.

    Finished runs that would be re-used are counted. The time is what stored runs of the same model and preset took on
    this kind of machine. --data may also be coco, flickr30k or flickr8k where there are no such data: their sizes are
    known. --detect, --seed-deviation and --image-deviation look at --data, --images, --workspace and --db alone; --data
    may also be the name of stored data.
    """
    from harness.data.known_sizes import KNOWN_SIZES

    experiment = experiment_of(context, file)
    data = experiment.data.annotations
    if detect is not None:
        used = {"file", "data", "images", "detect", "seed_deviation", "image_deviation", "workspace", "db"}
        why = "not used by --detect, which is about scores alone"
        refuse_typed(context, sorted({*context.params} - used), why, "leave --detect or these out")
        show_power(detect, seed_deviation, image_deviation, experiment)
        return
    why, deviations = "what a difference is told from, but none is asked for", ("seed_deviation", "image_deviation")
    refuse_typed(context, deviations, why, "add --detect 1.0, for example")
    here = data in PRESET_OF_SCENES or expanded(data).exists()
    if not here and data not in KNOWN_SIZES:
        hint = f"name a folder or file as for bench run, or one of: {', '.join(KNOWN_SIZES)}"
        raise BenchError(f"--data {data} does not exist, and the sizes of this data set are unknown", hint)
    if not here:
        why = f"not read, since of {data} the sizes alone are looked at"
        refuse_typed(context, (*_SEEN, "store"), why, "leave it out, or name data that are here: --data FOLDER")
    if store:
        more, hint = (
            ("more_metrics", "clip", "bert", "instances"),
            "leave it out; the same bench run adds it afterwards",
        )
        refuse_typed(context, more, "what bench work does not compute", hint)
        if experiment.metrics.any:
            raise BenchError("metrics: what bench work does not compute", hint)
    # What bench work executes is alone in its process, and several of these see by themselves what the cores do beside.
    from rich.console import Console

    from harness.utils.progress import Reporter

    console = Console(highlight=False)
    with Reporter(console) as reporter:
        with reporter.step("Loading torch"):
            benchmark = make_benchmark(_one_by_one(experiment) if store else experiment, by_size=not here)
            from harness.benchmark.plan import resolve
            from harness.benchmark.preview import preview
            from harness.measure.environment import describe_environment
            from results import Store
            from results.runs.spreads import machine_of
        with reporter.step("Planning the runs"):
            resolved = resolve(benchmark, reporter)
            machine = None
            if experiment.execution.executor == HERE and not store:
                machine = machine_of(describe_environment(resolved.conditions.execution.device), "trained")
            planned = preview(benchmark, resolved, reporter, here=here, machine=machine)
        left = [spec for spec in planned.specs if spec.key not in planned.finished]
        if store and planned.record is None:
            seen = f"--backbone {benchmark.features.backbone}"
            if benchmark.features.regions is not None:
                seen += f" --regions {benchmark.features.regions.source}"
            hint = f"type first: bench data features {data} {seen}, with the same --workspace and --images"
            raise BenchError(f"--store: {planned.unknown}", hint)
        if store and benchmark.rerun:
            raise BenchError("--store: bench work re-uses what is finished", "leave --reuse none out")
        if store and not left:
            raise BenchError("--store: no run is left to do", "leave --store out")
    _show(benchmark, resolved, planned, machine, console)
    if store and planned.record is not None:
        benchmark.workspace.create()
        with Store(benchmark.workspace.database) as results:
            results.record_dataset(planned.record)
            results.plan(left)
            known = results.progress([spec.key for spec in left])
        ended = [key for key, run in known.items() if run.status in {"failed", "skipped"}]
        console.print("the runs are stored as planned; bench work executes them", soft_wrap=True)
        if ended:
            console.print(
                f"{len(ended)} ended before and need their names: bench work {' '.join(ended)}", soft_wrap=True
            )


def _one_by_one(experiment: Experiment) -> Experiment:
    """The experiment with one job: what bench work executes is alone in its process."""
    return experiment.model_copy(update={"execution": experiment.execution.model_copy(update={"jobs": 1})})


def _row(model: str, budget: int) -> str:
    """How the table names a model under a budget, as signatures name the schedule: `updown*2`."""
    return model if budget == 1 else f"{model}*{budget}"


def _show(benchmark: Benchmark, resolved: Resolved, planned: Preview, machine: str | None, console: Console) -> None:
    """Print what is made first, the stages, the table of runs, their time and their power."""
    from harness.config.run import config_of

    names = [model.name for model in resolved.models if model.kind == "trained"]
    others = [model.name for model in resolved.models if model.kind != "trained"]
    if planned.specs and "human" not in {spec.model for spec in planned.specs}:
        others = [name for name in others if name != "human"]  # left out, as the note says
    seeds, first, budgets = benchmark.seeds, benchmark.experiment.first_seed, benchmark.experiment.budgets
    trained = {_row(name, budget): (name, budget) for budget in budgets for name in names}
    runs = Counter(dict.fromkeys(trained, seeds)) + Counter(others)
    finished = [spec for spec in planned.specs if spec.key in planned.finished]
    done = Counter(_row(spec.model, config_of(spec).made_from.budget) for spec in finished)
    for made in planned.first:
        console.print(f"first: {made}", soft_wrap=True, markup=False)
    if planned.unknown:
        console.print(f"re-used: not known, {planned.unknown}", soft_wrap=True, markup=False)
    if names:
        _show_stages(benchmark, planned, console)
    seconds = {row: planned.seconds[key] for row, key in trained.items() if key in planned.seconds}
    _print_table(runs, done, seconds, console, known=not planned.unknown)
    total, untrained = runs.total(), f", rows without training {len(others)}" if others else ""
    which = "" if not first else f" ({first})" if seeds == 1 else f" ({first} to {first + seeds - 1})"
    noun = "run" if total == 1 else "runs"
    under = "" if budgets == (1,) else f", budgets {', '.join(map(str, budgets))}"
    console.print(f"{total} {noun}: models {len(names)}, seeds {seeds}{which}{under}{untrained}")
    if not planned.unknown:
        console.print(f"{done.total()} finished before and re-used, {total - done.total()} to do")
    _print_time({row: runs[row] - done[row] for row in trained}, seconds, machine, console)
    _print_power(seeds, planned, console)


def _show_stages(benchmark: Benchmark, planned: Preview, console: Console) -> None:
    """Print the sizes of all stages under each budget, and warnings of rates that teach nothing."""
    images, captions = planned.images, planned.captions
    if planned.unknown:  # else planning has warned
        for warning in benchmark.preset.schedule.idle_stages(images, captions):
            console.print(warning, soft_wrap=True, markup=False, style="yellow")
    for budget in benchmark.experiment.budgets:
        for stage in benchmark.preset.schedule.times(budget).stages:
            epochs = "1 epoch" if stage.epochs == 1 else f"{stage.epochs:,} epochs"
            steps = stage.steps_per_epoch(images, captions) * stage.epochs
            presented = stage.images_per_epoch(images, captions) * stage.epochs
            sizes = f"{epochs}, {steps:,} steps, {presented:,} images"
            console.print(f"stage {_row(stage.name, budget)}: {sizes}", soft_wrap=True, markup=False)


def _print_table(
    runs: Counter[str], done: Counter[str], seconds: Mapping[str, float], console: Console, *, known: bool
) -> None:
    """Print a line a row of the benchmark: runs to do and re-used ones, and what one run took before."""
    from reports.text.grid import Grid

    def shortened(name: str, width: int) -> str:
        """A name in so many columns: its middle is left out, since variants differ at their ends."""
        kept = max(width - 1, 2)
        return name if len(name) <= width else f"{name[: kept - kept // 2]}…{name[len(name) - kept // 2 :]}"

    header, rows = ("Model", "New", "Re-used", "Time of a run"), []
    for name, count in runs.items():
        time = _rough(seconds[name]) if name in seconds else "-"
        rows.append((name, f"{count - done[name]}", f"{done[name]}" if known else "?", time))
    numbers = sum(2 + max(map(len, column)) for column in list(zip(header, *rows, strict=True))[1:])
    # A name alone may be cut, so that a model has one line and every number is whole.
    console.print(Grid(header, [(shortened(name, console.width - numbers), *cells) for name, *cells in rows]).rich())


def _print_time(left: Mapping[str, int], seconds: Mapping[str, float], machine: str | None, console: Console) -> None:
    """Print the time of all runs that are left, one after the other, and of which it is not known."""
    to_do = {row: count for row, count in left.items() if count}
    if not to_do:
        if left:
            console.print("time: none to train")
        return
    known = {row: count * seconds[row] for row, count in to_do.items() if row in seconds}
    unknown = [row for row in to_do if row not in seconds]
    where = "" if machine is None else f" on {machine or 'this machine'}"
    if not known:
        console.print(f"time: not known yet, since no such run{where} is stored")
        return
    total = _rough(sum(known.values()))
    console.print(f"time: {total}, one run after the other, as stored runs{where} took")
    if unknown:
        console.print(f"time of {', '.join(unknown)}: not known yet", soft_wrap=True)


def _print_power(seeds: int, planned: Preview, console: Console) -> None:
    """Print the smallest differences of two models that some numbers of seeds show, by the variances of stored runs."""
    from results.statistics.power import detectable

    stored = planned.variances
    if stored is None or stored.image_deviation is None:
        console.print("power: not known yet, before two models other than blind have two seeds each", soft_wrap=True)
        return
    counts = sorted({*_USUAL_SEEDS, max(seeds, 2)})
    points = [detectable(count, stored.images, stored.seed_deviation, stored.image_deviation) for count in counts]
    text = f"{counts[0]} seeds and {stored.images:,} images show {points[0]:.1f} points of CIDEr-D"
    for count, least in zip(counts[1:], points[1:], strict=True):
        text += f", {count} seeds {least:.1f}"
    console.print(f"power: {text}", soft_wrap=True)


def _rough(seconds: float) -> str:
    """A duration in one unit, rounded."""
    for unit, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 3 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def _images_to_test(experiment: Experiment) -> tuple[str, int]:
    """The name of `--data`, and how many images its test split has, by its known size or by its files."""
    from harness.data.known_sizes import KNOWN_SIZES
    from harness.data.scenes.dataset import SCENES

    if experiment.data.annotations in SCENES:  # whose known size counts both evaluated splits
        return experiment.data.annotations, SCENES[experiment.data.annotations].test
    if experiment.data.annotations in KNOWN_SIZES:
        return experiment.data.annotations, KNOWN_SIZES[experiment.data.annotations].test
    if not expanded(experiment.data.annotations).exists():
        hint = f"name a folder or file as for bench run, or one of: {', '.join(KNOWN_SIZES)}"
        raise BenchError(
            f"--data {experiment.data.annotations} does not exist, and the sizes of this data set are unknown", hint
        )
    dataset = _open_data(experiment)
    return dataset.name, len(dataset.split(SPLIT))


def _open_data(experiment: Experiment) -> Dataset:
    from harness.data.opening import open_dataset

    cache = Workspace(experiment.workspace, experiment.db).cache
    with doing(f"Reading {experiment.data.annotations}"):
        return open_dataset(experiment.data.annotations, cache_dir=cache, images=experiment.data.images)


@dataclass(frozen=True)
class _StoredData:
    """A data set of the results: what finds its runs (`key`), its name, and a remark where its files are others."""

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
            f"--data {experiment.data.annotations} is neither data of the results database nor a file or folder", hint
        )
    from harness.benchmark.signature import data_field

    dataset = _open_data(experiment)
    fingerprint = data_field(dataset, ())
    for info in stored:
        if info.fingerprint == fingerprint or info.fingerprint.startswith(f"{fingerprint},"):
            return _StoredData(info.fingerprint, dataset.name)
    remark = "The stored runs are of data of this name with other pictures or captions."
    return _StoredData(dataset.name, dataset.name, remark)


def show_power(points: float, seed: float | None, image: float | None, experiment: Experiment) -> None:
    """Print what numbers of seeds detect, from deviations in points that are stated or, where None, stored."""
    from results.runs.planning import stored_variances
    from results.runs.reading import datasets
    from results.statistics.power import detectable, deviation_bounds, seed_deviation_over

    if seed is not None and image is not None:
        name, images = _images_to_test(experiment)
        columns = {images: seed}
        sources = [f"Seeds deviate by {seed:g}, images by {image:g} points: as stated."]
    else:
        try:
            store = open_results(experiment.workspace, experiment.db)
        except BenchError as error:
            raise BenchError(str(error), _HINT) from error
        with store:
            data = _stored_data(experiment, datasets(store))
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
