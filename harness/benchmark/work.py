"""`work(key)`: executes a planned run of a store; finished ones are re-used, and an error becomes the row of its run.

All that it needs is in the store and the workspace, so that it is the same in this process, in a worker of an engine,
and in `bench work` on another machine. The lock of a run's folder decides who executes it.
"""

import json
import os
import shutil
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

import torch
from rich.console import Console

from harness.benchmark.context import Check, RunContext, open_context
from harness.benchmark.engines import Failure
from harness.benchmark.plan_runs import describe
from harness.benchmark.reuse import check_versions
from harness.benchmark.run import run
from harness.benchmark.scoring import add_missing_scores
from harness.benchmark.train import BEGINNING
from harness.config.run import Conditions, RunBase, RunConfig, config_of
from harness.data.feature_cache import Spread
from harness.data.hub import WeightsMissing
from harness.key import check_plugins, run_key, training_reads
from harness.measure.environment import describe_environment
from harness.metrics.contract import METRICS
from harness.metrics.evaluator import Evaluator
from harness.metrics.signature import EvaluationSettings
from harness.metrics.spice import find_spice
from harness.training.checkpoint import last_checkpoint, read_position
from harness.training.distributed import other_ranks
from harness.training.finished_stages import FinishedStages
from harness.training.launch import is_launched
from harness.training.trackers import RunLog
from harness.training.trainer import CHECKPOINTS
from harness.utils.errors import INTERRUPTED, BenchError, wants_traceback
from harness.utils.files import shortened
from harness.utils.plugins import contain_exits, load_plugins, place_in_plugin
from harness.utils.progress import Reporter, Task, describe_seconds
from harness.utils.workspace import Workspace, is_locked, locked
from results import Store
from results.errors import StoreError
from results.records import EpochRecord, Outcome, Quantity, RunSpec
from results.runs.reading import one_run
from results.runs.spreads import machine_of
from results.store.rescoring import missing_metrics

LOG_TAIL_LINES = 40
LOCK, LOG = "lock", "log.txt"
PROGRESS_S = 2.0
KEPT_LINES = 20
Ended = Literal["finished", "reused", "failed", "skipped"]
_SEEN_WHILE_TRAINING: Final = frozenset(
    {"train_beside", "train_peak_memory_host", "train_peak_memory_device", "train_peak_memory_reserved"}
)
"""Costs that need a look at every stage: epochs do not tell them."""
_OF_THE_MACHINE: Final = frozenset(
    {
        *("train_seconds", "train_images_per_second", "train_data_wait"),
        *("train_gmac_per_second", "train_utilisation", "train_a100_hours_estimate"),
    }
)
"""Costs that say something of one machine alone."""


class Services(ExitStack):
    """What a process opens once for all runs that it executes: the store, the scorers, and data by what is opened.

    Nothing is opened before it is asked for.
    """

    def __init__(self, workspace: Workspace, reporter: Reporter, plugins: Sequence[str] = ()) -> None:
        super().__init__()
        self.workspace, self.reporter = workspace, reporter
        self._plugins = set(plugins)
        self._contexts: dict[str, RunContext] = {}
        self._warm = False
        self.environment: Callable[[torch.device], dict[str, Any]] = cache(describe_environment)
        self.unscored: set[str] = set()

    def load(self, plugins: Sequence[str]) -> None:
        """Load the plug-ins of a run that are not loaded yet."""
        load_plugins(name for name in plugins if name not in self._plugins)
        self._plugins.update(plugins)

    @cached_property
    def store(self) -> Store:
        """The results of the workspace."""
        return self.enter_context(Store(self.workspace.database))

    @cached_property
    def evaluator(self) -> Evaluator:
        """What scores captions; its processes start behind the first training."""
        return self.enter_context(Evaluator(settings=EvaluationSettings(spice=find_spice() is not None)))

    def context(
        self, conditions: Conditions, *, check: Check = lambda _: None, spread: Spread | None = None
    ) -> RunContext:
        """Data, features and vocabulary of runs, with the preset and the execution of these conditions."""
        name = conditions.opened()
        if name not in self._contexts:
            self._contexts.clear()  # the runs of a benchmark share one
            self._contexts[name] = open_context(conditions, self.workspace, self.reporter, check=check, spread=spread)
        context = self._contexts[name]
        context = replace(context, execution=replace(context.execution, config=conditions.execution))
        return context.with_preset(conditions.preset, conditions.made_from if isinstance(conditions, RunBase) else None)

    def warm_up(self, context: RunContext) -> None:
        """Start what scores captions, hidden behind the first training."""
        if not self._warm:
            samples = chain.from_iterable(context.data.evaluated.values())
            references = chain.from_iterable(sample.captions for sample in samples)
            self.evaluator.warm_up([*context.inputs.vocabulary.words, *references])
            self._warm = True


class OwnServices:
    """A `Call` of engines that opens the services of its process, and is pickled without them."""

    services: Services | None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "services": None}

    def close(self) -> None:
        """Close the services of this process."""
        if self.services is not None:
            self.services.close()
            self.services = None


