"""The trials of several models: each takes its next one until all are done, and one model's failure stops no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import optuna
from optuna.trial import TrialState

from harness.benchmark.context import RunContext
from harness.benchmark.models import RequestedModel
from harness.benchmark.tune.objective import train_trial, trial_spec
from harness.benchmark.tune.storage import open_studies, studies_lock
from harness.benchmark.tune.study import Claim, ModelStudy
from harness.config.tuning import Budget, SearchSpace, default_params
from harness.training.losses import TrainingDivergedError
from harness.utils.hashing import digest
from harness.utils.plugins import contain_exits
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace, locked


@dataclass(frozen=True, slots=True)
class Search:
    """What is the same for all models that are tuned together; picklable. `label` is the signature's."""

    workspace: Workspace
    context: RunContext
    space: SearchSpace
    budget: Budget
    label: str


def open_study(model: RequestedModel, search: Search) -> ModelStudy:
    """The study of a model under these conditions, made where there is none."""
    context = search.context
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


def do_trials(models: Sequence[RequestedModel], search: Search, reporter: Reporter) -> dict[str, str]:
    """Do all trials that are left, and wait for those of other processes; gives by model why it could not go on."""
    studies = {model.name: open_study(model, search) for model in models}
    errors: dict[str, str] = {}
    waiting = list(models)
    while waiting:
        for model in list(waiting):
            try:
                with contain_exits():
                    _work(model, studies[model.name], search, reporter)
            except Exception as error:  # the other models go on
                errors[model.name] = described_error(error)
                reporter.note(f"{model.name}: failed: {errors[model.name]}", style="red")
            if model.name in errors or not studies[model.name].running():
                waiting.remove(model)
        if waiting:
            wait_for_others(waiting[0], studies[waiting[0].name], reporter)
    return errors


def wait_for_others(model: RequestedModel, study: ModelStudy, reporter: Reporter) -> None:
    """Wait for a trial that another process does, if there is one."""
    if locks := study.running():
        reporter.note(f"{model.name}: another process works on its last trials; waiting")
        with suppress(FileNotFoundError), locked(locks[0], lambda: None):  # a trial that ends deletes its folder
            pass


def described_error(error: Exception) -> str:
    """An error in one line, with what to do about it if that is known."""
    hint = getattr(error, "hint", None)
    return f"{type(error).__name__}: {error}" + (f" ({hint})" if hint else "")


def _work(model: RequestedModel, study: ModelStudy, search: Search, reporter: Reporter) -> None:
    """Do trials until all are done or taken. What ends one by an error leaves it to the next command."""
    while True:
        with study.claim() as claim:
            if claim is None:
                return
            said = try_trial(model, study, claim, search, reporter)
        values = claim.values.describe()
        reporter.note(f"{model.name} trial {claim.place}/{search.budget.trials}: {said} ({values})")


class Finishing(Protocol):
    """What stores how a trial ended."""

    def finish(self, claim: Claim, state: TrialState, value: float | None = None, reason: str | None = None) -> None:
        """See `ModelStudy.finish`."""
        ...


def try_trial(model: RequestedModel, study: Finishing, claim: Claim, search: Search, reporter: Reporter) -> str:
    """Do one trial and store how it ended; gives that in words."""
    try:
        score = train_trial(
            model, claim.values, search.context, search.workspace, claim.folder, report_to(claim), reporter
        )
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
