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
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import chain
from typing import Any, Final, Literal

import torch
from rich.console import Console

from harness.benchmark.context import Execution, RunContext, open_context
from harness.benchmark.engines import Failure
from harness.benchmark.identity.reuse import check_versions
from harness.benchmark.identity.sources import check_plugins
from harness.benchmark.run import run
from harness.benchmark.run_config import Opening, RunConfig
from harness.benchmark.saved_model import WEIGHTS
from harness.benchmark.scoring import add_missing_scores
from harness.data.feature_cache import Spread
from harness.data.hub import WeightsMissing
from harness.measure.environment import describe_environment
from harness.metrics.contract import METRICS
from harness.metrics.evaluator import Evaluator
from harness.metrics.signature import EvaluationSettings
from harness.training.checkpoint import is_whole, last_checkpoint, read_position, save_first_checkpoint
from harness.training.distributed import other_ranks
from harness.training.launch import is_launched
from harness.training.trackers import RunLog
from harness.training.trainer import CHECKPOINTS, TrainState
from harness.utils.atomic import replacing, write_text
from harness.utils.errors import INTERRUPTED, BenchError, wants_traceback
from harness.utils.files import shortened
from harness.utils.plugins import contain_exits, load_plugins, place_in_plugin
from harness.utils.progress import Reporter, Task, describe_seconds
from harness.utils.workspace import Workspace, is_locked, locked
from results import Store
from results.errors import StoreError
from results.records import EpochRecord, Quantity, RunSpec, stages_of
from results.runs.reading import finished, one_run
from results.runs.run import Run
from results.store.rescoring import missing_metrics

LOG_TAIL_LINES = 40
LOCK, LOG = "lock", "log.txt"
PROGRESS_S = 2.0
KEPT_LINES = 20
Ended = Literal["finished", "reused", "failed", "skipped"]
NOTE: Final = "first_stages_of"
_OF_THE_WHOLE: Final = {"schedule", "reward", "tuned", "size", "beam", "lenpen", "nrefs", "tok", "df", "v", "rev"}
"""Fields of the signature that say nothing of a single stage, or are compared otherwise: as settings, or as code."""
_SEEN_WHILE_TRAINING: Final = {
    "train_data_wait", "train_beside",
    "train_peak_memory_host", "train_peak_memory_device", "train_peak_memory_reserved",
}  # fmt: skip
"""Costs that need a look at every stage: epochs do not tell them."""


