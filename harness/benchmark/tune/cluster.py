"""Trials by workers of a cluster, one order each; the command alone opens the studies.

It takes the trials and stores how they ended, so that the file of the studies need not be shared between machines. What
a trial reports is kept in its folder, beside its checkpoints, before the checkpoint that comes after it: wherever the
trial goes on, it knows what was reported, and is pruned as it would have been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import optuna
from optuna.trial import FrozenTrial, TrialState

from harness.benchmark.engines.crew import Crew, Failure, Order
from harness.benchmark.engines.entering import enter_worker
from harness.benchmark.models import RequestedModel
from harness.benchmark.tune.study import Claim, ModelStudy, keep_reports, kept_reports, pruner
from harness.benchmark.tune.trials import Search, described_error, open_study, try_trial, wait_for_others
from harness.config.tuning import Budget, TunedValues
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import locked

OPENER = f"{__name__}:open_trials"


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """A trial for a worker.

    Attributes:
        place: its number in the budget, from 1.
        known: validation CIDEr-D by steps, as reported before an interruption.
        finished: trials of the same model, for the pruner.
    """

    model: RequestedModel
    values: TunedValues
    place: int
    folder: Path
    known: Mapping[int, float]
    finished: Sequence[FrozenTrial]


@dataclass(slots=True)
class TrialEnd:
    """How a trial ended; `reported` holds all that it reported, by steps, and `said` tells the end in words."""

    state: TrialState = TrialState.RUNNING
    score: float | None = None
    reason: str | None = None
    reported: dict[int, float] = field(default_factory=dict)
    said: str = ""

    def finish(self, _: Claim, state: TrialState, value: float | None = None, reason: str | None = None) -> None:
        """Keep how it ended, for the command to store."""
        self.state, self.score, self.reason = state, value, reason


def do_trials_by_crew(
    make_crew: Callable[[], Crew], models: Sequence[RequestedModel], search: Search, reporter: Reporter
) -> dict[str, str]:
    """Do all trials that are left by a crew that `open_trials` opens; errors as `do_trials`."""
    studies = {model.name: open_study(model, search) for model in models}
    errors: dict[str, str] = {}
    waiting = list(models)
    while waiting:
        with ExitStack() as held:
            _Trials(studies, search, reporter, errors, held).do(waiting, make_crew)
        waiting = [model for model in waiting if model.name not in errors and studies[model.name].running()]
        if waiting:
            wait_for_others(waiting[0], studies[waiting[0].name], reporter)
    return errors


@dataclass(slots=True)
class _Trials:
    """The trials that this command holds, by model, and where the errors go."""

    studies: Mapping[str, ModelStudy]
    search: Search
    reporter: Reporter
    errors: dict[str, str]
    held: ExitStack
    claims: dict[str, tuple[Claim, ExitStack]] = field(default_factory=dict)

    def do(self, models: Sequence[RequestedModel], make_crew: Callable[[], Crew]) -> None:
        """Do trials until all are done or taken by others; a model's next one is taken when the one before ends."""
        orders = [order for model in models for order in self._next(model)]
        if not orders:
            return
        with closing(make_crew().perform(orders)) as ending:
            for order, found in ending:
                claim, lock = self.claims.pop(order.name)
                with lock:
                    if isinstance(found, Failure):
                        self._fail(order.name, str(found))
                        continue
                    self._store(order.name, claim, found)
                orders += self._next(order.content.model)

    def _next(self, model: RequestedModel) -> list[Order]:
        """The next trial of a model, which is held until it has ended; none where nothing is left of them."""
        study, lock = self.studies[model.name], self.held.enter_context(ExitStack())
        try:
            claim = lock.enter_context(study.claim())
        except Exception as error:  # the other models go on
            self._fail(model.name, described_error(error))
            return []
        if claim is None:
            return []
        self.claims[model.name] = claim, lock
        trials = study.study.get_trials(deepcopy=False)
        known = trials[claim.trial.number].intermediate_values
        finished = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        return [Order(model.name, TrialOrder(model, claim.values, claim.place, claim.folder, known, finished))]

    def _store(self, name: str, claim: Claim, ended: TrialEnd) -> None:
        for step, cider in ended.reported.items():
            if step not in claim.known:
                claim.trial.report(cider, step)
        self.studies[name].finish(claim, ended.state, ended.score, ended.reason)
        place = f"{claim.place}/{self.search.budget.trials}"
        self.reporter.note(f"{name} trial {place}: {ended.said} ({claim.values.describe()})")

    def _fail(self, name: str, said: str) -> None:
        self.errors[name] = said
        self.reporter.note(f"{name}: failed: {said}", style="red")


@contextmanager
def open_trials(search: Search, place: int, reporter: Reporter) -> Iterator[Callable[[TrialOrder], TrialEnd]]:
    """In a worker: train one trial after another."""
    here = replace(search, context=enter_worker(search.context, place))
    yield lambda order: do_trial(order, here, reporter)


def do_trial(order: TrialOrder, search: Search, reporter: Reporter) -> TrialEnd:
    """Train a trial from its last checkpoint, if it has one.

    Raises:
        BenchError: its folder is not seen here; other errors as the training has them.
    """
    if not order.folder.is_dir():
        raise BenchError(
            f"a node of the cluster does not see {order.folder}",
            "choose a workspace on a disk that all nodes share, with --workspace",
        )
    with locked(order.folder / "worker", lambda: None):  # whose command was killed may take a moment to end
        reports = _Reports(order, search.budget)
        trial = cast(optuna.Trial, reports)
        claim = Claim(trial, order.values, order.place, order.folder, frozenset(reports.values))
        ended = TrialEnd()
        ended.said = try_trial(order.model, ended, claim, search, reporter)
        ended.reported = reports.values
    return ended


class _Reports:
    """What a trial asks of Optuna's, answered from the order and from what is in the trial's folder."""

    def __init__(self, order: TrialOrder, budget: Budget) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(direction="maximize", pruner=pruner(budget))
        study.add_trials(order.finished)
        self._trial, self._folder = study.ask(), order.folder
        self.values = {**order.known, **kept_reports(order.folder)}
        for step, cider in self.values.items():
            self._trial.report(cider, step)

    def report(self, value: float, step: int) -> None:
        """Keep a validation's CIDEr-D."""
        self._trial.report(value, step)
        self.values[step] = value
        keep_reports(self._folder, self.values)

    def should_prune(self) -> bool:
        """Whether enough of the other trials are ahead."""
        return self._trial.should_prune()
