"""`bench tune`: the same trials for every model, each a training with given values, judged by validation CIDEr-D alone.

All processes that run the same command share them. The command alone reads and writes studies, each of which it holds
the lock of meanwhile: other commands do those of other models, and wait. It has an engine do the trials. What a trial
reports is kept in its folder, beside its checkpoints, before the checkpoint that comes after it: wherever the trial
goes on, it knows what was reported, and is pruned as it would have been. A model's trials are done one after another,
as the sampler chooses each by the scores of those before: so the values are the same with however many workers. One
model's failure stops no other.
"""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from harness.benchmark.context import RunContext
from harness.benchmark.costs import BASE_BYTES
from harness.benchmark.engines import Engine, Failure, spread_over
from harness.benchmark.engines.here import limit_threads
from harness.benchmark.identity.signature import tuned_field
from harness.benchmark.identity.sources import check_plugins
from harness.benchmark.plan import Request, opening_of
from harness.benchmark.rows import RequestedModel, resolve_models
from harness.benchmark.run import open_model
from harness.benchmark.run_config import RunConfig
from harness.benchmark.saved_model import WEIGHTS
from harness.benchmark.train import fit
from harness.benchmark.tune.study import (
    Study,
    Trial,
    TunedFile,
    TunedModel,
    read_study,
    save_study,
    studies_folder,
    trial_spec,
)
from harness.benchmark.work import OwnServices, Services
from harness.config.preset import Preset
from harness.config.tuning import (
    TRIAL_SEED,
    AppliedTuning,
    Budget,
    SearchSpace,
    Tuned,
    default_params,
    scaled,
    with_stages,
)
from harness.training.checkpoint import last_checkpoint, read_position, save_first_checkpoint
from harness.training.losses import TrainingDivergedError
from harness.training.trainer import CHECKPOINTS
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.hashing import digest
from harness.utils.plugins import contain_exits
from harness.utils.progress import Reporter, Task
from harness.utils.workspace import Workspace, is_locked, locked
from results.records import EpochRecord, RunSpec

_REPORTED = "reported.json"


@dataclass(frozen=True, slots=True)
class Search:
    """What is the same for all models that are tuned together; picklable.

    `config` says how trials are executed, `label` is the signature's.
    """

    workspace: Workspace
    config: RunConfig
    space: SearchSpace
    budget: Budget
    label: str

    def file(self, model: RequestedModel, context: RunContext) -> Path:
        """The study of a model, named by the key that its trials have where nothing is tuned."""
        key = trial_spec(model, context, self.workspace).key
        return studies_folder(self.workspace) / f"{key}-{digest(self.label, 6)}.json"

    def read(self, file: Path) -> Study:
        """What was done of a study."""
        return read_study(file) if file.exists() else Study(label=self.label, budget=self.budget, space=self.space)


@dataclass(frozen=True, slots=True)
class Tuning:
    """How a tuning ended: by model, what its trials came to, and why it could not go on.

    `signature` is that of untuned runs under the same conditions; `done` are the models that have tuned values.
    """

    search: Search
    signature: dict[str, str]
    models: dict[str, TunedModel]
    done: list[str]
    errors: dict[str, str]


