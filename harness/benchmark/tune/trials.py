"""Trials: each a training of a model with given values, judged by its validation CIDEr-D alone.

The command alone opens the studies. It takes the trials, has an engine do them, and stores how they ended, so that the
file of the studies need not be shared between machines. What a trial reports is kept in its folder, beside its
checkpoints, before the checkpoint that comes after it: wherever the trial goes on, it knows what was reported, and is
pruned as it would have been. A model's trials are done one after another, as the sampler chooses each by the scores of
those before: so the values are the same with however many workers. One model's failure stops no other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.trial import FrozenTrial, TrialState

from harness.benchmark.context import RunContext
from harness.benchmark.engines import Engine, Failure
from harness.benchmark.identity.sources import check_plugins
from harness.benchmark.rows import RequestedModel, plan_runs
from harness.benchmark.run import open_model
from harness.benchmark.run_config import AppliedTuning, Opening, RunConfig
from harness.benchmark.saved_model import WEIGHTS
from harness.benchmark.train import fit
from harness.benchmark.tune.storage import open_studies, studies_lock
from harness.benchmark.tune.study import ClaimedTrial, ModelStudy, keep_reports, kept_reports, pruner
from harness.benchmark.work import Services
from harness.config.execution import ExecutionConfig
from harness.config.tuning import TRIAL_SEED, Budget, SearchSpace, Tuned, TunedValues, default_params, with_stages
from harness.training.checkpoint import last_checkpoint, read_position, save_first_checkpoint
from harness.training.losses import TrainingDivergedError
from harness.training.trainer import CHECKPOINTS
from harness.utils.errors import BenchError
from harness.utils.hashing import digest
from harness.utils.plugins import contain_exits
from harness.utils.progress import Reporter, Task
from harness.utils.workspace import Workspace, locked
from results.records import EpochRecord, RunSpec


@dataclass(frozen=True, slots=True)
class Search:
    """What is the same for all models that are tuned together; picklable. `label` is the signature's."""

    workspace: Workspace
    opening: Opening
    execution: ExecutionConfig
    space: SearchSpace
    budget: Budget
    label: str

    def config(self) -> RunConfig:
        """How its trials are executed."""
        return RunConfig(opening=self.opening, execution=self.execution)


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """A trial for a worker.

    Attributes:
        place: its number in the budget, from 1.
        known: validation CIDEr-D by steps, as reported before an interruption.
        finished: trials of the same model, for the pruner; none for one that it may not end.
        stage: the one that the values are for; None is all.
    """

    model: RequestedModel
    values: TunedValues
    seed: int
    place: int
    folder: Path
    known: Mapping[int, float]
    finished: Sequence[FrozenTrial]
    stage: str | None = None


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """How a trial ended; `reported` holds all that it reported, by steps, and `said` tells the end in words."""

    state: TrialState
    said: str
    reported: dict[int, float]
    score: float | None = None
    reason: str | None = None


def open_study(model: RequestedModel, search: Search, context: RunContext) -> ModelStudy:
    """The study of a model under these conditions, made where there is none."""
    run = trial_spec(model, context, search.workspace).key
    lock = studies_lock(search.workspace)
    with locked(lock, lambda: None):
        study = optuna.create_study(
            storage=open_studies(search.workspace),
            study_name=f"{run} {search.label}",
            direction="maximize",
            load_if_exists=True,
        )
        described = {
            "model": model.name,
            "run": run,
            "label": search.label,
            "budget": search.budget.model_dump(mode="json"),
            "space": search.space.model_dump(mode="json"),
            "preset": context.preset.model_dump(mode="json"),
            "data": context.signature["data"],
        }
        for key, value in described.items():
            if key not in study.user_attrs:
                study.set_user_attr(key, value)
    start = default_params(context.preset, search.space, context.updates())
    folder = lock.parent / f"{run}-{digest(search.label, 6)}"
    return ModelStudy(study, search.space, search.budget, start, folder, lock)


def trial_spec(
    model: RequestedModel,
    context: RunContext,
    workspace: Workspace,
    tuned: Tuned | None = None,
    seed: int = TRIAL_SEED,
) -> RunSpec:
    """The spec of a trial under this context; its key, where nothing is tuned, is over all that a trial depends on."""
    [spec] = plan_runs([model], 1, context, workspace, first_seed=seed, tuned=tuned)
    return spec


