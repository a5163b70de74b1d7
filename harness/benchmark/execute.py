"""`execute_run(key, workspace)` executes a planned run and stores its outcome.

It reads all that it needs from the store and the workspace, so it works in this process, in a worker of an executor,
and in `bench work` on another machine alike. Whoever holds the lock of the run's folder executes the run.
"""

import json
import os
import shutil
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

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
"""A file in the run's folder while it is retrained: the id of the Slurm job, empty outside Slurm."""
Ended = Literal["finished", "reused", "failed", "skipped", "busy"]
_MEASURED_WHILE_TRAINING: Final = frozenset(
    {"train_beside", "train_peak_memory_host", "train_peak_memory_device", "train_peak_memory_reserved"}
)
"""Costs that are measured during training and not stored with its epochs."""
_MACHINE_COSTS: Final = frozenset(
    {
        "train_seconds",
        "train_images_per_second",
        "train_data_wait",
        "train_gmac_per_second",
        "train_utilisation",
        "train_a100_hours_estimate",
    }
)
"""Training costs that depend on the machine."""


class _BusyError(Exception):
    """Another command executes the run."""


def execute_run(key: str, workspace: Workspace, rerun: bool = False, wait: bool = True) -> Ended:
    """Execute a planned run of a workspace unless it is finished; an error in the run is stored as its failure.

    Args:
        rerun: train a finished run again, from its beginning.
        wait: wait for another process that executes the run; without it, the run ends as `busy` here.

    Raises:
        BenchError: the run's row has no configuration.
    """
    services = services_of(workspace)
    folder = workspace.run_folder(key)
    folder.mkdir(parents=True, exist_ok=True)

    def on_wait() -> None:
        if not wait:
            raise _BusyError
        services.reporter.note(f"  {key}: another process executes it; waiting")

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
                added = _add_missing_scores_of_run(spec, services)
            except Exception as error:  # must not stop the other runs
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
    """Whether this Slurm job had begun to retrain the run when it was requeued, and now resumes it."""
    if not int(os.environ.get("SLURM_RESTART_COUNT") or 0) or not (folder / RERUN_BY).is_file():
        return False
    return (folder / RERUN_BY).read_text(encoding="utf-8") == os.environ.get("SLURM_JOB_ID", "")


def _run_and_store(spec: RunSpec, config: RunConfig, services: Services, *, rerun: bool) -> Ended:
    """Execute a run that this process has locked, and store its outcome or its failure."""
    store = services.store
    reporter = RunReporter(services.reporter, store, spec.key)
    device = torch.device(config.execution.device)
    environment = {**services.environment(device), "state": describe_state(device)}
    environment["plugins"] = dict(config.execution.digests)
    store.begin(spec.key, environment, spec.code)
    try:
        with contain_exits():
            outcome = _run(spec, config, services, environment, reporter, rerun=rerun)
        store.finish(spec.key, outcome)
    except KeyboardInterrupt:
        with suppress(StoreError):  # the command ends even where the database cannot be written
            store.interrupt(spec.key, INTERRUPTED)
        raise
    except WeightsMissing as error:
        reason = f"{error} ({error.hint})"
        store.skip(spec.key, reason)
        reporter.note(f"  skipped: {reason}", style="yellow")
        return "skipped"
    except Exception as error:
        reason = str(error) or type(error).__name__
        if line := place_in_plugin(error):
            reason += f" ({line})"
        if hint := getattr(error, "hint", None):
            reason += f" ({hint})"
        trace = traceback.format_exc()
        store.fail(spec.key, type(error).__name__, reason, "\n".join(trace.splitlines()[-LOG_TAIL_LINES:]))
        reporter.note(f"  failed: {type(error).__name__}: {reason}", style="red")
        if wants_traceback():
            reporter.note(trace)
        return "failed"
    return "finished"


