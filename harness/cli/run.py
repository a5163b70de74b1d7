"""`bench run`: train, caption, score, measure and store models; run again, it resumes and re-uses finished runs.

`make_benchmark`, which `bench plan` and `bench tune` use too, checks the options against each other.
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

_MIN_PROCESSES = 8
"""So many processes may train a model together on any CPU, however few its cores, to try a distributed training."""

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
) -> None:
    """Train, caption, score, measure and store every model under the same conditions.

    Run the same command again to resume. Finished runs are re-used, failed ones are tried again.
    """
    from harness.utils.progress import Reporter

    if file is not None and is_archive(file):
        if save is not None:
            raise BenchError(f"--save: {file} has one run, not an experiment", "leave --save out")
        archive = read_archive(file)
        _run_one(read_run(context, file, archive.content, archive), file, Workspace(workspace, db), reuse, archive)
        return
    if file is not None and save is None and is_run(content := read_experiment(file)):
        _run_one(read_run(context, file, content), file, Workspace(workspace, db), reuse)
        return
    experiment = experiment_of(context, file, environment=save is None)
    if save is not None:
        _save_experiment(experiment, save, [file, experiment.cards, *experiment.tuned, *experiment.plugins], force)
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
        processes = benchmark.execution.devices
        if experiment.execution.executor != HERE:
            processes = 1  # the worker of each run starts its own
        if processes > 1 and not is_launched():
            local_device = choose_device(experiment.execution.device)
            benchmark.execution.check(local_device)
            if local_device.type == "cpu":
                _check_cores(processes)

        def show_runs(services: Services, specs: Sequence[RunSpec]) -> None:
            elsewhere = experiment.execution.executor != HERE or config_of(specs[0]).execution.jobs > 1
            names = {spec.key: name_of(spec) for spec in specs}
            reporter.show(RunPanel(services.store, names, elsewhere=elsewhere, rerun=benchmark.rerun))

        started = time.monotonic()
        with every_rank(processes):
            ended, unmeasured = run_benchmark(benchmark, reporter, show_runs)
        seconds = time.monotonic() - started

        with Store(benchmark.workspace.database) as store, reporter.step("Writing the report"):
            summary = Summary.read(store, ended, benchmark.workspace.options())
            next_command = summary.next_command(sys.argv[1:])
            page = None
            try:
                page = write_report(store, benchmark.workspace.report)
            finally:  # the summary is printed even where the report cannot be written
                reporter.close()
                summary.print(reporter.console, ended, seconds, page, next_command)
    if unmeasured or any(status in {"failed", "skipped"} for status in ended.values()):
        sys.exit(1)


def _save_experiment(experiment: Experiment, file: Path, inputs: Sequence[str | Path | None], force: bool) -> None:
    """Write an experiment to a file, of `--save`; `inputs` are the files that it was read from."""
    check_out(file, "--save", force=force, inputs=inputs)
    load_preset(experiment.preset, changes=experiment.changes)
    deliver(write_experiment(experiment, file), file, "--save")
    echo(f"experiment: {file}; run it with: bench run {file}")


def _run_one(
    config: RunConfig, file: Path, workspace: Workspace, reuse: str, archive: RunArchive | None = None
) -> None:
    """Execute one run from its configuration and print its summary.

    With `archive`, also print whether its scores equal those of the archive.
    """
    from harness.utils.progress import Reporter

    workspace.check_name()
    with Reporter() as reporter:
        with reporter.step("Loading torch"):
            from harness.benchmark.run_one import compare_with_archive, run_one
            from reports.html.report import write_report
            from reports.text.summary import Summary
            from results import Store
        started = time.monotonic()
        ended = run_one(config, file, workspace, reporter, accept=reuse == "any", rerun=reuse == "none")
        seconds = time.monotonic() - started
        with Store(workspace.database) as store, reporter.step("Writing the report"):
            summary = Summary.read(store, ended, workspace.options())
            page = write_report(store, workspace.report)
            reporter.close()
            next_command = summary.report_command("every table and caption")
            summary.print(reporter.console, ended, seconds, page, next_command)
            [(key, status)] = ended.items()
            if archive is not None and status in {"finished", "reused"}:
                echo(compare_with_archive(store, key, archive, file.name))
    if any(status in {"failed", "skipped"} for status in ended.values()):
        sys.exit(1)


def _check_cores(processes: int) -> None:
    """BenchError for many more processes than this machine has CPU cores."""
    from harness.config.execution import usable_cores

    cores = usable_cores()
    if processes > max(cores, _MIN_PROCESSES):
        raise BenchError(
            f"--devices {processes} starts {processes} processes, but this machine has {cores} CPU cores",
            f"write --devices {cores}",
        )


def make_benchmark(experiment: Experiment, *, by_size: bool = False, tuning: bool = False) -> Benchmark:
    """The benchmark of an experiment; torch is imported only after the experiment's fields were checked.

    Args:
        by_size: the data are not here and only their sizes are known, so features are not checked.
        tuning: the benchmark is for the trials of `bench tune`.
    """
    from harness.config.features import FeatureConfig
    from harness.utils.plugins import absolute_plugins, load_plugins

    preset = load_preset(experiment.preset, changes=experiment.changes)
    features = FeatureConfig() if by_size else chosen_features(experiment, preset)
    check_budgets(experiment.budgets, preset)
    seeds = experiment.seeds or preset.seeds
    if experiment.first_seed + seeds - 1 > MAX_SEED:
        raise BenchError(
            f"--first-seed {experiment.first_seed}: the last of {seeds} seeds would be above {MAX_SEED}",
            "choose a lower one: --first-seed 1000",
        )
    execution = experiment.execution
    processes = process_count(execution.devices)
    if execution.executor != HERE and is_launched():
        raise BenchError(
            f"--executor {execution.executor}, but this is one of {processes} processes that were started together",
            "start one process; --devices N trains each model on N devices",
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
    jobs = AUTO if execution.jobs == "auto" else int(execution.jobs)
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
            jobs=jobs,
            plugins=absolute_plugins(experiment.plugins),
            log=execution.log,
            digests=plugin_digests(),
            accept_mixed=experiment.accept_mixed,
        ),
        tuned=find_tuned(workspace, experiment.tuned),
        more=MoreSettings.parse(metrics.clip, metrics.bert, metrics.instances) if metrics.any else None,
        executor=choose_executor(execution.executor, resources, jobs, rerun=experiment.reuse == "none"),
    )


def check_budgets(budgets: Sequence[int], preset: Preset) -> None:
    """BenchError if a preset cannot be trained for these multiples of its epochs."""
    stages = preset.schedule.stages
    text = ",".join(map(str, budgets))
    if tuple(budgets) != (1,) and len(stages) > 1:
        raise BenchError(
            f"--budgets {text} needs a preset of one stage; {preset.name!r} has {len(stages)} stages",
            f"keep one of them: --set 'stages=[{stages[0].name}]'",
        )
    if budgets[-1] * stages[0].epochs > MAX_COUNT:
        raise BenchError(f"--budgets {text}: more than {MAX_COUNT:,} epochs", "choose smaller ones: --budgets 1,2,4")


COMMAND = in_every_process(run)
