"""`execute_run(key, workspace)`: executes a planned run; finished ones are re-used, and an error becomes its row.

All that it needs is in the store and the workspace, so that it is the same in this process, in a worker of an executor,
and in `bench work` on another machine. The lock of a run's folder decides who executes it.
"""

import json
import os
import shutil
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

import torch
from rich.console import Console

from harness.benchmark.captions import score_captions
from harness.benchmark.context import RunContext
from harness.benchmark.costs import weights_folder
from harness.benchmark.plan_runs import describe
from harness.benchmark.reuse import check_versions
from harness.benchmark.run import RunTools, evaluate_ensemble, evaluate_run, run_hub, score_reference, train_run
from harness.benchmark.run_reporter import RunReporter
from harness.benchmark.scoring import add_missing_scores, score_held_out
from harness.benchmark.services import Services, services_of
from harness.config.run import (
    CaptionsRun,
    EnsembleRun,
    HubRun,
    PretrainedRun,
    ReferenceRun,
    RunConfig,
    StoredRun,
    TrainedRun,
    config_of,
)
from harness.data.hub import WeightsMissing
from harness.executors import CallError
from harness.key import check_plugins, run_key, training_reads
from harness.measure.environment import describe_state
from harness.metrics.languages import missing_in_language
from harness.metrics.spice import find_spice
from harness.training.checkpoint import last_checkpoint, read_position
from harness.training.distributed import other_ranks
from harness.training.launch import is_launched
from harness.training.stage_cache import BEGINNING, StageCache
from harness.training.trackers import RunLog
from harness.training.trainer import CHECKPOINTS
from harness.utils.atomic import write_text
from harness.utils.errors import INTERRUPTED, BenchError, wants_traceback
from harness.utils.files import shortened
from harness.utils.plugins import contain_exits, place_in_plugin
from harness.utils.progress import Reporter, describe_seconds
from harness.utils.workspace import Workspace, is_locked, locked
from results.errors import StoreError
from results.metrics import metric_names
from results.records import EpochRecord, Outcome, Quantity, RunSpec
from results.runs.reading import one_run
from results.runs.spreads import machine_of
from results.store.rescoring import has_run_of, missing_metrics, splits_without_held_out

LOG_TAIL_LINES = 40
LOCK, LOG = "lock", "log.txt"
RERUN_BY = "rerun_by.txt"
"""In the folder of a run while it is retrained: the id of the Slurm job, empty outside Slurm."""
Ended = Literal["finished", "reused", "failed", "skipped", "busy"]
_SEEN_WHILE_TRAINING: Final = frozenset(
    {"train_beside", "train_peak_memory_host", "train_peak_memory_device", "train_peak_memory_reserved"}
)
"""Costs that are measured during training: the epochs in the database do not have them."""
_OF_THE_MACHINE: Final = frozenset(
    {
        *("train_seconds", "train_images_per_second", "train_data_wait"),
        *("train_gmac_per_second", "train_utilisation", "train_a100_hours_estimate"),
    }
)
"""Costs that depend on the machine."""


class _BusyError(Exception):
    """Another command executes the run."""


