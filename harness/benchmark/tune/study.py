"""The study of one model: its trials, and how a process takes the next one, so that none is done twice.

A trial belongs to the process that holds the lock of its folder. Where a trial runs and nobody holds its lock, its
process was ended: the trial is queued again with the same values, and goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.pruners import MedianPruner
from optuna.trial import FrozenTrial, TrialState

from harness.config.tuning import Budget, EndedAs, SearchSpace, TunedTrial, TunedValues
from harness.utils.atomic import write_text
from harness.utils.hashing import digest
from harness.utils.workspace import is_locked, locked

DEFAULT = "default"
"""User attribute of the trial that trains the preset as it is, whatever the nearest point of the space is."""
REPEATS = "repeats"
"""User attribute: the number of the trial of an ended process that this one does again."""
FOLDER = "folder"
"""User attribute: the number of the first of the trials that repeat each other, which names their folder."""
REASON = "reason"
"""User attribute: why a trial failed."""
_REPORTS = "reported.json"
_STATES: Final[Mapping[TrialState, EndedAs]] = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


@dataclass(frozen=True, slots=True)
class ClaimedTrial:
    """A trial that this process does.

    Attributes:
        place: its number in the budget, from 1.
        known: the steps that were reported before an interruption.
    """

    trial: optuna.Trial
    values: TunedValues
    place: int
    folder: Path
    known: frozenset[int]


@dataclass(frozen=True, slots=True)
class StudyStanding:
    """Where a study stands; `trials` are those that ended.

    Scores are validation CIDEr-D as fractions, None where no trial gave one.
    """

    default: float | None
    best: float | None
    values: TunedValues
    finished: int
    pruned: int
    failed: int
    done: bool
    trials: tuple[TunedTrial, ...]


class ModelStudy:
    """The study of one model.

    Args:
        study: Optuna's, of whatever sampler and pruner.
        start: the point of the space that stands for the untuned preset.
        folder: of its trials.
        lock: of all studies of the workspace.
    """

    def __init__(
        self, study: optuna.Study, space: SearchSpace, budget: Budget, start: dict[str, float], folder: Path, lock: Path
    ) -> None:
        self.study, self._budget, self._start, self._folder, self._lock = study, budget, start, folder, lock
        self._distributions = distributions(space)
        study.pruner = pruner(budget)

    @contextmanager
    def claim(self) -> Iterator[ClaimedTrial | None]:
        """Take the next trial and hold it; None where all are done or other processes are at work on them."""
        with ExitStack() as held:
            with locked(self._lock, lambda: None):
                claim = self._take()
                if claim is not None:
                    held.enter_context(locked(claim.folder / "lock", lambda: None))
            yield claim

    def running(self) -> list[Path]:
        """The locks of trials that have been taken and are not done."""
        return [self._lock_of(trial) for trial in counted(self.study) if trial.state == TrialState.RUNNING]

    def finish(
        self, claim: ClaimedTrial, state: TrialState, value: float | None = None, reason: str | None = None
    ) -> None:
        """Store how a trial of this process ended, and delete what it left on disk."""
        if reason is not None:
            claim.trial.set_user_attr(REASON, reason)
        self.study.tell(claim.trial, value, state=state)
        shutil.rmtree(claim.folder, ignore_errors=True)

    def _take(self) -> ClaimedTrial | None:
        if not self.study.get_trials(deepcopy=False):
            self._queue(self._start, {DEFAULT: True}, {})
        for trial in counted(self.study):
            if trial.state == TrialState.RUNNING and self._is_left(trial):
                self._repeat(trial)
        trials = counted(self.study)
        if len(trials) >= self._budget.trials and all(trial.state != TrialState.WAITING for trial in trials):
            return None
        # A seed for each place: a new process goes on with the numbers that an undisturbed one would draw.
        seed = int(digest([self._budget.seed, len(trials)], 8), 16)
        self.study.sampler = optuna.samplers.TPESampler(n_startup_trials=self._budget.startup_trials, seed=seed)
        taken = self.study.ask(self._distributions)
        known = self.study.get_trials(deepcopy=False)[taken.number]
        place = [_first(trial) for trial in counted(self.study)].index(_first(known)) + 1
        folder = self._lock_of(known).parent
        folder.mkdir(parents=True, exist_ok=True)
        return ClaimedTrial(taken, values_of(known), place, folder, frozenset(known.intermediate_values))

    def _is_left(self, trial: FrozenTrial) -> bool:
        """Whether the process of a trial was ended; one that finishes it lets go of the lock after it has said so."""
        if is_locked(self._lock_of(trial)):
            return False
        return self.study.get_trials(deepcopy=False)[trial.number].state == TrialState.RUNNING

    def _repeat(self, trial: FrozenTrial) -> None:
        """Queue the trial of an ended process again; one whose values were not all drawn yet is as if it never was."""
        if len(trial.params) == len(self._distributions):
            attributes = {**trial.user_attrs, REPEATS: trial.number, FOLDER: _first(trial)}
            reported = trial.intermediate_values | kept_reports(self._lock_of(trial).parent)
            self._queue(trial.params, attributes, reported)
        self.study.tell(trial.number, state=TrialState.FAIL)

    def _queue(self, params: dict[str, Any], attributes: dict[str, Any], reported: dict[int, float]) -> None:
        self.study.add_trial(
            optuna.create_trial(
                state=TrialState.WAITING,
                params=params,
                distributions=self._distributions,
                user_attrs=attributes,
                intermediate_values=reported,
            )
        )

    def _lock_of(self, trial: FrozenTrial) -> Path:
        return self._folder / f"trial-{_first(trial)}" / "lock"


def pruner(budget: Budget) -> MedianPruner:
    """What ends trials early; none in the first third of its updates, where warm-ups still differ."""
    return MedianPruner(budget.startup_trials, n_warmup_steps=budget.updates // 3)


def keep_reports(folder: Path, reported: Mapping[int, float]) -> None:
    """Keep in a trial's folder what it has reported, by steps, where its process does not open the study."""
    write_text(folder / _REPORTS, json.dumps(dict(reported)))


