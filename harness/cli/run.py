"""`bench run`: train, caption, score, measure and store; the same command continues or re-uses.

`make_benchmark` checks its options against each other; `bench plan` and `bench tune` take them too.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import typer

from harness.cli import options
from harness.cli.experiments import experiment_of
from harness.cli.inputs import chosen_features, find_tuned
from harness.cli.output import ForceOption, check_out, deliver, echo
from harness.cli.run_one import read_run
from harness.config.archive import is_archive, read_archive
from harness.config.experiment import (
    DEFAULT_DATA,
    DEFAULT_PRESET,
    Experiment,
    is_run,
    read_experiment,
    write_experiment,
)
from harness.config.limits import MAX_COUNT, MAX_SEED
from harness.config.load import load_preset
from harness.executors import HERE, Resources, check_executor, choose_executor
from harness.training.launch import every_rank, in_every_process, is_launched, process_count
from harness.utils.errors import BenchError
from harness.utils.files import require_file
from harness.utils.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.benchmark.plan import Benchmark
    from harness.benchmark.services import Services
    from harness.config.archive import RunArchive
    from harness.config.preset import Preset
    from harness.config.run import RunConfig
    from results.records import RunSpec

_MIN_PROCESSES = 8  # that may train a model together on any CPU, as a rehearsal of a larger machine

EXAMPLES = r"""
bench run --models all
bench run --models 'expansionnet*,blind' --seeds 3
bench run --models transformer_base --data flickr8k/ --preset small \
    --backbone mobilenetv2_100 --backbone-weights mobilenetv2.safetensors