def execute_run(key: str, workspace: Workspace, rerun: bool = False, wait: bool = True) -> Ended:
    """Execute a planned run of a workspace, unless it is finished; an error in it becomes its row.

    Args:
        rerun: train a finished run again, from its beginning.
        wait: for another command that executes the run; otherwise it is `busy`.

    Raises:
        BenchError: the row does not say how it is executed.
    """
    services, folder = services_of(workspace), workspace.run_folder(key)
    folder.mkdir(parents=True, exist_ok=True)

    def on_wait() -> None:
        if not wait:
            raise _BusyError
        services.reporter.note(f"  {key}: another process works on it; waiting")

    with ExitStack() as stack:
        if services.is_of_worker:
            log = stack.enter_context((folder / LOG).open("a", encoding="utf-8"))
            services.reporter = Reporter(Console(file=log, width=120))
        reporter = services.reporter
        try:
            stack.enter_context(locked(folder / LOCK, on_wait))
        except _BusyError:
            return "busy"
        spec = services.store.spec(key)
        if not rerun and services.store.status(key) == "finished":
            try:
                added = _add_what_is_missing(spec, services)
            except Exception as error:  # the other runs go on
                added = f"; not scored again: {error}"
            reporter.log(f"  {spec.model}: re-used, finished before{added}")
            return "reused"
        config = config_of(spec)
        services.load(config.execution.plugins)
        if rerun and not _is_requeued(folder):
            shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
            (folder / BEGINNING).unlink(missing_ok=True)
            write_text(folder / RERUN_BY, os.environ.get("SLURM_JOB_ID", ""))
        started = time.monotonic()
        devices = config.execution.devices if config.kind == "trained" else 1
        with nullcontext() if devices == 1 or is_launched() else other_ranks(devices):
            ended = _run_and_store(spec, config, services, rerun=rerun)
        (folder / RERUN_BY).unlink(missing_ok=True)
        if ended == "finished":
            reporter.log(f"  done in {describe_seconds(time.monotonic() - started)}")
        return ended


def _is_requeued(folder: Path) -> bool:
    """Whether this Slurm job began to retrain the run before it was requeued, and so resumes it."""
    if not int(os.environ.get("SLURM_RESTART_COUNT") or 0) or not (folder / RERUN_BY).is_file():
        return False
    return (folder / RERUN_BY).read_text(encoding="utf-8") == os.environ.get("SLURM_JOB_ID", "")


def _run_and_store(spec: RunSpec, config: RunConfig, services: Services, *, rerun: bool) -> Ended:
    """Execute a run that this process has locked; it ends as a row of the store."""
    store, workspace = services.store, services.workspace
    reporter = RunReporter(services.reporter, store, spec.key)
    device = torch.device(config.execution.device)
    environment = {**services.environment(device), "state": describe_state(device)}
    environment["plugins"] = dict(config.execution.digests)
    store.begin(spec.key, environment, spec.code)
    try:
        with contain_exits():
            check_plugins(config.execution.digests)
            if not (rerun or config.execution.accept_mixed):
                check_versions(spec.key, store, environment)
            context = services.context(config)
            _refuse_other_key(spec, config, context, workspace)
            services.warm_up(context)
            # Rows without a model here have no experiment trackers.
            names = () if spec.kind in {"captions", "reference"} else config.execution.log
            with RunLog(names, spec, workspace.logs, reporter) as log:

                def record(epoch: EpochRecord) -> None:
                    store.record_epoch(spec.key, epoch)
                    log.on_epoch(epoch)

                if not rerun:
                    _discard_checkpoints_without_epochs(spec.key, services)
                machine = machine_of(environment, "trained")
                evaluator, held_out = services.evaluator(context), has_run_of(store, "human", spec.dataset)
                tools = RunTools(
                    folder=weights_folder(spec.key, config, workspace),
                    store=store,
                    evaluator=evaluator,
                    reporter=reporter,
                    on_epoch=record,
                    on_step=log.on_step,
                    stage_cache=_stage_cache(spec, config, services, context, machine, may_reuse=not rerun),
                    held_out=held_out,
                )
                match config:
                    case TrainedRun():
                        outcome = train_run(config, context, tools)
                    case PretrainedRun() | StoredRun():
                        outcome = evaluate_run(config, context, tools)
                    case EnsembleRun():
                        outcome = evaluate_ensemble(config, context, tools)
                    case HubRun():
                        outcome = run_hub(config, context, tools)
                    case CaptionsRun():
                        outcome = score_captions(config, context.data, evaluator, held_out=held_out)
                    case ReferenceRun():
                        outcome = score_reference(config.model, context.data, evaluator, held_out=held_out)
                outcome = _costs_with_beginning(outcome, workspace.run_folder(spec.key) / BEGINNING, machine)
                outcome = replace(outcome, environment=environment | outcome.environment)
                log.finish(outcome)
        store.finish(spec.key, outcome)
    except KeyboardInterrupt:
        with suppress(StoreError):  # what ends is the command, whatever the store says
            store.interrupt(spec.key, INTERRUPTED)
        raise
    except WeightsMissing as missing:
        reason = f"{missing} ({missing.hint})"
        store.skip(spec.key, reason)
        reporter.note(f"  skipped: {reason}", style="yellow")
        return "skipped"
    except Exception as error:
        tail = "\n".join(traceback.format_exc().splitlines()[-LOG_TAIL_LINES:])
        reason = str(error) or type(error).__name__
        if line := place_in_plugin(error):
            reason += f" ({line})"
        if hint := getattr(error, "hint", None):
            reason += f" ({hint})"
        store.fail(spec.key, type(error).__name__, reason, tail)
        reporter.note(f"  failed: {type(error).__name__}: {reason}", style="red")
        if wants_traceback():
            reporter.note(traceback.format_exc())
        return "failed"
    return "finished"