def kept_reports(folder: Path) -> dict[int, float]:
    """What `keep_reports` kept last."""
    if not (folder / _REPORTS).is_file():
        return {}
    return {int(step): cider for step, cider in json.loads((folder / _REPORTS).read_text(encoding="utf-8")).items()}


def distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    """What Optuna draws from, by the names of `TunedValues`."""
    found: dict[str, BaseDistribution] = {
        "learning_rate": FloatDistribution(*space.learning_rate, log=True),
        "dropout_scale": FloatDistribution(*space.dropout_scale),
        "warmup": FloatDistribution(*space.warmup),
        "clip_norm": CategoricalDistribution(space.clip_norm),
    }
    return found | ({"width": CategoricalDistribution(space.width)} if space.width else {})


def counted(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that count, in order: not those that were repeated, or were ended before their values were drawn."""
    trials = study.get_trials(deepcopy=False)
    repeated = {trial.user_attrs.get(REPEATS) for trial in trials}
    left = [trial for trial in trials if trial.number not in repeated]
    drawn = [trial for trial in left if trial.state != TrialState.FAIL or REASON in trial.user_attrs]
    return sorted(drawn, key=_first)


def values_of(trial: FrozenTrial) -> TunedValues:
    """What a trial trains with; the default is the preset as it is."""
    return TunedValues() if trial.user_attrs.get(DEFAULT) else TunedValues.of_params(trial.params)


def standing(study: optuna.Study, budget: Budget) -> StudyStanding:
    """Where a study stands."""
    trials = counted(study)
    by_state = {state: [trial for trial in trials if trial.state == state] for state in TrialState}
    finished = by_state[TrialState.COMPLETE]
    default = next((trial.value for trial in finished if trial.user_attrs.get(DEFAULT)), None)
    # Of equal scores the first: the default's, where nothing is better.
    best = max(finished, key=lambda trial: (trial.value or 0.0, -_first(trial)), default=None)
    return StudyStanding(
        default=default,
        best=None if best is None else best.value,
        values=TunedValues() if best is None else values_of(best),
        finished=len(finished),
        pruned=len(by_state[TrialState.PRUNED]),
        failed=len(by_state[TrialState.FAIL]),
        done=sum(trial.state.is_finished() for trial in trials) >= budget.trials,
        trials=tuple(
            TunedTrial(**values_of(trial).model_dump(), state=_STATES[trial.state], score=trial.value)
            for trial in trials
            if trial.state in _STATES
        ),
    )


def _first(trial: FrozenTrial) -> int:
    """The number of the trial, or of the first that it repeats."""
    return int(trial.user_attrs.get(FOLDER, trial.number))