@dataclass
class Work(OwnServices):
    """Executes planned runs of a workspace by their keys, one after another.

    Attributes:
        rerun: train finished runs again, from their beginning.
        services: those of this process; another one opens its own, and writes what it says to the folders of runs.
    """

    workspace: Workspace
    rerun: bool = False
    services: Services | None = field(default=None, compare=False)
    _elsewhere: bool = field(default=False, init=False, compare=False)

    def __call__(self, key: str) -> Ended:
        """Execute a run unless it is finished; wait for another process that executes it."""
        folder = self.workspace.run_folder(key)
        folder.mkdir(parents=True, exist_ok=True)
        if self.services is None:
            self.services, self._elsewhere = Services(self.workspace, Reporter()), True
        services = self.services
        with ExitStack() as stack:
            if self._elsewhere:
                log = stack.enter_context((folder / LOG).open("a", encoding="utf-8"))
                services.reporter = Reporter(Console(file=log, width=120))
            reporter = services.reporter
            waits = f"  {key}: another process works on it; waiting"
            stack.enter_context(locked(folder / LOCK, lambda: reporter.note(waits)))
            spec = services.store.spec(key)
            if spec.config is None and self.is_done(key):  # a published copy tells no more
                reporter.log(f"  {spec.model}: re-used, finished before")
                return "reused"
            config = config_of(spec)
            services.load(config.execution.plugins)
            if self.is_done(key):
                missing = _add_what_is_missing(spec, config, services)
                reporter.log(f"  {spec.model}: re-used, finished before{missing}")
                return "reused"
            if self.rerun and not int(os.environ.get("SLURM_RESTART_COUNT") or 0):  # a requeued job goes on
                shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
                (folder / BEGINNING).unlink(missing_ok=True)
            started = time.monotonic()
            devices = config.execution.devices
            with nullcontext() if devices == 1 or is_launched() else other_ranks(devices):
                ended = _execute(spec, config, services, rerun=self.rerun)
            if ended == "finished":
                reporter.log(f"  done in {describe_seconds(time.monotonic() - started)}")
            return ended

    def is_done(self, key: str) -> bool:
        """Whether there is nothing to do but to re-use what is there."""
        assert self.services is not None
        return not self.rerun and self.services.store.status(key) == "finished"


def _execute(spec: RunSpec, config: RunConfig, services: Services, *, rerun: bool) -> Ended:
    """Execute a run that this process has locked; it ends as a row of the store."""
    store, workspace = services.store, services.workspace
    reporter = RunReporter(services.reporter, store, spec.key)
    device = torch.device(config.execution.device)
    environment = {**services.environment(device), "plugins": dict(config.execution.digests)}
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
                    _discard_training_ahead(spec.key, services)
                machine = machine_of(environment, "trained")
                outcome = run(
                    spec.key,
                    config,
                    context,
                    services,
                    on_epoch=record,
                    on_step=log.on_step,
                    reporter=reporter,
                    kept=_kept_stages(spec, config, services, context, machine, take=not rerun),
                )
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
        place, hint = place_in_plugin(error), getattr(error, "hint", None)
        reason = (str(error) or type(error).__name__) + "".join(f" ({said})" for said in (place, hint) if said)
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
    if folder is not None and not folder.is_dir():  # missing weights their run tells
        return
    if config.kind == "ensemble" and context.data.fields.data == spec.dataset:
        return
    if config.kind == "ensemble":
        raise BenchError(f"the data are {context.data.fields.data}, not {spec.dataset}", "plan the ensemble again")
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


def _add_what_is_missing(spec: RunSpec, config: RunConfig, services: Services) -> str:
    """A note on scores that a finished run lacked, and that were added now or cannot be had."""
    store = services.store
    tried = set(METRICS) - services.unscored - (set() if find_spice() is not None else {"SPICE"})
    missing = missing_metrics(store, spec.key, tried)
    if not missing:
        return ""
    if config.files.data is None:
        return "; not scored again: its row does not say where its data lie"
    context = services.context(config)
    services.warm_up(context)
    reasons = add_missing_scores(spec, missing, context.data, services.evaluator, store)
    services.unscored |= {metric for metric, reason in reasons.items() if reason}
    return "".join(f"; {metric}: {reason or 'scored now'}" for metric, reason in reasons.items())


def _discard_training_ahead(key: str, services: Services) -> None:
    """Remove checkpoints of epochs that the database does not have: they tell how training ended."""
    folder = services.workspace.run_folder(key)
    if (checkpoint := last_checkpoint(folder / CHECKPOINTS)) is None:
        return
    position, stored = read_position(checkpoint), one_run(services.store, key).epochs
    if position is None or position["total_steps"] - position["batch"] <= (stored[-1].step if stored else 0):
        return
    services.reporter.note("  trained anew: its epochs, which tell how training ended, are not all in the database")
    shutil.rmtree(folder / CHECKPOINTS)