def _refuse_other_key(spec: RunSpec, config: RunConfig, context: RunContext, workspace: Workspace) -> None:
    """BenchError where what is executed here is not what was planned: other data, weights, code, or another release.

    An ensemble is what its members are.
    """
    folder = config.files.checkpoint
    if folder is not None and not folder.is_dir():  # the run itself is skipped then
        return
    if config.kind == "ensemble":
        if context.data.fields.data != spec.dataset:
            raise BenchError(f"the data are {context.data.fields.data}, not {spec.dataset}", "plan the ensemble again")
        return
    signature, code = describe(config, context, workspace)
    if (key := run_key(config, signature, code)) == spec.key:
        return
    names = sorted(
        name
        for name in {**signature, **spec.signature}
        if signature.get(name) != spec.signature.get(name) and name != "v"
    )
    if not names and spec.code is not None:
        names = spec.code.changed_files(code)
    differing = ", ".join(names[:4]) or "other settings"
    raise BenchError(
        f"{spec.key} was planned, and what would be executed here is {key}; other: {differing}",
        "plan it again by the `bench run` that it is of",
    )


def _add_what_is_missing(spec: RunSpec, services: Services) -> str:
    """A note on scores that a finished run lacked, and that were added now or cannot be had."""
    store = services.store
    config = None if spec.config is None else config_of(spec)
    tried = set(metric_names()) - services.unscored - (set() if find_spice() is not None else {"SPICE"})
    if config is not None:
        tried -= missing_in_language(config.tokenizer, config.language).keys()
    missing = missing_metrics(store, spec.key, tried)
    has_people = has_run_of(store, "human", spec.dataset)
    held_out = set()
    if has_people and spec.model != "human":
        held_out = splits_without_held_out(store, spec.key) - missing.keys()
    if not missing and not held_out:
        return ""
    if config is None or config.files.data is None:  # of a published copy
        return "; not scored again: its row does not say where its data lie"
    services.load(config.execution.plugins)
    context = services.context(config)
    services.warm_up(context)
    evaluator = services.evaluator(context)
    if held_out:
        score_held_out(spec, held_out, context.data, evaluator, store)
    reasons = add_missing_scores(spec, missing, context.data, evaluator, store, held_out=has_people)
    services.unscored |= {metric for metric, reason in reasons.items() if reason}
    return "".join(f"; {metric}: {reason or 'scored now'}" for metric, reason in reasons.items())


def _discard_checkpoints_without_epochs(key: str, services: Services) -> None:
    """Remove checkpoints that are ahead of the stored epochs: reports need all epochs to say how training ended."""
    folder = services.workspace.run_folder(key)
    if (checkpoint := last_checkpoint(folder / CHECKPOINTS)) is None:
        return
    position, stored = read_position(checkpoint), one_run(services.store, key).epochs
    if position is None or position["total_steps"] - position["batch"] <= (stored[-1].step if stored else 0):
        return
    services.reporter.note("  trained anew: its epochs, which tell how training ended, are not all in the database")
    shutil.rmtree(folder / CHECKPOINTS)


