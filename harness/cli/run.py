"""`bench run`: train, caption, score, measure and store; the same command continues or re-uses.

`make_request` checks its options against each other; `bench plan` and `bench tune` take them too.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import typer

from harness.benchmark.engines import HERE, Resources, check_engine, choose_engine
from harness.cli import options
from harness.cli.inputs import Changes, chosen_features, find_tuned, number_of_jobs, refuse_undecodable
from harness.cli.options import RunOptions
from harness.config.limits import MAX_COUNT, MAX_SEED
from harness.training.launch import every_rank, in_every_process, is_launched, process_count
from harness.utils.errors import BenchError
from harness.utils.files import require_file, shortened
from harness.utils.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.benchmark.plan import Request
    from harness.benchmark.work import Services
    from harness.config.preset import Preset
    from results.records import RunSpec

_MIN_PROCESSES = 8  # that may train a model together on any CPU, as a rehearsal of a larger machine

EXAMPLES = r"""
bench run --models all
bench run --models 'expansionnet*,blind' --seeds 3
bench run --models transformer_base --data flickr8k/ --preset small \
    --backbone mobilenetv2_100 --backbone-weights mobilenetv2.safetensors
bench run --models all --seeds 5 --on ray:head:6379 --gpus-per-run 0.5
"""


def run(
    context: typer.Context,
    models: options.RowsOption = "all",
    pretrained: options.PretrainedOption = None,
    cards: options.CardsOption = None,
    allow_subset: options.AllowSubsetOption = False,
    plugin: options.PluginOption = None,
    data: options.DataOption = "scenes",
    images: options.ImagesOption = None,
    skip_bad_images: options.SkipBadImagesOption = False,
    backbone: options.BackboneOption = None,
    backbone_weights: options.BackboneWeightsOption = None,
    backbone_option: options.BackboneSettingOption = None,
    image_size: options.ImageSizeOption = None,
    normalisation: options.NormalisationOption = None,
    regions: options.RegionsOption = None,
    region_count: options.RegionCountOption = "all",
    graphs: options.GraphsOption = None,
    preset: options.PresetOption = options.DEFAULT_PRESET,
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
) -> None:
    """Train, caption, score, measure and store every model under the same conditions.

    The same command again continues where it stopped, re-uses what is finished and retries what failed.
    """
    from harness.utils.progress import Reporter

    given = RunOptions.of(context)
    with Reporter() as reporter:
        with reporter.step("Loading torch"):
            request = make_request(given)
            from harness.benchmark.benchmark import run_benchmark
            from harness.benchmark.plan import choose_device
            from harness.benchmark.run_config import RunConfig
            from harness.cli.run_panel import RunPanel, name_of
            from reports.html.report import write_report
            from reports.text.summary import Summary
            from results import Store
        place, processes = request.workspace, request.execution.devices
        if given.on != HERE:
            processes = 1  # each run's worker starts its own
        if processes > 1 and not is_launched():
            chosen = choose_device(device)
            request.execution.check(chosen)
            if chosen.type == "cpu":
                _check_cores(processes)

        def show_runs(services: Services, specs: Sequence[RunSpec]) -> None:
            elsewhere = given.on != HERE or RunConfig.of(specs[0]).execution.jobs > 1
            names = {spec.key: name_of(spec) for spec in specs}
            reporter.show(RunPanel(services.store, names, elsewhere=elsewhere, rerun=request.rerun))

        started = time.monotonic()
        with every_rank(processes):
            ended, lacking = run_benchmark(request, reporter, show_runs)
        seconds = time.monotonic() - started
        with Store(place.database) as store, reporter.step("Writing the report"):
            summary = Summary.read(store, ended)
            next_command, page = summary.next_command(sys.argv[1:]), None
            try:
                page = write_report(store, place.report)
            finally:  # without a page, too, the answer is printed
                reporter.close()
                summary.print(reporter.console, ended, seconds, page, next_command)
    if {"failed", "skipped"} & {*ended.values()} or lacking:
        sys.exit(1)


def _check_cores(processes: int) -> None:
    """BenchError for more processes than a machine without GPUs can be meant to have."""
    from harness.config.execution import usable_cores

    cores = usable_cores()
    if processes > max(cores, _MIN_PROCESSES):
        why = f"--devices {processes}, but this machine has {cores} CPU cores for as many processes"
        raise BenchError(why, f"write --devices {cores}")


def make_request(options: RunOptions, *, by_size: bool = False, tuning: bool = False) -> Request:
    """The request of these options, of trials if it is for `tuning`; imports torch once the options are known to agree.

    With `by_size`, of the data only the sizes are known, so that no options of features are looked at.
    """
    from harness.config.features import FeatureConfig
    from harness.config.load import load_preset
    from harness.utils.plugins import absolute_plugins, load_plugins

    refuse_undecodable(options)
    changes = Changes.of(options.change or ())
    settings = load_preset(options.preset, changes.preset)
    features = FeatureConfig() if by_size else chosen_features(options, settings, changes.features)
    at_once = number_of_jobs(options.jobs)
    seeds = options.seeds or settings.seeds
    more_metrics = options.more_metrics or any((options.clip, options.bert, options.instances))
    for path in options.instances or ():
        require_file(path, "--instances", "give COCO's instances_*.json")
    if options.first_seed + seeds - 1 > MAX_SEED:
        why = f"leaves no room for {seeds} seeds up to {MAX_SEED}"
        raise BenchError(f"--first-seed {options.first_seed} {why}", "begin lower: --first-seed 1000")
    processes = process_count(options.devices)
    if options.on != HERE and is_launched():
        raise BenchError(
            f"--on {options.on}, but this is one of {processes} processes that were started together",
            "start one process, with --devices where several devices are to train each model",
        )
    per_run = {name: getattr(options, f"{name}_per_run") for name in ("cpus", "gpus", "memory", "hours")}
    given = {f"--{name}-per-run": value for name, value in per_run.items()}
    check_engine(options.on, given, processes, tuning=tuning)
    load_plugins(options.plugin)
    if tuning:
        from harness.benchmark.tune.study import require_optuna

        require_optuna()
    if options.log:
        from harness.training.trackers import check_trackers

        check_trackers(options.log)

    from harness.benchmark.hub_model import hub_options
    from harness.benchmark.identity.sources import plugin_digests
    from harness.benchmark.plan import Request
    from harness.benchmark.pretrained import parse_places
    from harness.config.execution import ExecutionConfig
    from harness.config.model_patterns import split_patterns
    from harness.metrics.more.measure import MoreSettings

    place = Workspace(options.workspace, options.db)
    place.check_name()
    cpus, hours = options.cpus_per_run or float(processes), options.hours_per_run or 24.0
    resources = Resources(cpus, options.gpus_per_run, options.memory_per_run, hours)
    plugins, trackers = absolute_plugins(options.plugin), tuple(options.log or ())
    execution = ExecutionConfig(processes, at_once, plugins, trackers, plugin_digests(), changes.accept_mixed)
    return Request(
        models=split_patterns(options.models),
        data=options.data,
        preset=settings,
        workspace=place,
        images=options.images,
        features=features,
        seeds=seeds,
        first_seed=options.first_seed,
        budgets=_budgets(options.budgets, settings),
        device=options.device,
        precision=options.precision,
        skip_bad_images=options.skip_bad_images,
        rerun=options.reuse == "none",
        accept_code_changes=options.reuse == "any",
        execution=execution,
        pretrained=parse_places(tuple(options.pretrained or ())),
        hub=hub_options(options.hub or ()),
        more=MoreSettings.parse(options.clip, options.bert, options.instances or ()) if more_metrics else None,
        tuned=find_tuned(place, options.tuned or ()),
        cards=options.cards,
        allow_subset=options.allow_subset,
        engine=choose_engine(options.on, resources, at_once),
    )


def _budgets(given: str, preset: Preset) -> tuple[int, ...]:
    """The budgets of `--budgets`; BenchError where they are no ladder, or none for this preset."""
    words = [word.strip() for word in given.split(",")]
    budgets = [int(word) for word in words if word.isascii() and word.isdecimal() and len(word) <= len(str(MAX_COUNT))]
    if len(budgets) < len(words) or min(budgets) < 1 or budgets != sorted(set(budgets)):
        hint = "name multiples of the preset's epochs: --budgets 1,2,4"
        raise BenchError(f"--budgets {shortened(given)!r} is no list of ascending whole numbers from 1 on", hint)
    stages = preset.schedule.stages
    if budgets != [1] and len(stages) > 1:
        raise BenchError(
            f"--budgets {given}: the preset {preset.name!r} has {len(stages)} stages, and a budget is of one alone",
            f"keep one of them: --set 'stages=[{stages[0].name}]'",
        )
    if budgets[-1] * stages[0].epochs > MAX_COUNT:
        raise BenchError(f"--budgets {given}: more than {MAX_COUNT:,} epochs", "name smaller ones: --budgets 1,2,4")
    return tuple(budgets)


COMMAND = in_every_process(run)