def _run(
    spec: RunSpec,
    config: RunConfig,
    services: Services,
    environment: Mapping[str, Any],
    reporter: Reporter,
    *,
    rerun: bool,
) -> Outcome:
    """The outcome of a run, executed by the function for its kind.

    Raises:
        BenchError: code, data or package versions are not those that the run was planned with.
    """
    store = services.store
    workspace = services.workspace

    # Check that this process would execute what was planned.
    check_plugins(config.execution.digests)
    if not (rerun or config.execution.accept_mixed):
        check_versions(spec.key, store, environment)
    context = services.context(config)
    _refuse_other_key(spec, config, context, workspace)

    evaluator = services.evaluator(context)
    services.warm_up(context)
    held_out = has_run_of(store, "human", spec.dataset)
    machine = machine_of(environment, "trained")
    if not rerun:
        _discard_checkpoints_without_epochs(spec.key, services)

    has_model = spec.kind not in {"captions", "reference"}
    with RunLog(config.execution.log if has_model else (), spec, workspace.logs, reporter) as log:

        def record_epoch(epoch: EpochRecord) -> None:
            store.record_epoch(spec.key, epoch)
            log.on_epoch(epoch)

        tools = RunTools(
            folder=weights_folder(spec.key, config, workspace),
            store=store,
            evaluator=evaluator,
            reporter=reporter,
            on_epoch=record_epoch,
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
        outcome = _without_unmeasured_costs(outcome, workspace.run_folder(spec.key) / BEGINNING, machine)
        outcome = replace(outcome, environment={**environment, **outcome.environment})
        log.finish(outcome)
    return outcome


def _refuse_other_key(spec: RunSpec, config: RunConfig, context: RunContext, workspace: Workspace) -> None:
    """BenchError if data, weights, code or release differ from those that the run was planned with.

    Of an ensemble only the data are compared: its members are checked when they are executed.
    """
    folder = config.files.checkpoint
    if folder is not None and not folder.is_dir():  # the run will be skipped, with the reason
        return
    if config.kind == "ensemble":
        if context.data.fields.data != spec.dataset:
            raise BenchError(
                f"the ensemble was planned for {spec.dataset}, but the data are {context.data.fields.data}",
                "run its `bench run` command again",
            )
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
        f"{spec.key} was planned, but the run would be {key} here; different: {differing}",
        "run its `bench run` command again, which plans it anew",
    )


def _add_missing_scores_of_run(spec: RunSpec, services: Services) -> str:
    """Compute the scores that a finished run lacks; gives a note on each, to be appended to a line of the log."""
    store = services.store
    config = None if spec.config is None else config_of(spec)
    metrics = set(metric_names()) - services.unscored
    if find_spice() is None:
        metrics.discard("SPICE")
    if config is not None:
        metrics -= missing_in_language(config.tokenizer, config.language).keys()
    missing = missing_metrics(store, spec.key, metrics)
    has_people = has_run_of(store, "human", spec.dataset)
    held_out = set()
    if has_people and spec.model != "human":
        held_out = splits_without_held_out(store, spec.key) - missing.keys()
    if not missing and not held_out:
        return ""
    if config is None or config.files.data is None:  # a published database has no paths
        return "; not scored again: its row has no path of the data"
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
    """Remove checkpoints that are ahead of the stored epochs: reports show a learning curve without gaps."""
    folder = services.workspace.run_folder(key)
    checkpoint = last_checkpoint(folder / CHECKPOINTS)
    if checkpoint is None:
        return
    position = read_position(checkpoint)
    epochs = one_run(services.store, key).epochs
    stored_steps = epochs[-1].step if epochs else 0
    if position is None or position["total_steps"] - position["batch"] <= stored_steps:
        return
    services.reporter.note("  trained anew: the database lacks epochs that its checkpoint has")
    shutil.rmtree(folder / CHECKPOINTS)


def _stage_cache(
    spec: RunSpec, config: RunConfig, services: Services, context: RunContext, machine: str, *, may_reuse: bool
) -> StageCache | None:
    """The workspace's finished training stages, which a run may start from; None for a run without training."""
    if config.kind != "trained" or spec.code is None:
        return None
    execution = config.execution.record(context.compute.device, 1)
    return StageCache(
        folder=services.workspace.stages,
        reads=training_reads(config, spec.signature, spec.code, execution),
        run=spec.key,
        machine=machine,
        recorded=lambda: one_run(services.store, spec.key).epochs,
        may_reuse=may_reuse,
    )


