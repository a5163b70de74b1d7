"""The study of one model: its trials, and how a process takes the next one, so that none is done twice.

A trial belongs to the process that holds the lock of its folder. Where a trial runs and nobody holds its lock, its
process was ended: the trial is queued again with the same values, and goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, variance
from typing import Any, Final

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.pruners import MedianPruner
from optuna.trial import FrozenTrial, TrialState

from harness.config.tuning import TRIAL_SEED, Budget, EndedAs, SearchSpace, TunedTrial, TunedValues
from harness.utils.atomic import write_text
from harness.utils.hashing import digest
from harness.utils.workspace import is_locked, locked
from results.statistics.architecture import t_quantile
from results.statistics.significance import ALPHA

DEFAULT = "default"
"""User attribute of the trial that trains the preset as it is, whatever the nearest point of the space is."""
REPEATS = "repeats"
"""User attribute: the number of the trial of an ended process that this one does again."""
FOLDER = "folder"
"""User attribute: the number of the first of the trials that repeat each other, which names their folder."""
REASON = "reason"
"""User attribute: why a trial failed."""
SEED = "seed"
"""User attribute of a trial that trains the preset or a finalist again: its further training seed."""
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
        seed: of its training; that of further seeds is never pruned.
        place: its number in the budget, from 1.
        known: the steps that were reported before an interruption.
    """

    trial: optuna.Trial
    values: TunedValues
    seed: int
    place: int
    folder: Path
    known: frozenset[int]