class Services(ExitStack):
    """What a process opens once for all runs that it executes: the store, the scorers, and data by their `Opening`.

    Nothing is opened before it is asked for.
    """

    def __init__(self, workspace: Workspace, reporter: Reporter, plugins: Sequence[str] = ()) -> None:
        super().__init__()
        self.workspace, self.reporter = workspace, reporter
        self._plugins = set(plugins)
        self._contexts: dict[str, RunContext] = {}
        self._evaluators: dict[bool, Evaluator] = {}
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

    def evaluator(self, opening: Opening) -> Evaluator:
        """What scores captions; its processes start behind the first training."""
        if (found := self._evaluators.get(opening.spice)) is None:
            settings = EvaluationSettings(spice=opening.spice)
            found = self._evaluators[opening.spice] = self.enter_context(Evaluator(settings=settings))
        return found

    def context(self, config: RunConfig, spread: Spread | None = None) -> RunContext:
        """Data, features and vocabulary of a run, on the device and with the jobs of its configuration."""
        name = config.opening.resolved().model_dump_json()
        if name not in self._contexts:
            self._contexts.clear()  # the runs of a benchmark share one
            self._contexts[name] = open_context(config.opening, self.workspace, self.reporter, spread=spread)
        context = self._contexts[name]
        return replace(context, execution=replace(context.execution, config=config.execution))

    def warm_up(self, opening: Opening, context: RunContext) -> None:
        """Start what scores captions, hidden behind the first training."""
        if not self._warm:
            samples = chain.from_iterable(context.data.evaluated.values())
            references = chain.from_iterable(sample.captions for sample in samples)
            self.evaluator(opening).warm_up([*context.inputs.vocabulary.words, *references])
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
            if spec.execution is None and self.is_done(key):  # a published copy tells no more
                reporter.log(f"  {spec.model}: re-used, finished before")
                return "reused"
            config = RunConfig.of(spec)
            services.load(config.execution.plugins)
            if self.is_done(key):
                missing = _add_what_is_missing(spec, config, services)
                reporter.log(f"  {spec.model}: re-used, finished before{missing}")
                return "reused"
            if self.rerun and not int(os.environ.get("SLURM_RESTART_COUNT") or 0):  # a requeued job goes on
                shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
                (folder / NOTE).unlink(missing_ok=True)
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
    device = torch.device(config.opening.device)
    environment = {**services.environment(device), "plugins": dict(config.execution.digests)}
    store.begin(spec.key, environment, spec.code)
    try:
        with contain_exits():
            check_plugins(config.execution.digests)
            if not (rerun or config.execution.accept_mixed):
                check_versions(spec.key, store, environment)
            context = services.context(config)
            services.warm_up(config.opening, context)
            # Rows without a model here have no experiment trackers.
            names = () if spec.kind in {"captions", "reference"} else config.execution.log
            with RunLog(names, spec, workspace.logs, reporter) as log:

                def record(epoch: EpochRecord) -> None:
                    store.record_epoch(spec.key, epoch)
                    log.on_epoch(epoch)

                begun_by = None
                if not rerun:
                    begun_by = _adopt_training(spec, services, context.execution, record, reporter)
                outcome = run(spec, services, on_epoch=record, on_step=log.on_step, reporter=reporter)
                if begun_by is not None:
                    reason, costs = f"its beginning was trained by {begun_by}", outcome.costs
                    unseen = _SEEN_WHILE_TRAINING & costs.keys()
                    missing = {name: Quantity(None, reason, costs[name].unit) for name in unseen}
                    outcome = replace(outcome, costs={**costs, **missing})
                    environment = environment | {"first_stages_of": begun_by}
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


def _add_what_is_missing(spec: RunSpec, config: RunConfig, services: Services) -> str:
    """A note on scores that a finished run lacked, and that were added now or cannot be had."""
    store, opening = services.store, config.opening
    tried = set(METRICS) - services.unscored - (set() if opening.spice else {"SPICE"})
    missing = missing_metrics(store, spec.key, tried)
    if not missing:
        return ""
    context, evaluator = services.context(config), services.evaluator(opening)
    services.warm_up(opening, context)
    reasons = add_missing_scores(spec, missing, context.data, evaluator, store)
    services.unscored |= {metric for metric, reason in reasons.items() if reason}
    return "".join(f"; {metric}: {reason or 'scored now'}" for metric, reason in reasons.items())


