"""`bench tune`: the same trials for every model, shared by all processes that run the same command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import optuna
import yaml
from optuna.trial import TrialState

from harness.config.features import FeatureConfig
from harness.config.preset import Preset
from harness.config.tuning import Budget, SearchSpace, default_params, scaled
from harness.metrics.signature import EvaluationSettings
from harness.runner.benchmark import choose_device, choose_precision
from harness.runner.context import RunContext, prepare_context
from harness.runner.identity.signature import tuned_field
from harness.runner.models import RequestedModel, resolve_models
from harness.training.trainer import TrainingDivergedError
from harness.tuning.chosen import TunedFile, TunedModel
from harness.tuning.objective import train_trial, trial_spec
from harness.tuning.storage import open_studies, studies_lock
from harness.tuning.study import Claim, ModelStudy, Standing, standing
from harness.utils.errors import BenchError
from harness.utils.hashing import digest
from harness.utils.plugins import contain_exits
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace, locked


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """What the user asked for."""

    models: tuple[str, ...]
    data: str
    preset: Preset
    workspace: Workspace
    trials: int
    images: Path | None = None
    features: FeatureConfig = field(default_factory=FeatureConfig)
    space: SearchSpace = field(default_factory=SearchSpace)
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    skip_bad_images: bool = False


@dataclass(frozen=True, slots=True)
class Tuning:
    """How a tuning ended: by model, where its study stands, or why it could not go on."""

    context: RunContext
    space: SearchSpace
    budget: Budget
    label: str
    models: dict[str, Standing]
    errors: dict[str, str]


def tune(request: TuneRequest, reporter: Reporter) -> Tuning:
    """Do all trials of all models that are not done yet; one model's failure never stops the others.

    Raises:
        BenchError: nothing to tune, a preset that cannot be tuned, or what `prepare_context` refuses.
    """
    models = _trained(request, reporter)
    _check(request)
    request.workspace.create()
    device = choose_device(request.device)
    context = prepare_context(
        request.data,
        images=request.images,
        preset=request.preset,
        feature_config=request.features,
        sees={model.name: model.visual for model in models},
        evaluation=EvaluationSettings(),
        skip_bad_images=request.skip_bad_images,
        device=device,
        precision=choose_precision(request.precision, device),
        workspace=request.workspace,
        reporter=reporter,
    )
    # A third of the trials only explores, as does Optuna's own default of 10 in 30.
    startup = max(request.trials // 3, 2)
    budget = Budget(trials=request.trials, updates=sum(context.updates()), startup_trials=startup, seed=request.seed)
    label = tuned_field(request.space, budget, request.preset)
    reporter.note(f"tuning {len(models)} models, {budget.trials} trials of {budget.updates} updates each: {label}")
    studies = {model.name: _open(model, request, context, budget, label) for model in models}
    errors: dict[str, str] = {}
    waiting = list(models)
    while waiting:
        for model in list(waiting):
            try:
                with contain_exits():
                    _work(model, studies[model.name], request, context, budget, reporter)
            except Exception as error:  # the other models go on
                hint = getattr(error, "hint", None)
                errors[model.name] = f"{type(error).__name__}: {error}" + (f" ({hint})" if hint else "")
                reporter.note(f"{model.name}: failed: {errors[model.name]}", style="red")
            if model.name in errors or not studies[model.name].running():
                waiting.remove(model)
        if waiting and (locks := studies[waiting[0].name].running()):
            reporter.note(f"{waiting[0].name}: another process works on its last trials; waiting")
            with locked(locks[0], lambda: None):
                pass
    standings = {name: standing(study.study, budget) for name, study in studies.items()}
    return Tuning(context, request.space, budget, label, standings, errors)


def _trained(request: TuneRequest, reporter: Reporter) -> list[RequestedModel]:
    """The models of a request that are trained; the reporter is told of the others."""
    requested = resolve_models(request.models, request.workspace)
    models = [model for model in requested if model.kind == "trained"]
    others = ", ".join(model.name for model in requested if model.kind != "trained")
    if not models:
        raise BenchError(f"--models names nothing that is trained: {others}", "see `bench models` for the names")
    if others:
        reporter.note(f"not trained, so not tuned: {others}")
    return models


def _check(request: TuneRequest) -> None:
    preset = request.preset
    if preset.recipe is not None:
        raise BenchError(
            f"the preset {preset.name!r} is a paper's recipe, which is trained as it was printed",
            "tune a preset of the controlled track, as --preset quick",
        )
    if request.space.width:
        scaled(preset, 1.0)


def _open(model: RequestedModel, request: TuneRequest, context: RunContext, budget: Budget, label: str) -> ModelStudy:
    """The study of a model under these conditions, made where there is none."""
    run = trial_spec(model, context, request.workspace).key
    name = f"{run} {label}"
    lock = studies_lock(request.workspace)
    with locked(lock, lambda: None):
        study = optuna.create_study(
            storage=open_studies(request.workspace), study_name=name, direction="maximize", load_if_exists=True
        )
        described = {
            "model": model.name,
            "run": run,
            "label": label,
            "budget": budget.model_dump(mode="json"),
            "space": request.space.model_dump(mode="json"),
            "preset": context.preset.model_dump(mode="json"),
            "data": context.signature["data"],
        }
        for key, value in described.items():
            if key not in study.user_attrs:
                study.set_user_attr(key, value)
    start = default_params(request.preset, request.space, context.updates())
    folder = lock.parent / f"{run}-{digest(label, 6)}"
    return ModelStudy(study, request.space, budget, start, folder, lock)


def _work(
    model: RequestedModel,
    study: ModelStudy,
    request: TuneRequest,
    context: RunContext,
    budget: Budget,
    reporter: Reporter,
) -> None:
    """Do trials until all are done or taken. What ends one by an error leaves it to the next command."""
    while True:
        with study.claim() as claim:
            if claim is None:
                return
            said = _try(model, study, claim, request.workspace, context, reporter)
        values = claim.values.describe()
        reporter.note(f"{model.name} trial {claim.place}/{budget.trials}: {said} ({values})")


def _try(
    model: RequestedModel,
    study: ModelStudy,
    claim: Claim,
    workspace: Workspace,
    context: RunContext,
    reporter: Reporter,
) -> str:
    """Do one trial and store how it ended; gives that in words."""
    try:
        score = train_trial(model, claim.values, context, workspace, claim.folder, report_to(claim), reporter)
    except optuna.TrialPruned as pruned:
        study.finish(claim, TrialState.PRUNED)
        return str(pruned)
    except TrainingDivergedError as error:
        study.finish(claim, TrialState.FAIL, reason=str(error))
        return "diverged"
    study.finish(claim, TrialState.COMPLETE, score)
    return f"validation CIDEr-D {100 * score:.1f}"


def report_to(claim: Claim) -> Callable[[float, int, bool], None]:
    """What a trial is told of its validations (`train_trial`); TrialPruned ends one that others are ahead of."""

    def report(cider: float, step: int, last: bool) -> None:
        if step not in claim.known:
            claim.trial.report(cider, step)
        if not last and claim.trial.should_prune():
            raise optuna.TrialPruned(f"pruned after {step} updates, validation CIDEr-D {100 * cider:.1f}")

    return report


def finished_models(tuning: Tuning) -> list[str]:
    """The models that have tuned values."""
    return [name for name, found in tuning.models.items() if found.done and found.best is not None]


def exported(tuning: Tuning, command: str) -> str:
    """The YAML of the values of all finished models, which `command` found."""
    content = TunedFile(
        command=command,
        preset=tuning.context.preset.name,
        data=tuning.context.signature["data"],
        features=tuning.context.signature["feat"],
        tuned=tuning.label,
        budget=tuning.budget,
        space=tuning.space,
        models={name: TunedModel.of(tuning.models[name]) for name in finished_models(tuning)},
    )
    return yaml.safe_dump(content.model_dump(mode="json", exclude_none=True), sort_keys=False, width=100)