@dataclass(frozen=True, slots=True)
class StudyStanding:
    """Where a study stands; `trials` are those that ended.

    Scores are validation CIDEr-D as fractions, means over seeds, None where no trial gave one. `deviation` is that over
    seeds, pooled over the preset and the finalists; None with one seed.
    """

    default: float | None
    best: float | None
    deviation: float | None
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

    def done(self) -> bool:
        """Whether all that the budget asks for has ended."""
        return standing(self.study, self._budget).done

    def clear(self) -> None:
        """Delete what trials shared on disk, once none is left."""
        shutil.rmtree(self._folder, ignore_errors=True)

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
        trials, draw = counted(self.study), dict[str, BaseDistribution]()
        if all(trial.state != TrialState.WAITING for trial in trials):
            if sum(SEED not in trial.user_attrs for trial in trials) < self._budget.trials:
                draw = dict(self._distributions)
                if len(trials) % 2 == 0:  # every other place keeps the preset's dropout
                    del draw["dropout_scale"]
            elif left := finals(trials, self._budget):
                trial, further = left[0]
                kept = {name: value for name, value in trial.user_attrs.items() if name == DEFAULT}
                self._queue(trial.params, kept | {SEED: further}, {})
            else:
                return None
        # A seed for each place: a new process goes on with the numbers that an undisturbed one would draw.
        seed = int(digest([self._budget.seed, len(trials)], 8), 16)
        self.study.sampler = optuna.samplers.TPESampler(n_startup_trials=self._budget.startup_trials, seed=seed)
        taken = self.study.ask(draw)
        known = self.study.get_trials(deepcopy=False)[taken.number]
        place = [_first(trial) for trial in counted(self.study)].index(_first(known)) + 1
        folder = self._lock_of(known).parent
        folder.mkdir(parents=True, exist_ok=True)
        steps = frozenset(known.intermediate_values)
        return ClaimedTrial(taken, values_of(known), seed_of(known), place, folder, steps)

    def _is_left(self, trial: FrozenTrial) -> bool:
        """Whether the process of a trial was ended; one that finishes it lets go of the lock after it has said so."""
        if is_locked(self._lock_of(trial)):
            return False
        return self.study.get_trials(deepcopy=False)[trial.number].state == TrialState.RUNNING

    def _repeat(self, trial: FrozenTrial) -> None:
        """Queue the trial of an ended process again; one whose values were not all drawn yet is as if it never was."""
        if list(self._distributions)[-1] in trial.params:  # they are drawn in this order
            attributes = {**trial.user_attrs, REPEATS: trial.number, FOLDER: _first(trial)}
            reported = trial.intermediate_values | kept_reports(self._lock_of(trial).parent)
            self._queue(trial.params, attributes, reported)
        self.study.tell(trial.number, state=TrialState.FAIL)

    def _queue(self, params: dict[str, Any], attributes: dict[str, Any], reported: dict[int, float]) -> None:
        self.study.add_trial(
            optuna.create_trial(
                state=TrialState.WAITING,
                params=params,
                distributions={name: self._distributions[name] for name in params},
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
    """What Optuna draws from, by the names of `TunedValues`; `dropout_scale` is not the last."""
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


def seed_of(trial: FrozenTrial) -> int:
    """The seed of a trial's training."""
    return int(trial.user_attrs.get(SEED, TRIAL_SEED))


def finals(trials: Sequence[FrozenTrial], budget: Budget) -> list[tuple[FrozenTrial, int]]:
    """What is to be trained again and is not among `trials`: the preset and the best others, each with further seeds.

    Nothing before all trials of the budget have ended, nor where none but the preset's has finished.
    """
    drawn = [trial for trial in trials if SEED not in trial.user_attrs]
    if sum(trial.state.is_finished() for trial in drawn) < budget.trials:
        return []
    finished = [trial for trial in drawn if trial.state == TrialState.COMPLETE]
    default = [trial for trial in finished if DEFAULT in trial.user_attrs]
    others = [trial for trial in finished if DEFAULT not in trial.user_attrs]
    best = sorted(others, key=lambda trial: -(trial.value or 0.0))[: budget.finalists]
    there = {(values_of(trial), seed_of(trial)) for trial in trials}
    again = [(trial, TRIAL_SEED + 1 + more) for more in range(budget.seeds) for trial in (*default, *best) if best]
    return [(trial, seed) for trial, seed in again if (values_of(trial), seed) not in there]


def standing(study: optuna.Study, budget: Budget) -> StudyStanding:
    """Where a study stands, and what it has chosen so far."""
    trials = [trial for trial in counted(study) if trial.state in _STATES]
    states = [trial.state for trial in trials]
    default, best, values, deviation = _chosen(trials)
    return StudyStanding(
        default=default,
        best=best,
        deviation=deviation,
        values=values,
        finished=states.count(TrialState.COMPLETE),
        pruned=states.count(TrialState.PRUNED),
        failed=states.count(TrialState.FAIL),
        done=len(trials) >= budget.trials and not finals(trials, budget),
        trials=tuple(
            TunedTrial(
                **values_of(trial).model_dump(), state=_STATES[trial.state], score=trial.value, seed=seed_of(trial)
            )
            for trial in trials
        ),
    )


def _chosen(trials: Sequence[FrozenTrial]) -> tuple[float | None, float | None, TunedValues, float | None]:
    """Mean scores of the preset and of what is chosen, its values, and the deviation over seeds.

    Chosen is the best mean over the most seeds of what never failed; the preset, unless that is above it by more than
    noise: t's one-sided 95 % quantile times the standard error of a difference of two means.
    """
    scores: dict[TunedValues, list[float]] = {}
    for trial in trials:
        if trial.state == TrialState.COMPLETE:
            scores.setdefault(values_of(trial), []).append(trial.value or 0.0)
    failed = {values_of(trial) for trial in trials if trial.state == TrialState.FAIL}
    seeds = max((len(found) for values, found in scores.items() if values not in failed), default=0)
    final = {values: found for values, found in scores.items() if values not in failed and len(found) == seeds}
    means = {values: fmean(found) for values, found in final.items()}
    best = max(means, key=lambda values: means[values], default=TunedValues())  # of equal ones the first: the preset
    default, deviation, noise = means.get(TunedValues()), None, 0.0
    if seeds > 1:
        deviation = fmean(variance(found) for found in final.values()) ** 0.5
        degrees = np.asarray(len(final) * (seeds - 1))
        noise = float(t_quantile(1 - 2 * ALPHA, degrees)) * deviation * (2 / seeds) ** 0.5
    if default is not None and means[best] - default <= noise:
        best = TunedValues()
    return default, means.get(best), best, deviation


def _first(trial: FrozenTrial) -> int:
    """The number of the trial, or of the first that it repeats."""
    return int(trial.user_attrs.get(FOLDER, trial.number))
