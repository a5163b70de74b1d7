"""`bench run`: train, caption, score, measure and store; the same command continues or re-uses."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.engines import chosen_engine
from harness.cli.inputs import (
    check_precision,
    check_tuned,
    chosen_features,
    find_tuned,
    number_of_jobs,
    warn_left_out,
)
from harness.cli.options import (
    BackboneOption,
    BackboneSettingOption,
    BackboneWeightsOption,
    ChangeOption,
    CleanOption,
    ControlOption,
    CpusPerRunOption,
    DatabaseOption,
    DataOption,
    DeviceOption,
    FirstSeedOption,
    GpusPerRunOption,
    HoursPerRunOption,
    ImageSizeOption,
    ImagesOption,
    JobsOption,
    MemoryPerRunOption,
    NormalisationOption,
    OnOption,
    PlaceUnfinishedOption,
    PluginOption,
    PrecisionOption,
    PresetOption,
    PromptOption,
    RegionBinsOption,
    RegionCountOption,
    RegionsOption,
    RowsOption,
    SeedsOption,
    SkipBadImagesOption,
    StorageOption,
    WorkspaceOption,
    check_seeds,
    refuse_empty,
)
from harness.config.limits import MAX_PROCESSES
from harness.runner.engines.choose import HERE
from harness.training.launch import in_every_process, is_launched, launch, process_count
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from harness.utils.progress import Reporter
    from results import Store

_MIN_PROCESSES = 8
"""That may train a model together on any CPU, as a rehearsal of a larger machine."""
_FIRST_TABLE_S = 75.0
"""When the leaderboard of what is finished is shown first; then after twice the time, and so on."""

EXAMPLES = """
Examples:

  bench run --models all

  bench run --models 'expansionnet*,blind' --seeds 3

  bench run --models all --seeds 3 --control auto

  bench run --models transformer_base --data flickr8k/ --preset small
  --backbone mobilenetv2_100 --backbone-weights mobilenetv2.safetensors

  bench run --models hf:Salesforce/blip2-opt-2.7b,hf:folder,transformer_base --prompt 'a photo of'

  bench run --models all --regions boxes --jobs 2

  bench run --models updown,transformer_base --tuned

  bench run --models updown,m2 --data dataset_coco.json --regions cocobu_att

  bench run --models all --seeds 5 --on ray:head:6379 --gpus-per-run 0.5
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", epilog=EXAMPLES)(in_every_process(run))