def _stage_cache(
    spec: RunSpec, config: RunConfig, services: Services, context: RunContext, machine: str, *, may_reuse: bool
) -> StageCache | None:
    """The finished stages of the workspace that a run may begin with; None of a run that is not trained."""
    if config.kind != "trained" or spec.code is None:
        return None
    trained_as = config.execution.record(context.compute.device, 1)
    return StageCache(
        folder=services.workspace.stages,
        reads=training_reads(config, spec.signature, spec.code, trained_as),
        run=spec.key,
        machine=machine,
        recorded=lambda: one_run(services.store, spec.key).epochs,
        may_reuse=may_reuse,
    )


def _costs_with_beginning(outcome: Outcome, beginning: Path, machine: str) -> Outcome:
    """The outcome without the costs that were not measured, where another run trained the first stages."""
    if not beginning.is_file():
        return outcome
    begun = json.loads(beginning.read_text(encoding="utf-8"))
    unseen, reason = set(_SEEN_WHILE_TRAINING), f"its beginning was trained by {begun['made_by']}"
    if begun["machine"] != machine:
        unseen |= _OF_THE_MACHINE
        reason += f", on {begun['machine'] or 'another machine'}"
    costs = {
        name: Quantity(None, reason, cost.unit) if name in unseen else cost for name, cost in outcome.costs.items()
    }
    return replace(outcome, costs=costs, environment={**outcome.environment, "first_stages_of": begun["made_by"]})


def mark_interrupted(keys: Sequence[str], services: Services, wait_s: float) -> None:
    """Store that runs whose workers have ended were interrupted; not of those that another command executes.

    `wait_s` is how long the workers may take to let go of the runs' locks.
    """
    end = time.monotonic() + wait_s
    for key in keys:
        lock = services.workspace.run_folder(key) / LOCK
        while (held := is_locked(lock)) and time.monotonic() < end:
            time.sleep(0.05)
        if not held:
            with suppress(StoreError):  # what ends is the command, whatever the store says
                services.store.interrupt(key, INTERRUPTED)


def execute_planned(keys: Sequence[str] | None, services: Services) -> dict[str, Ended]:
    """Execute these runs of a store, or, where none are named, planned ones until none is left; gives how they ended.

    Several processes may do so at once: a run that another executes is left to it.
    """
    store, workspace, ended = services.store, services.workspace, dict[str, Ended]()
    if unknown := next((key for key in keys or () if store.status(key) is None), None):
        raise BenchError(
            f"no run {shortened(unknown)} in {store.name}", "leave the key out to execute all planned runs"
        )
    left = list(store.keys({"planned", "running"}) if keys is None else keys)
    specs = {key: store.spec(key) for key in left}
    configs = {key: config_of(spec) for key, spec in specs.items() if spec.config is not None}
    # First those without plug-ins: what one run loads stays loaded, and runs that were planned without it refuse that.
    left.sort(key=lambda key: len(configs[key].execution.plugins) if key in configs else 0)
    ensembles = {key: config.members for key, config in configs.items() if config.kind == "ensemble"}
    runs = [key for key in left if key not in ensembles]
    for wait in (False, True):  # those that another process executes come last
        for key in runs:
            is_planned = keys is not None or store.status(key) in {"planned", "running"}
            if is_planned and ended.get(key, "busy") == "busy":
                ended[key] = _execute_or_fail(key, services, wait)
    for key, members in ensembles.items():  # when the members that are planned here have ended
        for member in members:
            lock = workspace.run_folder(member) / LOCK
            if is_locked(lock):
                with locked(
                    lock, partial(services.reporter.note, f"  {key}: another process trains a member; waiting")
                ):
                    pass
        if keys is not None or store.status(key) in {"planned", "running"}:
            ended[key] = _execute_or_fail(key, services, wait=True)
    return {key: how for key, how in ended.items() if how != "busy"}


def _execute_or_fail(key: str, services: Services, wait: bool) -> Ended:
    """Execute a planned run; an error before the run itself is stored as its failure, and the others go on."""
    try:
        return execute_run(key, services.workspace, wait=wait)
    except Exception as error:
        failure = CallError.of(error)
        services.store.fail(key, failure.error_class, failure.reason, "")
        services.reporter.note(f"  {key}: failed: {failure}", style="red")
        return "failed"
