"""Tuning: the same number of trials for every model. A trial is a training, scored by validation CIDEr-D only.

The command submits each trial to an executor. A trial holds the lock of its model's study, so that a model's trials run
one after another, because the sampler chooses each by the scores of those before. Values therefore do not depend on the
number of workers. Several commands in one workspace share the models. A model that fails does not stop the others.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml

from harness.benchmark.context import RunContext
from harness.benchmark.costs import BASE_BYTES
from harness.benchmark.models import open_model
from harness.benchmark.plan import Benchmark, check_rows, conditions_of
from harness.benchmark.plan_runs import Planner
from harness.benchmark.rows import RequestedModel, resolve_models
from harness.benchmark.services import Services, services_of
from harness.benchmark.signature import tuned_field
from harness.benchmark.train import train_model
from harness.benchmark.tune.study import (
    DIVERGED,
    TunedFile,
    TunedModel,
    begin_trial,
    draw_values,
    ended_trials,
    fail_lost_trials,
    journal_file,
    open_journal,
    study_name,
    trial_run,
    tuned_trial,
    tuned_trials,
    tuning_folder,
)
from harness.config.preset import Preset
from harness.config.run import Conditions, TrainedRun, config_of
from harness.config.tuning import (
    Budget,
    SearchSpace,
    Tuned,
    TunedValues,
    default_params,
    scaled,
    with_stages,
)
from harness.executors import CallError, Executor, spread_over
from harness.executors.local import limit_threads
from harness.key import check_plugins
from harness.training.checkpoint import WEIGHTS, last_checkpoint, read_position, save_first_checkpoint
from harness.training.losses import TrainingDivergedError
from harness.training.trainer import CHECKPOINTS
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.hashing import digest
from harness.utils.plugins import contain_exits
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace, is_locked, locked
from results.records import EpochRecord

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import JournalStorage
    from optuna.trial import FrozenTrial


@dataclass(frozen=True, slots=True)
class Search:
    """Settings that all models of a tuning share; picklable.

    `conditions` are those of the trials' runs, `label` is the signature's.
    """

    workspace: Workspace
    conditions: Conditions
    space: SearchSpace
    budget: Budget
    label: str

    def planner(self, context: RunContext, tuned: Tuned | None = None) -> Planner:
        """The planner of trials under an opened context."""
        return Planner(self.conditions, context, self.workspace, tuned)

    def model_study(self, model: RequestedModel, context: RunContext) -> ModelStudy:
        """The study of a model in this search."""
        key = trial_run(model, self.planner(context)).key
        folder = tuning_folder(self.workspace) / f"{key}-{digest(self.label, 6)}"
        return ModelStudy(model, study_name(key, self.label), folder)


@dataclass(frozen=True, slots=True)
class ModelStudy:
    """A model that is tuned, the name of its study, and the folder of its trials."""

    model: RequestedModel
    name: str
    folder: Path

    @property
    def lock(self) -> Path:
        """The lock file, held during each trial of this study."""
        return self.folder.with_name(f"{self.folder.name}.lock")

    def open(self, storage: JournalStorage) -> Study:
        """Optuna's study; creates it if necessary."""
        import optuna

        return optuna.create_study(storage=storage, study_name=self.name, direction="maximize", load_if_exists=True)


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result of a tuning: by model, its trials, and the error if it failed.

    `signature` is that of untuned runs under the same conditions; `done` are the models that have tuned values.
    """

    search: Search
    signature: dict[str, str]
    models: dict[str, TunedModel]
    done: list[str]
    errors: dict[str, str]


def tune(benchmark: Benchmark, reporter: Reporter, *, trials: int, space: SearchSpace) -> Tuning:
    """Run all trials of all models that are not done yet; a model that fails does not stop the others.

    BenchError if no model is trained, or the preset cannot be tuned.

    Args:
        trials: of each model.
        space: that trials search.
    """
    models = _trained(benchmark, reporter)
    workspace = benchmark.workspace
    _check(benchmark.preset, space)
    if space.stage:
        stages = benchmark.preset.schedule.stages
        last = [stage.name for stage in stages].index(space.stage)
        benchmark = replace(benchmark, preset=with_stages(benchmark.preset, stages[: last + 1]))
    with ExitStack() as stack:
        executor = stack.enter_context(closing(benchmark.executor))
        executor.check(workspace)
        workspace.create()
        services = stack.enter_context(Services(workspace, reporter, benchmark.execution.plugins))
        conditions = conditions_of(benchmark, models)
        device = torch.device(conditions.execution.device)
        context = services.context(
            conditions,
            check=partial(check_rows, benchmark, models, reporter),
            spread=spread_over(executor, device, BASE_BYTES),
        )
        for warning in context.preset.schedule.idle_stages(*context.counts()):
            reporter.note(warning, style="yellow")
        # A third of the trials is random, as with Optuna's defaults of 10 in 30.
        startup = max(trials // 3, 2)
        updates = sum(context.updates()[-1 if space.stage else 0 :])
        budget = Budget(trials=trials, updates=updates, startup_trials=startup)
        label = tuned_field(space, budget, context.preset)
        jobs = executor.slots(len(models), device, 1, lambda: BASE_BYTES)
        execution = replace(conditions.execution, jobs=jobs)
        search = Search(workspace, conditions.model_copy(update={"execution": execution}), space, budget, label)
        count = "1 model" if len(models) == 1 else f"{len(models)} models"
        reporter.note(f"tuning {count}, {trials} trials each, at most {updates} updates a trial: {label}")
        with limit_threads(jobs):
            errors = do_trials(models, search, executor, jobs, services)
        storage = open_journal(workspace)
        ended = {model.name: tuned_trials(search.model_study(model, context).open(storage)) for model in models}
        tuned = {name: TunedModel.of_trials(model_trials) for name, model_trials in ended.items()}
        done = [name for name, model in tuned.items() if len(model.trials) >= trials and model.best is not None]
        return Tuning(search, context.signature, tuned, done, errors)


def _trained(benchmark: Benchmark, reporter: Reporter) -> list[RequestedModel]:
    """The models of a benchmark that are trained; the others are noted by the reporter."""
    requested = resolve_models(benchmark.experiment.models, benchmark.workspace)
    models = [model for model in requested if model.kind == "trained"]
    untrained = ", ".join(model.name for model in requested if model.kind != "trained")
    if not models:
        raise BenchError(f"--models names nothing that is trained: {untrained}", "see `bench models` for the names")
    if untrained:
        reporter.note(f"not trained, so not tuned: {untrained}")
    return models


def _check(preset: Preset, space: SearchSpace) -> None:
    preset.check_lengths()
    if preset.recipe is not None:
        raise BenchError(
            f"the preset {preset.name!r} is a paper's recipe, which is trained as it was printed",
            "tune a preset of the controlled track, as --preset quick",
        )
    if space.width:
        if isinstance(preset.parameters, int):
            raise BenchError("--tune-width changes nothing: the preset's `parameters` decide the width", "leave it out")
        scaled(preset, 1.0)
    if space.stage is None:
        return
    names = [stage.name for stage in preset.schedule.stages]
    if names.count(space.stage) != 1:
        raise BenchError(
            f"--stage {shortened(space.stage)!r} is no stage of the preset {preset.name!r}",
            f"choose one of: {', '.join(names)}",
        )
    if graphs := [stage.name for stage in preset.schedule.stages if not stage.gives_ciders]:
        raise BenchError(
            f"--stage {space.stage}: not every model trains {', '.join(graphs)} of the preset {preset.name!r}",
            f"keep others alone: --set 'stages=[{','.join(name for name in names if name not in graphs)}]'",
        )
    if space.width:
        raise BenchError("--stage and --tune-width contradict each other: a width is of all stages", "leave one out")


def tuned_yaml(tuning: Tuning, command: str) -> str:
    """The tuned values of all finished models as YAML; `command` is recorded in it."""
    search = tuning.search
    content = TunedFile(
        command=command,
        preset=search.conditions.preset.name,
        data=tuning.signature["data"],
        features=tuning.signature["feat"],
        tuned=search.label,
        budget=search.budget,
        space=search.space,
        models={name: tuning.models[name] for name in tuning.done},
    )
    # One line for each trial.
    dumped = content.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(dumped, sort_keys=False, width=200, default_flow_style=None)


def do_trials(
    models: Sequence[RequestedModel], search: Search, executor: Executor, jobs: int, services: Services
) -> dict[str, str]:
    """Run the remaining trials, `jobs` models at a time; returns the errors of models that failed."""
    context = services.context(search.conditions)
    reporter = services.reporter
    budget = search.budget
    tuning_folder(search.workspace).mkdir(exist_ok=True)
    storage = open_journal(search.workspace)
    studies = [search.model_study(model, context) for model in models]
    ended = {study.name: len(ended_trials(study.open(storage))) for study in studies}
    waiting = [study for study in studies if ended[study.name] < budget.trials]
    waited_for: set[str] = set()
    running: dict[Future[TrialEnd], ModelStudy] = {}
    errors: dict[str, str] = {}
    with reporter.task("trials", budget.trials * len(models), sum(ended.values())) as progress:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    # Models that another command is tuning come last.
                    study = next((study for study in waiting if not is_locked(study.lock)), waiting[0])
                    if is_locked(study.lock) and study.name not in waited_for:
                        reporter.note(f"{study.model.name}: another process works on its trials; waiting")
                        waited_for.add(study.name)
                    waiting.remove(study)
                    running[executor.submit(run_trial, study, search)] = study
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    study = running.pop(future)
                    name = study.model.name
                    try:
                        trial = future.result()
                    except CallError as error:
                        errors[name] = str(error)
                        reporter.note(f"{name}: failed: {error}", style="red")
                        continue
                    ended[study.name] = trial.number
                    if trial.number < budget.trials:
                        waiting.insert(0, study)
                    if trial.summary:
                        reporter.log(f"{name} trial {trial.number}/{budget.trials}: {trial.summary}")
                    progress.reach(sum(ended.values()), detail=f"{name}: {trial.summary}")
        except KeyboardInterrupt:
            executor.cancel()
            raise
    for study in studies:
        if ended[study.name] >= budget.trials:
            shutil.rmtree(study.folder, ignore_errors=True)
    return errors


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """The number of a trial that ended, from 1; the summary is "" if another command had run the last one."""

    number: int
    summary: str = ""


def run_trial(model_study: ModelStudy, search: Search) -> TrialEnd:
    """Run the next trial of a study: train the model with the proposed values, and record the result."""
    file = journal_file(search.workspace)
    if not file.is_file():
        raise BenchError(
            f"a node of the cluster does not see {file}",
            "choose a workspace on a disk that all nodes share, with --workspace",
        )
    services = services_of(search.workspace)
    execution = search.conditions.execution
    services.load(execution.plugins)
    check_plugins(execution.digests)
    context = services.context(search.conditions)

    def objective(trial: Trial) -> float:
        values = draw_values(trial, number, search.space)
        try:
            with contain_exits():
                return train_trial(trial, model_study, values, search, services)
        except TrainingDivergedError as error:
            trial.set_user_attr(DIVERGED, str(error))
            raise

    with locked(model_study.lock, lambda: None):
        study = model_study.open(open_journal(search.workspace))
        fail_lost_trials(study)
        done = len(ended_trials(study))
        if done >= search.budget.trials:
            return TrialEnd(done)
        number = done + 1
        start = default_params(context.preset, search.space, context.updates())
        begin_trial(study, number, search.budget, start)
        study.optimize(objective, n_trials=1, catch=(TrainingDivergedError,))
        return TrialEnd(number, _summary(ended_trials(study)[-1], number))


def _summary(trial: FrozenTrial, trial_number: int) -> str:
    """The result and the values of a trial, for the log."""
    ended = tuned_trial(trial, trial_number)
    values = ended.values.describe()
    if ended.score is None:
        return f"diverged ({values})"
    score = f"validation CIDEr-D {100 * ended.score:.1f}"
    if ended.state == "pruned":
        return f"pruned after {trial.last_step} updates, {score} ({values})"
    return f"{score} ({values})"


def train_trial(
    trial: Trial, model_study: ModelStudy, values: TunedValues, search: Search, services: Services
) -> float:
    """The best validation CIDEr-D, as a fraction, of the last stage of a training with these values.

    Validations are reported to the study. TrialPruned if the trial is worse than the median of the others,
    TrainingDivergedError if the loss is NaN or infinite.
    """
    from optuna import TrialPruned

    context = services.context(search.conditions)
    stage = search.space.stage
    folder = model_study.folder
    tuned = Tuned("trial", {model_study.model.name: values}, stages=stage)
    config = config_of(trial_run(model_study.model, search.planner(context, tuned)))
    assert isinstance(config, TrainedRun)
    stages = context.preset.schedule.stages
    reporter = TrialReporter(services.reporter)
    trial_folder = folder / "trial"
    shutil.rmtree(trial_folder, ignore_errors=True)  # of an interrupted trial
    trial_folder.mkdir(parents=True)
    steps_before = 0
    if stage is not None and len(stages) > 1:
        steps_before = _begin_at_last_stage(config, context, trial_folder, folder / "before", reporter)

    def report(record: EpochRecord) -> None:
        if record.val_cider is None:
            return
        trial.report(record.val_cider, record.step - steps_before)
        is_last = record.stage + 1 == len(stages) and record.epoch + 1 == stages[-1].epochs
        if not is_last and trial.should_prune():
            raise TrialPruned

    torch.manual_seed(config.seed)
    captioner, model_context, _ = open_model(config, context.with_preset(config.preset), trial_folder)
    score = train_model(captioner, config.seed, model_context, trial_folder, report, reporter).best
    shutil.rmtree(trial_folder)
    return score


def _begin_at_last_stage(
    config: TrainedRun, context: RunContext, trial_folder: Path, before: Path, reporter: Reporter
) -> int:
    """Start a trial from the weights of the stages before the last; returns the number of their updates.

    All trials of a model share the training of these stages, in the folder `before`; it resumes if it was interrupted.
    """
    before.mkdir(exist_ok=True)
    earlier = context.with_preset(with_stages(context.preset, context.preset.schedule.stages[:-1]))
    torch.manual_seed(config.seed)
    captioner, model_context, _ = open_model(config, earlier, before)
    steps = train_model(captioner, config.seed, model_context, before, lambda _: None, reporter).total_steps
    position = read_position(last_checkpoint(before / CHECKPOINTS) or before)
    assert position is not None, "training has just written it"
    position |= {"stage": position["stage"] + 1, "best": -math.inf, "finished": False, "saves": 1}
    save_first_checkpoint(trial_folder / CHECKPOINTS, before / WEIGHTS, {"position": position})
    return steps


class TrialReporter(Reporter):
    """The tasks of another reporter, without its lines."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self.console = reporter.console
        self.display = reporter.display

    def note(self, text: str, style: str = "") -> None:
        """Print nothing."""

    def log(self, text: str, style: str = "") -> None:
        """Print nothing."""

    def task(self, title: str, total: int, done: int = 0) -> Any:
        return self._reporter.task(title, total, done)