def _kept_stages(
    spec: RunSpec, config: RunConfig, services: Services, context: RunContext, machine: str, *, take: bool
) -> FinishedStages | None:
    """The finished stages of the workspace that a run may begin with; None of a run that is not trained."""
    if config.kind != "trained" or spec.code is None:
        return None
    trained_as = config.execution.record(context.execution.device, 1)
    return FinishedStages(
        folder=services.workspace.stages,
        reads=training_reads(config, spec.signature, spec.code, trained_as),
        run=spec.key,
        machine=machine,
        recorded=lambda: one_run(services.store, spec.key).epochs,
        take=take,
    )


def _costs_with_beginning(outcome: Outcome, beginning: Path, machine: str) -> Outcome:
    """The outcome of a run whose first stages another one trained, if any: of these no look was had at the memory."""
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


class RunReporter(Reporter):
    """Another reporter, whose run also reports to the store what it is at; `bench run` shows it from there."""

    def __init__(self, reporter: Reporter, store: Store, key: str) -> None:
        self.console, self.display = reporter.console, reporter.display
        self._reporter, self._store, self._key = reporter, store, key
        self._said: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid(), "reported": 0, "lines": []}
        self._written = -PROGRESS_S

    def note(self, text: str, style: str = "") -> None:
        """See `Reporter.note`; the store keeps the last lines for a command that executes the run elsewhere."""
        self._reporter.note(text, style)
        self._keep(text, style, log=False)

    def log(self, text: str, style: str = "") -> None:
        """See `Reporter.log` and `note`."""
        self._reporter.log(text, style)
        self._keep(text, style, log=True)

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Task]:
        """See `Reporter.task`; a display has the run's line instead of a bar."""
        if self.display is None:
            with self._reporter.task(title, total, done) as plain:

                def show_in_lines(task: Task) -> None:
                    plain.reach(task.done, task.detail)
                    self._say_doing(task)

                yield Task(title, total, done, show_in_lines)
        else:
            yield Task(title, total, done, self._say_doing)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """See `Reporter.step`; the run's line has it."""
        self._said["doing"] = title
        self._write_in_time()
        yield

    def watch(self, **standing: Any) -> None:
        """See `Reporter.watch`."""
        said = self._said
        if standing.get("stage", said.get("stage")) != said.get("stage"):
            said |= dict.fromkeys(("epoch", "epochs", "loss", "cider", "images_per_second"))
            said["doing"] = standing["stage"]
        if "validated" in standing:
            said["cider"] = standing.pop("validated")
        said |= standing
        self._write_in_time()

    def _keep(self, text: str, style: str, *, log: bool) -> None:
        self._said["reported"] += 1
        self._said["lines"] = [*self._said["lines"], (text.strip(), style, log)][-KEPT_LINES:]
        self._store.report_progress(self._key, self._said)

    def _say_doing(self, task: Task) -> None:
        title, stage = task.title.strip(), self._said.get("stage")
        if stage is not None and title.startswith(f"{stage} epoch"):  # the epoch has a column of its own
            title = stage
        self._said["doing"] = f"{title} {100 * task.done // max(task.total, 1)} %"
        self._write_in_time()

    def _write_in_time(self) -> None:
        """Write to the store, but not more often than somebody looks."""
        now = time.monotonic()
        if now - self._written >= PROGRESS_S:
            self._written = now
            self._store.report_progress(self._key, self._said)


def next_free(keys: list[str], workspace: Workspace) -> str | None:
    """Take out the first run that no other command executes, or else the first; None where there are none."""
    free = (place for place, key in enumerate(keys) if not is_locked(workspace.run_folder(key) / LOCK))
    return keys.pop(next(free, 0)) if keys else None


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


def work_off(keys: Sequence[str] | None, services: Services) -> dict[str, Ended]:
    """Execute these runs of a store, or, where none are named, planned ones until none is left; gives how they ended.

    Several processes may do so at once: a run that another executes is left to it.
    """
    call, store, ended = Work(services.workspace, services=services), services.store, dict[str, Ended]()
    if unknown := next((key for key in keys or () if store.status(key) is None), None):
        raise BenchError(
            f"no run {shortened(unknown)} in {store.name}", "leave the key out to execute all planned runs"
        )
    left = list(store.keys({"planned", "running"}) if keys is None else keys)
    specs = {key: store.spec(key) for key in left}
    configs = {key: config_of(spec) for key, spec in specs.items() if spec.config is not None}
    members = {key: config.members if config.kind == "ensemble" else () for key, config in configs.items()}
    # First those without plug-ins: what one run loads stays loaded, and runs that were planned without it refuse that.
    left.sort(key=lambda key: (len(members.get(key, ())), key in configs and len(configs[key].execution.plugins)))
    while (key := next_free(left, services.workspace)) is not None:
        if keys is None and store.status(key) not in {"planned", "running"}:
            continue
        try:
            waits = partial(services.reporter.note, f"  {key}: another process trains a member; waiting")
            for lock in (services.workspace.run_folder(member) / LOCK for member in members.get(key, ())):
                with locked(lock, waits) if is_locked(lock) else nullcontext():
                    pass
            ended[key] = call(key)
        except Exception as error:  # before the run itself; the others go on
            failure = Failure.of(error)
            store.fail(key, failure.error_class, failure.reason, "")
            services.reporter.note(f"  {key}: failed: {failure}", style="red")
            ended[key] = "failed"
    return ended