def do_trials(models: Sequence[RequestedModel], search: Search, engine: Engine, services: Services) -> dict[str, str]:
    """Do all trials that are left, and wait for those of other commands; gives by model why it could not go on."""
    context = services.context(search.config())
    studies = {model.name: open_study(model, search, context) for model in models}
    trials = _Trials(studies, search, engine, services)
    waiting = list(models)
    while waiting:
        trials.do(waiting)
        waiting = [model for model in waiting if model.name not in trials.errors and not studies[model.name].done()]
        if waiting:
            services.reporter.note(f"{waiting[0].name}: another process works on its last trials; waiting")
            wait_for(studies[waiting[0].name])
    for study in studies.values():
        if study.done():
            study.clear()
    return trials.errors


def wait_for(study: ModelStudy) -> None:
    """Wait for a trial that another process does, if there is one."""
    if locks := study.running():
        with suppress(FileNotFoundError), locked(locks[0], lambda: None):  # a trial that ends deletes its folder
            pass


@dataclass(slots=True)
class _Trials:
    """The trials that this command holds, by model, and why models could not go on."""

    studies: Mapping[str, ModelStudy]
    search: Search
    engine: Engine
    services: Services
    errors: dict[str, str] = field(default_factory=dict)
    claims: dict[str, tuple[ClaimedTrial, ExitStack]] = field(default_factory=dict)

    def do(self, models: Sequence[RequestedModel]) -> None:
        """Do trials until all are done or taken by others; a model's next one is taken when the one before ended."""
        work, waiting = TrialWork(self.search, self.services), list(models)

        def take() -> TrialOrder | None:
            for model in [model for model in waiting if model.name not in self.claims]:
                if (order := self._next(model)) is not None:
                    return order
                waiting.remove(model)
            return None

        try:
            with closing(self.engine.perform(work, take)) as ending:
                for order, found in ending:
                    claim, lock = self.claims.pop(order.model.name)
                    with lock:
                        if isinstance(found, Failure):
                            waiting.remove(order.model)
                            self._fail(order.model.name, str(found))
                        else:
                            self._store(order.model.name, claim, found)
        finally:
            for _, lock in self.claims.values():
                lock.close()

    def _next(self, model: RequestedModel) -> TrialOrder | None:
        """The next trial of a model, which is held until it has ended; None where nothing is left of them."""
        study, lock = self.studies[model.name], ExitStack()
        try:
            claim = lock.enter_context(study.claim())
        except Exception as error:  # the other models go on
            self._fail(model.name, str(Failure.of(error)))
            return None
        if claim is None:
            return None
        self.claims[model.name] = claim, lock
        trials = study.study.get_trials(deepcopy=False)
        known = trials[claim.trial.number].intermediate_values
        finished = [] if claim.seed != TRIAL_SEED else [trial for trial in trials if trial.state == TrialState.COMPLETE]
        stage = self.search.space.stage
        return TrialOrder(model, claim.values, claim.seed, claim.place, claim.folder, known, finished, stage)

    def _store(self, name: str, claim: ClaimedTrial, ended: TrialEnd) -> None:
        for step, cider in ended.reported.items():
            if step not in claim.known:
                claim.trial.report(cider, step)
        self.studies[name].finish(claim, ended.state, ended.score, ended.reason)
        place = f"{claim.place}/{self.search.budget.trials + self.search.budget.further}"
        said = f"{ended.said} ({claim.values.describe()}; seed {claim.seed})"
        self.services.reporter.note(f"{name} trial {place}: {said}")

    def _fail(self, name: str, said: str) -> None:
        self.errors[name] = said
        self.services.reporter.note(f"{name}: failed: {said}", style="red")


