"""The study of one model: its trials in a JSON file of the workspace, what is trained next, and what was chosen.

A trial is in the file before it begins, so that one whose process was ended is done again with the same values, from
its last checkpoint. Optuna draws the values, and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, variance

import numpy as np
from pydantic import ValidationError

from harness.config.schedule import Strict
from harness.config.tuning import TRIAL_SEED, Budget, EndedAs, SearchSpace, TunedTrial, TunedValues
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.hashing import digest
from harness.utils.workspace import Workspace
from results.errors import install_extra
from results.files import read_text
from results.statistics.architecture import t_quantile
from results.statistics.significance import ALPHA


class TunedModel(Strict):
    """What a model's tuning came to; `trials` are those that ended.

    Scores are validation CIDEr-D as fractions, means over seeds, None where no trial gave one. `deviation` is that over
    seeds, pooled over the preset and the finalists; None with one seed.
    """

    values: TunedValues
    default: float | None = None
    best: float | None = None
    deviation: float | None = None
    trials: tuple[TunedTrial, ...]

    def count(self, state: EndedAs) -> int:
        """How many trials ended so."""
        return sum(trial.state == state for trial in self.trials)


class Trial(Strict):
    """A training of a model.

    Attributes:
        params: the point of the space that the sampler knows it by.
        is_default: whether it trains the preset as it is, whatever the nearest point of the space is.
        seed: of its training; that of further seeds is never pruned.
        state: None before it has ended.
    """

    params: dict[str, float]
    is_default: bool = False
    seed: int = TRIAL_SEED
    state: EndedAs | None = None
    score: float | None = None
    reported: Mapping[int, float] = {}
    reason: str | None = None

    @property
    def values(self) -> TunedValues:
        """What it trains with."""
        return TunedValues() if self.is_default else TunedValues.of_params(self.params)

    def said(self) -> str:
        """How it ended, in words."""
        if self.score is None:
            return "diverged"
        after = f"pruned after {[*self.reported][-1]} updates, " if self.state == "pruned" else ""
        return f"{after}validation CIDEr-D {100 * self.score:.1f}"


class Study(Strict):
    """The trials of a model in their order, the last of which may not have ended; `label` is the signature's."""

    label: str
    budget: Budget
    space: SearchSpace
    trials: tuple[Trial, ...] = ()

    @property
    def done(self) -> bool:
        """Whether all that the budget asks for has ended."""
        return sum(trial.state is not None for trial in self.trials) >= self.budget.trials and not self._finals()

    def begin(self, start: dict[str, float]) -> Study | None:
        """The study with a trial at its end that has not ended; None where there is nothing left to do.

        Args:
            start: the point of the space that stands for the untuned preset, which is trained first.
        """
        if self.trials and self.trials[-1].state is None:
            return self
        if not self.trials:
            return self._with(Trial(params=start, is_default=True))
        if sum(trial.seed == TRIAL_SEED for trial in self.trials) < self.budget.trials:
            return self._with(Trial(params=self._draw()))
        left = self._finals()
        return self._with(left[0]) if left else None

    def end(self, trial: Trial) -> Study:
        """The study with its last trial as it ended."""
        return self.model_copy(update={"trials": (*self.trials[:-1], trial)})

    def _with(self, trial: Trial) -> Study:
        return self.model_copy(update={"trials": (*self.trials, trial)})

    def _draw(self) -> dict[str, float]:
        """The next point, by Optuna's sampler; every other place keeps the preset's dropout."""
        import optuna
        from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
        from optuna.trial import TrialState

        states = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        space: dict[str, BaseDistribution] = {
            "learning_rate": FloatDistribution(*self.space.learning_rate, log=True),
            "dropout_scale": FloatDistribution(*self.space.dropout_scale),
            "warmup": FloatDistribution(*self.space.warmup),
            "clip_norm": CategoricalDistribution(self.space.clip_norm),
        }
        if self.space.width:
            space["width"] = CategoricalDistribution(self.space.width)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        # A seed for each place: another process goes on with the numbers that an undisturbed one would draw.
        seed = int(digest([self.budget.seed, len(self.trials)], 8), 16)
        sampler = optuna.samplers.TPESampler(n_startup_trials=self.budget.startup_trials, seed=seed)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for trial in self.trials:
            study.add_trial(
                optuna.create_trial(
                    state=states[trial.state or "failed"],
                    value=trial.score,
                    params=trial.params,
                    distributions={name: space[name] for name in trial.params},
                    intermediate_values=dict(trial.reported),
                )
            )
        if len(self.trials) % 2 == 0:
            del space["dropout_scale"]
        return dict(study.ask(space).params)

    def _finals(self) -> list[Trial]:
        """What is to be trained again and is not yet: the preset and the best others, each with further seeds.

        Nothing before all trials of the budget have ended, nor where none but the preset's has finished.
        """
        drawn = [trial for trial in self.trials if trial.seed == TRIAL_SEED]
        if sum(trial.state is not None for trial in drawn) < self.budget.trials:
            return []
        finished = [trial for trial in drawn if trial.state == "finished"]
        others = [trial for trial in finished if not trial.is_default]
        best = sorted(others, key=lambda trial: -(trial.score or 0.0))[: self.budget.finalists]
        again = [*(trial for trial in finished if trial.is_default), *best] if best else []
        there = {(trial.values, trial.seed) for trial in self.trials}
        return [
            Trial(params=trial.params, is_default=trial.is_default, seed=seed)
            for seed in range(TRIAL_SEED + 1, TRIAL_SEED + 1 + self.budget.seeds)
            for trial in again
            if (trial.values, seed) not in there
        ]

    def chosen(self) -> TunedModel:
        """Mean scores of the preset and of what is chosen, its values, and the deviation over seeds.

        Chosen is the best mean over the most seeds of what never failed, the first of equal ones; the preset, unless
        that is above it by more than noise: t's one-sided 95 % quantile times the standard error of a difference of
        two means.
        """
        scores: dict[TunedValues, list[float]] = {}
        for trial in self.trials:
            if trial.state == "finished":
                scores.setdefault(trial.values, []).append(trial.score or 0.0)
        failed = {trial.values for trial in self.trials if trial.state == "failed"}
        seeds = max((len(found) for values, found in scores.items() if values not in failed), default=0)
        final = {values: found for values, found in scores.items() if values not in failed and len(found) == seeds}
        means = {values: fmean(found) for values, found in final.items()}
        best = max(means, key=lambda values: means[values], default=TunedValues())
        default, deviation, noise = means.get(TunedValues()), None, 0.0
        if seeds > 1:
            deviation = fmean(variance(found) for found in final.values()) ** 0.5
            degrees = np.asarray(len(final) * (seeds - 1))
            noise = float(t_quantile(1 - 2 * ALPHA, degrees)) * deviation * (2 / seeds) ** 0.5
        if default is not None and means[best] - default <= noise:
            best = TunedValues()
        trials = tuple(
            TunedTrial(**trial.values.model_dump(), state=trial.state, score=trial.score, seed=trial.seed)
            for trial in self.trials
            if trial.state is not None
        )
        return TunedModel(values=best, default=default, best=means.get(best), deviation=deviation, trials=trials)


def require_optuna() -> None:
    """BenchError where Optuna is not installed."""
    if find_spec("optuna") is None:
        raise BenchError("tuning needs Optuna, which is not installed", install_extra("tune"))


def studies_folder(workspace: Workspace) -> Path:
    """Where studies are, each a file, beside it the folder of its trials while there are some."""
    return workspace.root / "tuning"


def study_file(workspace: Workspace, run: str, label: str) -> Path:
    """The study of a model; `run` is the key that its trials have where nothing is tuned."""
    return studies_folder(workspace) / f"{run}-{digest(label, 6)}.json"


def studies_of(workspace: Workspace, run: str) -> Iterator[Study]:
    """All studies of a model under the conditions that its key tells."""
    return map(read_study, sorted(studies_folder(workspace).glob(f"{run}-*.json")))


def read_study(file: Path) -> Study:
    """A study that was saved; BenchError where it is damaged."""
    try:
        return Study.model_validate_json(read_text(file))
    except (OSError, ValidationError, ValueError) as error:
        raise BenchError(f"the study {file} cannot be read: {error}", "move the file away to start anew") from error


def save_study(file: Path, study: Study) -> None:
    """Write a study in one instant."""
    write_text(file, study.model_dump_json(indent=1) + "\n")