def tune(
    request: Request, reporter: Reporter, *, trials: int, finalists: int, seeds: int, space: SearchSpace
) -> Tuning:
    """Do all trials of all models that are not done yet; one model's failure never stops the others.

    Each model has so many `trials`, which search the `space`. The best `finalists` of them are trained again, as the
    preset is, on so many further `seeds`. BenchError where there is nothing to tune, or a preset cannot be tuned.
    """
    models, workspace = _trained(request, reporter), request.workspace
    _check(request.preset, space)
    if space.stage:
        stages = request.preset.schedule.stages
        last = [stage.name for stage in stages].index(space.stage)
        request = replace(request, preset=with_stages(request.preset, stages[: last + 1]))
    with ExitStack() as stack:
        engine = stack.enter_context(closing(request.engine))
        engine.check(workspace)
        workspace.create()
        services = stack.enter_context(Services(workspace, reporter, request.execution.plugins))
        opening = opening_of(request, models)
        device = torch.device(opening.device)
        context = services.context(RunConfig(opening=opening), spread_over(engine, device, BASE_BYTES))
        for warning in context.preset.schedule.idle_stages(*context.counts()):
            reporter.note(warning, style="yellow")
        # A third of the trials only explores, as does Optuna's own default of 10 in 30.
        startup = max(trials // 3, 2)
        updates = sum(context.updates()[-1 if space.stage else 0 :])
        seeds = seeds if finalists else 0
        budget = Budget(trials=trials, updates=updates, startup_trials=startup, finalists=finalists, seeds=seeds)
        label = tuned_field(space, budget, context.preset)
        jobs = engine.slots(len(models), device, 1, lambda: BASE_BYTES)
        config = RunConfig(opening=opening, execution=replace(request.execution, jobs=jobs))
        search = Search(workspace, config, space, budget, label)
        said = f"{trials} trials and at most {budget.further} on further seeds" if finalists else f"{trials} trials"
        reporter.note(f"tuning {len(models)} models, {said}, of {updates} updates each: {label}")
        with limit_threads(jobs):
            errors = do_trials(models, search, engine, services)
        studies = {model.name: search.read(search.file(model, context)) for model in models}
        found = {name: study.chosen() for name, study in studies.items()}
        done = [name for name, study in studies.items() if study.done and found[name].best is not None]
        return Tuning(search, context.signature, found, done, errors)


def _trained(request: Request, reporter: Reporter) -> list[RequestedModel]:
    """The models of a request that are trained; the reporter is told of the others."""
    requested = resolve_models(request.models, request.workspace)
    models = [model for model in requested if model.kind == "trained"]
    others = ", ".join(model.name for model in requested if model.kind != "trained")
    if not models:
        raise BenchError(f"--models names nothing that is trained: {others}", "see `bench models` for the names")
    if others:
        reporter.note(f"not trained, so not tuned: {others}")
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


def exported(tuning: Tuning, command: str) -> str:
    """The YAML of the values of all finished models, which `command` found."""
    search = tuning.search
    content = TunedFile(
        command=command,
        preset=search.config.opening.preset.name,
        data=tuning.signature["data"],
        features=tuning.signature["feat"],
        tuned=search.label,
        budget=search.budget,
        space=search.space,
        models={name: tuning.models[name] for name in tuning.done},
    )
    # A trial is a line.
    dumped = content.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(dumped, sort_keys=False, width=200, default_flow_style=None)


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """A trial for a worker.

    Attributes:
        place: its number in the budget, from 1.
        others: what finished trials of the model reported, by updates; it is stopped where it is below their median.
        stage: the one that the values are for; None is all.
    """

    model: RequestedModel
    trial: Trial
    place: int
    folder: Path
    others: Sequence[Mapping[int, float]] = ()
    stage: str | None = None


class TrialPruned(Exception):  # noqa: N818 - no error
    """Enough of the other trials are ahead."""


def do_trials(models: Sequence[RequestedModel], search: Search, engine: Engine, services: Services) -> dict[str, str]:
    """Do all trials that are left, and wait for other commands that do them; gives by model why it could not go on."""
    context, reporter = services.context(search.config), services.reporter
    files = {model.name: search.file(model, context) for model in models}
    start = default_params(context.preset, search.space, context.updates())
    left = list(models)
    for file in files.values():
        file.parent.mkdir(parents=True, exist_ok=True)
    each = search.budget.trials + search.budget.further
    ended = sum(trial.state is not None for file in files.values() for trial in search.read(file).trials)
    with reporter.task("trials", each * len(models), ended) as progress:
        trials = _Trials(files, start, search, engine, services, progress)
        _do_in_turns(trials, left, files, reporter)
    return trials.errors


def _do_in_turns(trials: "_Trials", left: list[RequestedModel], files: Mapping[str, Path], reporter: Reporter) -> None:
    """Do the trials of these models; those that another command works on are last."""
    while left:
        mine = [model for model in left if not is_locked(_lock_of(files[model.name]))] or left[:1]
        with ExitStack() as held:
            for model in sorted(mine, key=lambda each: files[each.name]):  # an order that all commands have
                said = f"{model.name}: another process works on its trials; waiting"
                held.enter_context(locked(_lock_of(files[model.name]), lambda said=said: reporter.note(said)))  # type: ignore[misc]
            trials.do(mine)
        left = [model for model in left if model not in mine]


def _lock_of(file: Path) -> Path:
    return file.with_suffix(".lock")


@dataclass(slots=True)
class _Trials:
    """The studies that this command works on, by model, and why models could not go on."""

    files: Mapping[str, Path]
    start: dict[str, float]
    search: Search
    engine: Engine
    services: Services
    progress: Task
    errors: dict[str, str] = field(default_factory=dict)

    def do(self, models: Sequence[RequestedModel]) -> None:
        """Do the trials of these models, whose next one begins when the one before has ended."""
        waiting, at_work = list(models), set[str]()

        def take() -> TrialOrder | None:
            for model in [model for model in waiting if model.name not in at_work]:
                order = None
                try:
                    order = self._next(model)
                except Exception as error:  # the other models go on
                    self._fail(model.name, str(Failure.of(error)))
                if order is not None:
                    at_work.add(model.name)
                    return order
                waiting.remove(model)
            return None

        with closing(self.engine.perform(TrialWork(self.search, self.services), take)) as ending:
            for order, found in ending:
                at_work.remove(order.model.name)
                if isinstance(found, Failure):
                    waiting.remove(order.model)
                    self._fail(order.model.name, str(found))
                else:
                    self._store(order, found)

    def _next(self, model: RequestedModel) -> TrialOrder | None:
        """The next trial of a model; None where nothing is left of them, nor on disk of what they shared."""
        file = self.files[model.name]
        folder, study = file.with_suffix(""), self.search.read(file).begin(self.start)
        if study is None:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        save_study(file, study)
        place, trial = len(study.trials), study.trials[-1]
        own = folder / f"trial-{place}"
        own.mkdir(parents=True, exist_ok=True)
        others = [other.reported for other in study.trials if other.state == "finished" and trial.seed == TRIAL_SEED]
        return TrialOrder(model, trial, place, own, others, self.search.space.stage)

    def _store(self, order: TrialOrder, ended: Trial) -> None:
        name, budget = order.model.name, self.search.budget
        save_study(self.files[name], self.search.read(self.files[name]).end(ended))
        shutil.rmtree(order.folder, ignore_errors=True)
        said = f"{ended.said()} ({ended.values.describe()}; seed {ended.seed})"
        self.services.reporter.log(f"{name} trial {order.place}/{budget.trials + budget.further}: {said}")
        self.progress.advance(detail=f"{name}: {said}")

    def _fail(self, name: str, said: str) -> None:
        self.errors[name] = said
        self.services.reporter.note(f"{name}: failed: {said}", style="red")


@dataclass
class TrialWork(OwnServices):
    """Does trials, one after another."""

    search: Search
    services: Services | None = None

    def __call__(self, order: TrialOrder) -> Trial:
        """Train a trial from its last checkpoint, if it has one, and give it back as it ended."""
        if not order.folder.is_dir():
            raise BenchError(
                f"a node of the cluster does not see {order.folder}",
                "choose a workspace on a disk that all nodes share, with --workspace",
            )
        if self.services is None:
            self.services = Services(self.search.workspace, Reporter())
        execution = self.search.config.execution
        self.services.load(execution.plugins)
        check_plugins(execution.digests)
        with locked(order.folder / "worker", lambda: None), contain_exits():  # a killed one may take a moment to end
            reports = Reports(order, self.search.budget)
            try:
                score = train_trial(order, self.services.context(self.search.config), reports, self.services)
                how: dict[str, Any] = {"state": "finished", "score": score}
            except TrialPruned:
                how = {"state": "pruned", "score": [*reports.values.values()][-1]}
            except TrainingDivergedError as error:
                how = {"state": "failed", "reason": str(error)}
            return order.trial.model_copy(update={**how, "reported": reports.values})


def train_trial(order: TrialOrder, context: RunContext, reports: "Reports", services: Services) -> float:
    """The best validation CIDEr-D, as a fraction, of the last stage of a training with a trial's values.

    TrialPruned where enough of the other trials are ahead, TrainingDivergedError where the loss is no number any more.
    """
    trial = order.trial
    values = Tuned("trial", {order.model.name: trial.values}, stages=order.stage)
    spec = trial_spec(order.model, context, services.workspace, values, trial.seed)
    stages, reporter = context.preset.schedule.stages, TrialReporter(services.reporter)
    before = 0 if order.stage is None or len(stages) == 1 else _begin(order, spec, context, reporter)

    def on_epoch(record: EpochRecord) -> None:
        if record.val_cider is not None:
            last = record.stage + 1 == len(stages) and record.epoch + 1 == stages[-1].epochs
            reports.report(record.val_cider, record.step - before, last=last)

    tuned = context.tuned(AppliedTuning(label="trial", values=trial.values, stages=order.stage))
    torch.manual_seed(spec.seed)
    model, own, _ = open_model(spec, tuned, order.folder)
    return fit(model, spec.seed, own, order.folder, on_epoch, reporter).best


def _begin(order: TrialOrder, spec: RunSpec, context: RunContext, reporter: Reporter) -> int:
    """Let a trial go on from the stages before the searched one, which all of its seed share; gives their updates."""
    shared = order.folder.parent / f"before-{order.trial.seed}"
    shared.mkdir(exist_ok=True)
    earlier = replace(context, preset=with_stages(context.preset, context.preset.schedule.stages[:-1]))
    torch.manual_seed(spec.seed)
    model, own, _ = open_model(spec, earlier, shared)
    steps = fit(model, spec.seed, own, shared, lambda _: None, reporter).total_steps  # at once where it has ended
    if last_checkpoint(order.folder / CHECKPOINTS) is None:
        position = read_position(last_checkpoint(shared / CHECKPOINTS) or shared)
        assert position is not None, "training has just read it"
        position |= {"stage": position["stage"] + 1, "best": -math.inf, "finished": False, "saves": 1}
        save_first_checkpoint(order.folder / CHECKPOINTS, shared / WEIGHTS, {"position": position})
    return steps


class Reports:
    """What a trial reports, kept in its folder, and whether it is stopped, as by Optuna's `MedianPruner`.

    None is in the first third of its updates, where warm-ups still differ.
    """

    def __init__(self, order: TrialOrder, budget: Budget) -> None:
        self._others, self._budget, self._file = order.others, budget, order.folder / _REPORTED
        told = json.loads(self._file.read_text(encoding="utf-8")) if self._file.is_file() else {}
        self.values = {int(step): float(cider) for step, cider in told.items()}

    def report(self, cider: float, step: int, *, last: bool) -> None:
        """Keep a validation's CIDEr-D; TrialPruned where others are ahead, but for the last one."""
        if step not in self.values:
            self.values[step] = cider
            write_text(self._file, json.dumps(self.values))
        there = [other[step] for other in self._others if step in other]
        if last or not there or len(self._others) < self._budget.startup_trials or step < self._budget.updates // 3:
            return
        if max(self.values.values()) < np.percentile(there, 50):
            raise TrialPruned


class TrialReporter(Reporter):
    """The tasks of another reporter, without its lines."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self.console, self.display = reporter.console, reporter.display

    def note(self, text: str, style: str = "") -> None:
        """Print nothing."""

    def log(self, text: str, style: str = "") -> None:
        """Print nothing."""

    def task(self, title: str, total: int, done: int = 0) -> Any:
        return self._reporter.task(title, total, done)