def run(
    models: RowsOption = "all",
    data: DataOption = "scenes",
    images: ImagesOption = None,
    preset: PresetOption = "quick",
    change: ChangeOption = None,
    seeds: SeedsOption = None,
    first_seed: FirstSeedOption = 0,
    control: ControlOption = None,
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
    storage: StorageOption = None,
    backbone: BackboneOption = None,
    backbone_weights: BackboneWeightsOption = None,
    backbone_option: BackboneSettingOption = None,
    image_size: ImageSizeOption = None,
    normalisation: NormalisationOption = None,
    regions: RegionsOption = None,
    region_count: RegionCountOption = "all",
    region_bins: RegionBinsOption = 1,
    device: DeviceOption = "auto",
    devices: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_PROCESSES, help="Devices that train each model together: 1, or torchrun's WORLD_SIZE."
        ),
    ] = None,
    jobs: JobsOption = "auto",
    on: OnOption = "here",
    cpus_per_run: CpusPerRunOption = None,
    gpus_per_run: GpusPerRunOption = None,
    memory_per_run: MemoryPerRunOption = None,
    hours_per_run: HoursPerRunOption = None,
    compiled: Annotated[bool, typer.Option("--compile", help="Compile training passes (torch.compile).")] = False,
    precision: PrecisionOption = "auto",
    skip_bad_images: SkipBadImagesOption = False,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Train each model with its tuned values, of this workspace's bench tune.")
    ] = False,
    tuned_from: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", callback=refuse_empty, help="The same, with the values of a file of bench tune --export."
        ),
    ] = None,
    untuned: Annotated[
        bool, typer.Option("--untuned", help="Train as the preset is, where tuned values of it ship.")
    ] = False,
    rerun: Annotated[bool, typer.Option("--rerun", help="Repeat finished runs.")] = False,
    accept_code_changes: Annotated[
        bool, typer.Option("--accept-code-changes", help="Re-use finished runs made by other code.")
    ] = False,
    place_unfinished: PlaceUnfinishedOption = False,
    pretrained: Annotated[
        list[str] | None, typer.Option(help="MODEL=FOLDER or hub repository of a pretrained model's weights.")
    ] = None,
    prompt: PromptOption = None,
    clean: CleanOption = None,
    log: Annotated[
        list[str] | None,
        typer.Option(metavar="TRACKER", help="Also show runs in tensorboard, wandb or mlflow; may be repeated."),
    ] = None,
    plugin: PluginOption = None,
) -> None:
    """Train, caption, score, measure and store every model under the same conditions.

    The same command again continues where it stopped, re-uses what is finished and retries what failed.
    """
    from harness.config.load import load_preset
    from harness.utils.plugins import load_plugins

    settings = load_preset(preset, tuple(change or ()))
    features = chosen_features(
        data,
        settings,
        backbone,
        backbone_weights,
        backbone_option,
        image_size=image_size,
        normalisation=normalisation,
        regions=regions,
        region_count=region_count,
        region_bins=region_bins,
    )
    check_precision(precision)
    at_once = number_of_jobs(jobs)
    if rerun and accept_code_changes:
        raise BenchError(
            "--rerun and --accept-code-changes contradict each other",
            "--rerun trains finished runs again, --accept-code-changes re-uses those of other code: leave one out",
        )
    if rerun and storage is not None:
        raise BenchError(
            "--rerun and --storage contradict each other: checkpoints would be fetched from there",
            "leave out --storage, or write another URL",
        )
    seeds = seeds or settings.seeds
    check_seeds(first_seed, seeds, 2 if control else 1)
    check_tuned(tuned, tuned_from, untuned)
    processes = process_count(devices)
    if on != HERE and is_launched():
        raise BenchError(
            f"--on {on}, but this is one of {processes} processes that were started together",
            "start one process, with --devices where several devices are to train each model",
        )
    engine = chosen_engine(on, at_once, processes, cpus_per_run, gpus_per_run, memory_per_run, hours_per_run)
    load_plugins(plugin)
    if log:
        from harness.training.trackers.opening import check_trackers

        check_trackers(log)

    from harness.config.execution import ExecutionConfig, usable_cores
    from harness.config.model_patterns import split_patterns
    from harness.inference.hub.cleaning import choose_rules
    from harness.runner.benchmark import Request, choose_device, run_benchmark
    from harness.runner.pretrained import parse_places
    from harness.utils.progress import Reporter
    from results import Store

    place = Workspace(workspace, db, storage)
    if place.remote is not None:
        place.remote.check()
    request = Request(
        models=split_patterns(models),
        data=data,
        preset=settings,
        workspace=place,
        images=images,
        features=features,
        seeds=seeds,
        first_seed=first_seed,
        control=control,
        device=device,
        precision=precision,
        skip_bad_images=skip_bad_images,
        rerun=rerun,
        accept_code_changes=accept_code_changes,
        execution=ExecutionConfig(processes, at_once, compiled, tuple(plugin or ()), tuple(log or ())),
        pretrained=parse_places(tuple(pretrained or ())),
        prompt=prompt,
        clean=choose_rules(clean),
        tuned=find_tuned(settings, place, tuned, tuned_from, untuned),
        engine=engine(),
    )
    if processes > 1 and on == HERE and not is_launched():
        where = choose_device(device)
        request.execution.check(where)
        if where.type == "cpu" and processes > max(usable_cores(), _MIN_PROCESSES):
            raise BenchError(
                f"--devices {processes}, but this machine has {usable_cores()} CPU cores for as many processes",
                f"write --devices {usable_cores()}",
            )
        sys.exit(launch(processes))
    with Reporter() as reporter:
        summary = run_benchmark(request, reporter, _FirstTables(place, reporter, place_unfinished))
    with Store(place.database) as store:
        store.left_out = summary.left_out
        page = _show(store, place, reporter, place_unfinished=place_unfinished)
        if store.left_out != summary.left_out:
            warn_left_out(store)
    counts = {
        "finished": summary.finished,
        "re-used": summary.reused,
        "skipped": summary.skipped,
        "failed": summary.failed,
        "damaged": summary.damaged,
    }
    always = {"finished", "re-used", "failed"}
    said = ", ".join(f"{len(keys)} {what}" for what, keys in counts.items() if keys or what in always)
    reporter.note(f"{said}; report: {page.absolute().as_uri()}")
    if summary.failed or summary.skipped or summary.damaged:
        sys.exit(1)


class _FirstTables:
    """Shows the leaderboard of what is finished while other runs go on, ever more rarely."""

    def __init__(self, workspace: Workspace, reporter: Reporter, place_unfinished: bool) -> None:
        self._workspace, self._reporter, self._place_unfinished = workspace, reporter, place_unfinished
        self._started, self._due = time.monotonic(), _FIRST_TABLE_S

    def __call__(self, ended: int, planned: int) -> None:
        """Called as a run ends, with the number of those that have, and of all."""
        passed = time.monotonic() - self._started
        if passed < self._due or ended == planned:
            return
        while self._due <= passed:
            self._due *= 2
        from results import Store

        self._reporter.note(f"so far, {ended} of {planned} runs:")
        try:
            with Store(self._workspace.database) as store:
                page = _show(store, self._workspace, self._reporter, place_unfinished=self._place_unfinished)
        except Exception as error:  # the runs to go are worth more than a table on the way
            self._reporter.note(f"no leaderboard yet: {type(error).__name__}: {error}", style="yellow")
        else:
            self._reporter.note(f"{planned - ended} runs to go; report so far: {page}")


def _show(store: Store, workspace: Workspace, reporter: Reporter, *, place_unfinished: bool) -> Path:
    """Print the leaderboard, and write the report; gives its page."""
    from reports.html.report import write_report
    from reports.text.terminal import print_leaderboard
    from results.db.intact import read_intact

    read_intact(store, lambda: print_leaderboard(store, reporter.console, place_unfinished=place_unfinished))
    return read_intact(store, lambda: write_report(store, workspace.report, place_unfinished=place_unfinished))
