"""The study of one model: its trials in a JSON file of the workspace, what is trained next, and what was chosen.

`bench run` takes tuned values of the studies of a workspace, or of a file that `bench tune --export` wrote.

A trial is in the file before it begins, so that one whose process was ended is done again with the same values, from
its last checkpoint. Optuna draws the values, and keeps nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, variance
from typing import Self

import numpy as np
from pydantic import Field

from harness.benchmark.context import RunContext
from harness.benchmark.identity.signature import tuned_field
from harness.benchmark.rows import RequestedModel, plan_runs
from harness.config.load import PRESETS, load_preset
from harness.config.preset import Preset
from harness.config.schedule import Stage, Strict
from harness.config.tuning import TRIAL_SEED, Budget, EndedAs, SearchSpace, Tuned, TunedTrial, TunedValues, with_stages
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.files import reason, shortened
from harness.utils.hashing import digest
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from harness.utils.yaml_value import load_bounded
from results.errors import install_extra
from results.files import read_model, read_text
from results.records import RunSpec
from results.statistics.architecture import t_quantile
from results.statistics.significance import ALPHA

_MAX_CHARACTERS = 1_000_000


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

    def begin(self, start: dict[str, float]) -> Self | None:
        """The study with a trial at its end that has not ended; None where there is nothing left to do.

        `start` is the point of the space that stands for the untuned preset, which is trained first.
        """
        if self.trials and self.trials[-1].state is None:
            return self
        if not self.trials:
            return self._with(Trial(params=start, is_default=True))
        if sum(trial.seed == TRIAL_SEED for trial in self.trials) < self.budget.trials:
            return self._with(Trial(params=self._draw()))
        left = self._finals()
        return self._with(left[0]) if left else None

    def end(self, trial: Trial) -> Self:
        """The study with its last trial as it ended."""
        return self.model_copy(update={"trials": (*self.trials[:-1], trial)})

    def _with(self, trial: Trial) -> Self:
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


def trial_spec(
    model: RequestedModel, context: RunContext, workspace: Workspace, tuned: Tuned | None = None, seed: int = TRIAL_SEED
) -> RunSpec:
    """The spec of a trial under this context; its key, where nothing is tuned, is over all that a trial depends on."""
    [spec] = plan_runs([model], 1, context, workspace, first_seed=seed, tuned=tuned)
    return spec


def read_study(file: Path) -> Study:
    """A study that was saved; StoreError where it is damaged."""
    return read_model(Study, file, "study of bench tune", "move the file away to start anew")


def save_study(file: Path, study: Study) -> None:
    """Write a study in one instant."""
    write_text(file, study.model_dump_json(indent=1) + "\n")


class TunedFile(Strict):
    """Tuned values of one preset, with the conditions that they were found under and the command that found them."""

    command: str
    preset: str
    data: str
    features: str
    tuned: str
    budget: Budget
    space: SearchSpace
    models: dict[str, TunedModel] = Field(min_length=1)


FindTuned = Callable[[RunContext, Sequence[RequestedModel], Reporter], Tuned]


def from_workspace(workspace: Workspace) -> FindTuned:
    """Finds the tuned values of models in the workspace's studies, of the tuning with the most trials.

    BenchError, when called, where a model has no finished study, or two tunings have as many trials.
    """

    def find(context: RunContext, models: Sequence[RequestedModel], reporter: Reporter) -> Tuned:
        found = {model.name: _finished(model, context, workspace) for model in models}
        common = set.intersection(*(set(by_label) for by_label in found.values()))
        if not common:
            missing = [name for name, by_label in found.items() if not by_label] or list(found)
            raise BenchError(
                f"--tuned workspace: no finished tuning under these conditions in {studies_folder(workspace)} "
                f"for {', '.join(missing)}",
                f"type: bench tune --models {','.join(found)} --preset {context.preset.name} "
                f"--workspace {workspace.root}, with this command's options of data and features; values "
                "found with --stage are read from the file of bench tune --export",
            )
        most = max(int(label.partition("x")[0]) for label in common)
        largest = sorted(label for label in common if label.startswith(f"{most}x"))
        if len(largest) > 1:
            raise BenchError(
                f"--tuned workspace: several tunings of {most} trials: {', '.join(largest)}",
                "write the one that is meant to a file, with its bench tune command and --export FILE, "
                "then bench run --tuned FILE",
            )
        return _tuned(largest[0], {name: by_label[largest[0]] for name, by_label in found.items()}, reporter)

    return find


def from_file(name: str) -> FindTuned:
    """Finds the tuned values of models in a file; when called, BenchError where it is of other conditions or models."""
    content = _read(name)

    def find(context: RunContext, models: Sequence[RequestedModel], reporter: Reporter) -> Tuned:
        stages = _searched_stages(content, context.preset)
        if other := _other_conditions(content, context, check_preset=not stages):
            raise BenchError(
                f"--tuned {name}: tuned under other conditions: {other}",
                f"it was made with: {content.command}; tune anew with `bench tune`, or run under its conditions",
            )
        if missing := [model.name for model in models if model.name not in content.models]:
            raise BenchError(
                f"--tuned {name}: no values for {', '.join(missing)}",
                f"it has {', '.join(content.models)}; tune all models together with `bench tune --export`",
            )
        found = {model.name: content.models[model.name] for model in models}
        whole = content.preset == context.preset.name and stages == context.preset.schedule.stages
        return _tuned(content.tuned, found, reporter, () if whole else stages)

    return find


def one_after_other(first: FindTuned, second: FindTuned) -> FindTuned:
    """Finds the values of two files together, of which the second one's are for a single later stage.

    BenchError, when called, where they are for others: the same two files make one condition, and not two.
    """

    def find(context: RunContext, models: Sequence[RequestedModel], reporter: Reporter) -> Tuned:
        one, other = (finder(context, models, reporter) for finder in (first, second))
        covered = {name for label in one.label.split(",") for name in label.partition(":")[2].split("+")}
        order = [stage.name for stage in context.preset.schedule.stages]
        if not isinstance(other.stages, str) or covered & {"", *order[order.index(other.stages) :]}:
            raise BenchError(
                f"--tuned: {other.label} cannot follow {one.label}: it must be for one later stage",
                "name the file of the first stages, then those of bench tune --stage NAME for later ones",
            )
        after = {name: (*own.then, (other.stages, other.values[name])) for name, own in one.values.items()}
        values = {name: own.model_copy(update={"then": after[name]}) for name, own in one.values.items()}
        return replace(one, label=f"{one.label},{other.label}", values=values)

    return find


def _tuned(label: str, models: Mapping[str, TunedModel], reporter: Reporter, first: Sequence[Stage] = ()) -> Tuned:
    """What `bench run` trains with; `first` are the stages that the values are for, where others may follow."""
    values = {name: found.values for name, found in models.items()}
    trials = {name: found.trials for name, found in models.items()}
    stage = label.partition(":")[2]
    if not first and not stage:
        reporter.note(f"trained models have their tuned values, of {label}")
        return Tuned(label, values, trials)
    names = stage or "+".join(each.name for each in first)
    reporter.note(f"trained models have their tuned values in {names}, of {label}, and the preset's own elsewhere")
    return Tuned(label if stage else f"{label}:{names}", values, trials, stage or len(first))


def _searched_stages(content: TunedFile, preset: Preset) -> tuple[Stage, ...]:
    """The first stages of this preset that the values are for, at whatever length; none where other settings differ."""
    lengths = load_preset(content.preset).schedule.stages if content.preset in PRESETS else ()
    for count in range(len(preset.schedule.stages), 0, -1):
        stages = preset.schedule.stages[:count]
        if _are_searched(stages, content, preset):
            return stages
        if len(lengths) == count:
            kept = [{"epochs": other.epochs, "validate_every": other.validate_every} for other in lengths]
            as_long = tuple(stage.model_copy(update=each) for stage, each in zip(stages, kept, strict=True))
            if _are_searched(as_long, content, preset):
                return stages
    return ()


def _are_searched(stages: tuple[Stage, ...], content: TunedFile, preset: Preset) -> bool:
    """Whether the preset with these stages alone is the searched one, whatever its name."""
    searched = with_stages(preset.model_copy(update={"name": content.preset}), stages)
    return tuned_field(content.space, content.budget, searched) == content.tuned


def _other_conditions(content: TunedFile, context: RunContext, *, check_preset: bool) -> str:
    """In what the conditions differ from those that the values were found under; empty where they do not."""
    here = {"data": context.signature["data"], "features": context.signature["feat"]}
    if check_preset:
        here = {"preset": tuned_field(content.space, content.budget, context.preset)} | here
    theirs = {"preset": content.tuned, "data": content.data, "features": content.features}
    return "; ".join(f"{name} {theirs[name]}, here {here[name]}" for name in here if here[name] != theirs[name])


def _finished(model: RequestedModel, context: RunContext, workspace: Workspace) -> dict[str, TunedModel]:
    """What came of the model's finished tunings under these conditions, by label."""
    files = studies_folder(workspace).glob(f"{trial_spec(model, context, workspace).key}-*.json")
    found = {study.label: study.chosen() for study in map(read_study, sorted(files)) if study.done}
    return {label: chosen for label, chosen in found.items() if chosen.best is not None}


def _read(name: str) -> TunedFile:
    hint = "name a file that bench tune --export wrote"
    try:
        text = read_text(Path(name))
    except OSError as error:
        raise BenchError(f"--tuned {shortened(name)} cannot be read: {reason(error)}", hint) from error
    try:
        return TunedFile.model_validate(load_bounded(text, longest=_MAX_CHARACTERS))
    except ValueError as error:  # pydantic's, too
        said = " ".join(str(error).splitlines()[0].split())
        raise BenchError(f"--tuned {shortened(name)} holds no tuned values: {said}", hint) from error