def _adopt_training(
    spec: RunSpec, services: Services, execution: Execution, on_epoch: Callable[[EpochRecord], None], reporter: Reporter
) -> str | None:
    """Let a run that has not begun go on from the finished run with most of its training; gives that one's key.

    Its epochs are recorded for this run too, with the time that they took. None where no run has such stages.
    A stage begins from weights alone, so that what follows is, on the same machine, bit for bit what it is when the
    stages before are trained again. A run that differs in its evaluation alone is not trained at all.
    """
    workspace, planned = services.workspace, stages_of(spec.config)
    folder = workspace.run_folder(spec.key)
    if (checkpoint := last_checkpoint(folder / CHECKPOINTS)) is not None:
        at, stored = read_position(checkpoint), one_run(services.store, spec.key).epochs
        if at is None or at["total_steps"] - at["batch"] <= (stored[-1].step if stored else 0):
            return (folder / NOTE).read_text(encoding="utf-8") if (folder / NOTE).is_file() else None
        reporter.note("  trained anew: its epochs, which tell how training ended, are not all in the database")
        shutil.rmtree(folder / CHECKPOINTS)
    (folder / NOTE).unlink(missing_ok=True)
    # Some models pass over stages of sentence graphs.
    if spec.kind != "trained" or any(stage["objective"] == "sentence_graph" for stage in planned):
        return None
    trained_as = execution.config.record(execution.device, 1)
    alike = [
        run
        for run in finished(services.store, spec.dataset, model=spec.model, seed=spec.seed)
        if _trained_alike(run, spec) and run.environment.get("training") == trained_as
    ]
    known = [run for run in alike if stages_of(run.config) == planned[: len(stages_of(run.config))]]
    for earlier in sorted(known, key=lambda run: len(stages_of(run.config)), reverse=True):
        weights = workspace.run_folder(earlier.key) / WEIGHTS
        last = last_checkpoint(weights.parent / CHECKPOINTS)
        # Results that were merged may be of a training that was interrupted here.
        if not is_whole(weights) or (last is not None and not (read_position(last) or {}).get("finished")):
            continue
        for epoch in earlier.epochs:
            on_epoch(epoch)
        write_text(folder / NOTE, earlier.key)
        state = _after(earlier.epochs, finished=len(stages_of(earlier.config)) == len(planned))
        if state.finished:
            with replacing(folder / WEIGHTS) as temporary:
                shutil.copyfile(weights, temporary)
        save_first_checkpoint(folder / CHECKPOINTS, weights, {"position": asdict(state)})
        names = ", ".join(stage["name"] for stage in stages_of(earlier.config))
        reporter.log(f"  {names}: not trained again, the weights are those of {earlier.key}")
        return earlier.key
    return None


def _trained_alike(run: Run, spec: RunSpec) -> bool:
    """Whether a run was trained under the conditions and by the code of the planned one, whatever its stages are."""
    return (
        len(stages_of(run.config)) > 0
        and "pretrained" not in run.config
        and _of_stages(run.config, run.signature) == _of_stages(spec.config, spec.signature)
        and run.code is not None
        and spec.code is not None
        and (run.code.model, run.code.revision) == (spec.code.model, spec.code.revision)
    )


def _of_stages(config: dict[str, Any], signature: dict[str, str]) -> Any:
    """What stages depend on besides their own settings, as JSON keeps it."""
    conditions = {name: value for name, value in signature.items() if name not in _OF_THE_WHOLE}
    return json.loads(json.dumps([config.get("arguments"), config["preset"].get("recipe"), conditions]))


def _after(epochs: Sequence[EpochRecord], *, finished: bool) -> TrainState:
    """Where training stands after all stages of a run; `finished`: none follows."""
    last, ends = epochs[-1].stage, [0]
    for stage in range(last + 1):
        seen = (round(epoch.images_per_second * epoch.seconds) for epoch in epochs if epoch.stage == stage)
        ends.append(ends[-1] + sum(seen))
    return TrainState(
        stage=last,
        best=max(epoch.val_cider or 0.0 for epoch in epochs if epoch.stage == last),
        total_steps=epochs[-1].step,
        seconds=sum(epoch.seconds for epoch in epochs),
        images=ends[-1],
        ends=ends[1:-1],
        saves=1,
    ).next_stage(last=finished)


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
    members = {key: spec.config.get("members", ()) for key, spec in specs.items()}
    plugins = {key: ((spec.execution or {}).get("execution") or {}).get("plugins", ()) for key, spec in specs.items()}
    # First those without plug-ins: what one run loads stays loaded, and runs that were planned without it refuse that.
    left.sort(key=lambda key: (len(members[key]), len(plugins[key])))
    while (key := next_free(left, services.workspace)) is not None:
        if keys is None and store.status(key) not in {"planned", "running"}:
            continue
        try:
            waits = partial(services.reporter.note, f"  {key}: another process trains a member; waiting")
            for lock in (services.workspace.run_folder(member) / LOCK for member in members[key]):
                with locked(lock, waits) if is_locked(lock) else nullcontext():
                    pass
            ended[key] = call(key)
        except Exception as error:  # before the run itself; the others go on
            failure = Failure.of(error)
            store.fail(key, failure.error_class, failure.reason, "")
            services.reporter.note(f"  {key}: failed: {failure}", style="red")
            ended[key] = "failed"
    return ended