@dataclass
class TrialWork:
    """Does trials, one after another: the `Call` of engines."""

    search: Search
    services: Services | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"search": self.search, "services": None}

    def close(self) -> None:
        """Close the services of this process."""
        if self.services is not None:
            self.services.close()
            self.services = None

    def __call__(self, order: TrialOrder) -> TrialEnd:
        """Train a trial from its last checkpoint, if it has one.

        Raises:
            BenchError: its folder is not seen here; other errors as the training has them.
        """
        if not order.folder.is_dir():
            raise BenchError(
                f"a node of the cluster does not see {order.folder}",
                "choose a workspace on a disk that all nodes share, with --workspace",
            )
        if self.services is None:
            self.services = Services(self.search.workspace, Reporter())
        self.services.load(self.search.execution.plugins)
        check_plugins(self.search.execution.digests)
        with locked(order.folder / "worker", lambda: None), contain_exits():  # a killed one may take a moment to end
            reports = _Reports(order, self.search.budget)
            try:
                score = train_trial(order, self.services.context(self.search.config()), reports, self.services)
            except optuna.TrialPruned as pruned:
                return TrialEnd(TrialState.PRUNED, str(pruned), reports.values)
            except TrainingDivergedError as error:
                return TrialEnd(TrialState.FAIL, "diverged", reports.values, reason=str(error))
            return TrialEnd(TrialState.COMPLETE, f"validation CIDEr-D {100 * score:.1f}", reports.values, score)


def train_trial(order: TrialOrder, context: RunContext, reports: _Reports, services: Services) -> float:
    """The best validation CIDEr-D, as a fraction, of the last stage of a training with a trial's values.

    Raises:
        TrialPruned: enough of the other trials are ahead.
        TrainingDivergedError: the loss is no number any more.
    """
    values = Tuned("trial", {order.model.name: order.values}, stages=order.stage)
    spec = trial_spec(order.model, context, services.workspace, values, order.seed)
    stages, reporter = context.preset.schedule.stages, TrialReporter(services.reporter)
    before = 0 if order.stage is None or len(stages) == 1 else _begin(order, spec, context, reporter)

    def on_epoch(record: EpochRecord) -> None:
        if record.val_cider is not None:
            last = record.stage + 1 == len(stages) and record.epoch + 1 == stages[-1].epochs
            reports.report(record.val_cider, record.step - before, last=last)

    tuned = context.tuned(AppliedTuning(label="trial", values=order.values, stages=order.stage))
    torch.manual_seed(spec.seed)
    model, own, _ = open_model(spec, tuned, order.folder)
    return fit(model, spec.seed, own, order.folder, on_epoch, reporter).best_cider


def _begin(order: TrialOrder, spec: RunSpec, context: RunContext, reporter: Reporter) -> int:
    """Let a trial go on from the stages before the searched one, which all of its seed share; gives their updates."""
    shared = order.folder.parent / f"before-{order.seed}"
    shared.mkdir(exist_ok=True)
    earlier = replace(context, preset=with_stages(context.preset, context.preset.schedule.stages[:-1]))
    with locked(shared / "lock", lambda: None):
        torch.manual_seed(spec.seed)
        model, own, _ = open_model(spec, earlier, shared)
        steps = fit(model, spec.seed, own, shared, lambda _: None, reporter).steps  # at once where it has ended
        if last_checkpoint(order.folder / CHECKPOINTS) is None:
            position = read_position(last_checkpoint(shared / CHECKPOINTS) or shared)
            assert position is not None, "training has just read it"
            position |= {"stage": position["stage"] + 1, "best": -math.inf, "finished": False, "saves": 1}
            save_first_checkpoint(order.folder / CHECKPOINTS, shared / WEIGHTS, {"position": position})
    return steps


class _Reports:
    """What a trial reports, kept in its folder, and whether it is pruned by it, as Optuna's own would be."""

    def __init__(self, order: TrialOrder, budget: Budget) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(direction="maximize", pruner=pruner(budget))
        study.add_trials(order.finished)
        self._trial, self._folder = study.ask(), order.folder
        self.values = {**order.known, **kept_reports(order.folder)}
        for step, cider in self.values.items():
            self._trial.report(cider, step)

    def report(self, cider: float, step: int, *, last: bool) -> None:
        """Keep a validation's CIDEr-D; TrialPruned where others are ahead, but for the last one."""
        if step not in self.values:
            self._trial.report(cider, step)
            self.values[step] = cider
            keep_reports(self._folder, self.values)
        if not last and self._trial.should_prune():
            raise optuna.TrialPruned(f"pruned after {step} updates, validation CIDEr-D {100 * cider:.1f}")


class TrialReporter(Reporter):
    """The tasks of another reporter, without its lines."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def note(self, text: str, style: str = "") -> None:
        """Print nothing."""

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Task]:
        """See `Reporter.task`."""
        with self._reporter.task(title, total, done) as task:
            yield task