bench run --models all --seeds 5 --executor ray:head:6379 --gpus-per-run 0.5
"""


def run(
    context: typer.Context,
    file: options.ExperimentArgument = None,
    save: options.SaveOption = None,
    force: ForceOption = False,
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
) -> None:
    """Train, caption, score, measure and store every model under the same conditions.

    The same command again continues where it stopped, re-uses what is finished and retries what failed.
    """
    from harness.utils.progress import Reporter

    if file is not None and is_archive(file):
        if save is not None:
            raise BenchError(f"--save: {file} is one run, and no experiment", "leave it out")
        archive = read_archive(file)
        _run_one(read_run(context, file, archive.content, archive), file, Workspace(workspace, db), reuse, archive)
        return
    if file is not None and save is None and is_run(content := read_experiment(file)):
        _run_one(read_run(context, file, content), file, Workspace(workspace, db), reuse)
        return
    experiment = experiment_of(context, file, environment=save is None)
    if save is not None:
        inputs = [file, experiment.cards, *experiment.tuned, *experiment.plugins]
        check_out(save, "--save", force=force, inputs=inputs)
        load_preset(experiment.preset, changes=experiment.changes)
        deliver(write_experiment(experiment, save), save, "--save")
        echo(f"experiment: {save}; run it with: bench run {save}")
        return
    with Reporter() as reporter:
        with reporter.step("Loading torch"):
            benchmark = make_benchmark(experiment)
            from harness.benchmark.benchmark import run_benchmark
            from harness.benchmark.plan import choose_device
            from harness.cli.run_panel import RunPanel, name_of
            from harness.config.run import config_of
            from reports.html.report import write_report
            from reports.text.summary import Summary
            from results import Store
        place, processes = benchmark.workspace, benchmark.execution.devices
        if experiment.execution.executor != HERE:
            processes = 1  # each run's worker starts its own
        if processes > 1 and not is_launched():
            chosen = choose_device(experiment.execution.device)
            benchmark.execution.check(chosen)
            if chosen.type == "cpu":
                _check_cores(processes)

        def show_runs(services: Services, specs: Sequence[RunSpec]) -> None:
            elsewhere = experiment.execution.executor != HERE or config_of(specs[0]).execution.jobs > 1
            names = {spec.key: name_of(spec) for spec in specs}
            reporter.show(RunPanel(services.store, names, elsewhere=elsewhere, rerun=benchmark.rerun))

        started = time.monotonic()
        with every_rank(processes):
            ended, lacking = run_benchmark(benchmark, reporter, show_runs)
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


def _run_one(
    config: RunConfig, file: Path, workspace: Workspace, reuse: str, archive: RunArchive | None = None
) -> None:
    """Execute the configuration of one run, and print what came of it; of a zip also whether scores are the same."""
    from harness.utils.progress import Reporter

    workspace.check_name()
    with Reporter() as reporter:
        with reporter.step("Loading torch"):
            from harness.benchmark.run_one import compare_with_archive, run_one
            from reports.html.report import write_report
            from reports.text.summary import NextCommand, Summary
            from results import Store
        started = time.monotonic()
        ended = run_one(config, file, workspace, reporter, accept=reuse == "any", rerun=reuse == "none")
        seconds = time.monotonic() - started
        with Store(workspace.database) as store, reporter.step("Writing the report"):
            summary = Summary.read(store, ended)
            page = write_report(store, workspace.report)
            reporter.close()
            summary.print(
                reporter.console, ended, seconds, page, NextCommand.of(["report", "--open"], "every table and caption")
            )
            if archive is not None and {"finished", "reused"} & {*ended.values()}:
                echo(compare_with_archive(store, next(iter(ended)), archive, file.name))
    if {"failed", "skipped"} & {*ended.values()}:
        sys.exit(1)


def _check_cores(processes: int) -> None:
    """BenchError for more processes than a machine without GPUs can be meant to have."""
    from harness.config.execution import usable_cores

    cores = usable_cores()
    if processes > max(cores, _MIN_PROCESSES):
        why = f"--devices {processes}, but this machine has {cores} CPU cores for as many processes"
        raise BenchError(why, f"write --devices {cores}")


def make_benchmark(experiment: Experiment, *, by_size: bool = False, tuning: bool = False) -> Benchmark:
    """The benchmark of an experiment, of trials if it is for `tuning`; imports torch once its fields agree.

    With `by_size`, of the data only the sizes are known, so that features are not looked at.
    """
    from harness.config.features import FeatureConfig
    from harness.utils.plugins import absolute_plugins, load_plugins

    preset = load_preset(experiment.preset, changes=experiment.changes)
    features = FeatureConfig() if by_size else chosen_features(experiment, preset)
    check_budgets(experiment.budgets, preset)
    seeds = experiment.seeds or preset.seeds
    if experiment.first_seed + seeds - 1 > MAX_SEED:
        why = f"leaves no room for {seeds} seeds up to {MAX_SEED}"
        raise BenchError(f"--first-seed {experiment.first_seed} {why}", "begin lower: --first-seed 1000")
    execution = experiment.execution
    processes = process_count(execution.devices)
    if execution.executor != HERE and is_launched():
        raise BenchError(
            f"--executor {execution.executor}, but this is one of {processes} processes that were started together",
            "start one process, with --devices where several devices are to train each model",
        )
    per_run = {
        f"--{name}-per-run": getattr(execution, f"{name}_per_run") for name in ("cpus", "gpus", "memory", "hours")
    }
    check_executor(execution.executor, per_run, processes, tuning=tuning)
    load_plugins(experiment.plugins)
    if tuning:
        from harness.benchmark.tune.study import require_optuna

        require_optuna()
    if execution.log:
        from harness.training.trackers import check_trackers

        check_trackers(execution.log)

    from harness.benchmark.plan import Benchmark
    from harness.config.execution import AUTO, ExecutionConfig
    from harness.key import plugin_digests
    from harness.metrics.more.measure import MoreSettings

    workspace = Workspace(experiment.workspace, experiment.db)
    workspace.check_name()
    at_once = AUTO if execution.jobs == "auto" else int(execution.jobs)
    resources = Resources(
        execution.cpus_per_run or float(processes),
        execution.gpus_per_run,
        execution.memory_per_run,
        execution.hours_per_run or 24.0,
    )
    metrics = experiment.metrics
    for path in metrics.instances:
        require_file(path, "--instances", "give COCO's instances_*.json")
    return Benchmark(
        experiment,
        preset,
        workspace,
        features=features,
        execution=ExecutionConfig(
            devices=processes,
            jobs=at_once,
            plugins=absolute_plugins(experiment.plugins),
            log=execution.log,
            digests=plugin_digests(),
            accept_mixed=experiment.accept_mixed,
        ),
        tuned=find_tuned(workspace, experiment.tuned),
        more=MoreSettings.parse(metrics.clip, metrics.bert, metrics.instances) if metrics.any else None,
        executor=choose_executor(execution.executor, resources, at_once, rerun=experiment.reuse == "none"),
    )


def check_budgets(budgets: Sequence[int], preset: Preset) -> None:
    """BenchError where a preset cannot be trained under these budgets."""
    stages = preset.schedule.stages
    text = ",".join(map(str, budgets))
    if tuple(budgets) != (1,) and len(stages) > 1:
        raise BenchError(
            f"--budgets {text}: the preset {preset.name!r} has {len(stages)} stages, and a budget is of one alone",
            f"keep one of them: --set 'stages=[{stages[0].name}]'",
        )
    if budgets[-1] * stages[0].epochs > MAX_COUNT:
        raise BenchError(f"--budgets {text}: more than {MAX_COUNT:,} epochs", "name smaller ones: --budgets 1,2,4")


COMMAND = in_every_process(run)