def _without_unmeasured_costs(outcome: Outcome, beginning: Path, machine: str) -> Outcome:
    """The outcome without the training costs that could not be measured, where another run trained the first stages.

    Args:
        beginning: the file that names the other run and its machine; absent where the run trained all stages itself.
        machine: the processor or GPU of this run.
    """
    if not beginning.is_file():
        return outcome
    origin = json.loads(beginning.read_text(encoding="utf-8"))
    unmeasured = set(_MEASURED_WHILE_TRAINING)
    reason = f"its first stages were trained by {origin['made_by']}"
    if origin["machine"] != machine:
        unmeasured |= _MACHINE_COSTS
        reason += f", on {origin['machine'] or 'another machine'}"
    costs = dict(outcome.costs)
    for name in unmeasured & costs.keys():
        costs[name] = Quantity(None, reason, costs[name].unit)
    return replace(outcome, costs=costs, environment={**outcome.environment, "first_stages_of": origin["made_by"]})


def mark_interrupted(keys: Sequence[str], services: Services, wait_s: float) -> None:
    """Store that these runs were interrupted, except those that another command executes.

    Args:
        wait_s: how long the runs' own workers may take to release their locks.
    """
    deadline = time.monotonic() + wait_s
    for key in keys:
        lock = services.workspace.run_folder(key) / LOCK
        while (held := is_locked(lock)) and time.monotonic() < deadline:
            time.sleep(0.05)
        if not held:
            with suppress(StoreError):  # the command ends even where the database cannot be written
                services.store.interrupt(key, INTERRUPTED)


def execute_planned(keys: Sequence[str] | None, services: Services) -> dict[str, Ended]:
    """Execute these runs of a store, or, without keys, all planned ones; gives how each ended, by key.

    Several processes may do so at once: a run that another process executes is left to it.
    """
    store = services.store
    workspace = services.workspace
    if unknown := next((key for key in keys or () if store.status(key) is None), None):
        raise BenchError(
            f"no run {shortened(unknown)} in {store.name}", "leave the key out to execute all planned runs"
        )
    remaining = list(store.keys({"planned", "running"}) if keys is None else keys)
    specs = {key: store.spec(key) for key in remaining}
    configs = {key: config_of(spec) for key, spec in specs.items() if spec.config is not None}
    # Plug-ins stay loaded, and runs that were planned without them refuse to start: runs without plug-ins come first.
    remaining.sort(key=lambda key: len(configs[key].execution.plugins) if key in configs else 0)
    ensembles = {key: config.members for key, config in configs.items() if config.kind == "ensemble"}
    runs = [key for key in remaining if key not in ensembles]

    def is_planned(key: str) -> bool:
        return keys is not None or store.status(key) in {"planned", "running"}

    ended: dict[str, Ended] = {}
    for wait in (False, True):  # runs that another process executes are waited for in the end
        for key in runs:
            if is_planned(key) and ended.get(key, "busy") == "busy":
                ended[key] = _execute_or_fail(key, services, wait)
    for key, members in ensembles.items():
        on_wait = partial(services.reporter.note, f"  {key}: another process trains a member; waiting")
        for member in members:
            lock = workspace.run_folder(member) / LOCK
            if is_locked(lock):
                with locked(lock, on_wait):
                    pass
        if is_planned(key):
            ended[key] = _execute_or_fail(key, services, wait=True)
    return {key: status for key, status in ended.items() if status != "busy"}


def _execute_or_fail(key: str, services: Services, wait: bool) -> Ended:
    """Execute a planned run; where even its configuration cannot be read, store that as its failure."""
    try:
        return execute_run(key, services.workspace, wait=wait)
    except Exception as error:
        failure = CallError.of(error)
        services.store.fail(key, failure.error_class, failure.reason, "")
        services.reporter.note(f"  {key}: failed: {failure}", style="red")
        return "failed"
