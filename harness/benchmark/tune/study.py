"""The study of one model: Optuna's trials in the workspace's journal, and the values chosen from them.

`bench run` reads tuned values from the studies of a workspace, or from a file that `bench tune --export` wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from harness.benchmark.context import RunContext
from harness.benchmark.plan_runs import Planner
from harness.benchmark.rows import RequestedModel
from harness.benchmark.signature import tuned_field
from harness.config.load import PRESETS, load_preset
from harness.config.preset import Preset
from harness.config.schedule import Stage, Strict
from harness.config.tuning import TRIAL_SEED, Budget, SearchSpace, Tuned, TunedTrial, TunedValues, with_stages
from harness.utils.errors import BenchError
from harness.utils.files import reason, shortened
from harness.utils.hashing import digest
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from harness.utils.yaml_value import load_bounded
from results.errors import install_extra
from results.files import read_text
from results.records import RunSpec

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import JournalStorage
    from optuna.trial import FrozenTrial

_MAX_CHARACTERS = 1_000_000
DIVERGED = "diverged"
"""The attribute of a failed trial whose loss became NaN or infinite; its value is the reason."""
DRAWN = "drawn"
"""The attribute of a trial that has all of its parameters."""


class TunedModel(Strict):
    """The result of a model's tuning; `trials` are those that ended.

    Scores are validation CIDEr-D as fractions, None if no trial has one. `deviation`, over the seeds of finalists, is
    only in files of captionbench 1.
    """

    values: TunedValues
    default: float | None = None
    best: float | None = None
    deviation: float | None = None
    trials: tuple[TunedTrial, ...]

    @classmethod
    def of_trials(cls, trials: Sequence[TunedTrial]) -> TunedModel:
        """Choose the values of the best finished trial, the first of equals; the first trial is the untuned preset.

        Example:
            >>> preset = TunedTrial(state="finished", score=0.5)
            >>> faster = TunedTrial(learning_rate=2.0, state="finished", score=0.6)
            >>> TunedModel.of_trials([preset, faster]).values
            TunedValues(learning_rate=2.0, dropout_scale=None, warmup=None, clip_norm=None, width=None, then=())
        """
        finished = [trial for trial in trials if trial.state == "finished"]
        best = max(finished, key=lambda trial: trial.score or 0.0, default=None)
        return cls(
            values=TunedValues() if best is None else best.values,
            default=trials[0].score if trials else None,
            best=None if best is None else best.score,
            trials=tuple(trials),
        )

    def used_trial(self) -> TunedTrial | None:
        """The trial whose values were chosen."""
        finished = [trial for trial in self.trials if trial.state == "finished"]
        return next((trial for trial in finished if trial.score == self.best), None)


def require_optuna() -> None:
    """BenchError if Optuna is not installed."""
    if find_spec("optuna") is None:
        raise BenchError("tuning needs Optuna, which is not installed", install_extra("tune"))


def tuning_folder(workspace: Workspace) -> Path:
    """The folder of the journal of all studies and of trials in training."""
    return workspace.root / "tuning"


def journal_file(workspace: Workspace) -> Path:
    """The file in which Optuna keeps all studies of a workspace."""
    return tuning_folder(workspace) / "journal.log"


def open_journal(workspace: Workspace) -> JournalStorage:
    """The studies of a workspace; BenchError if their file is damaged."""
    require_optuna()
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    file = str(journal_file(workspace))
    try:
        # Optuna's default lock is a symbolic link, which is broken if the path of the file is relative.
        return optuna.storages.JournalStorage(JournalFileBackend(file, JournalFileOpenLock(file)))
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise BenchError(f"{file} is not a journal of bench tune", "move the file away to start anew") from error


def trial_run(model: RequestedModel, planner: Planner) -> RunSpec:
    """The run of a trial; its untuned key covers everything that a trial depends on."""
    return planner.run(model, TRIAL_SEED)


def study_name(key: str, label: str) -> str:
    """The name of a study: the untuned key of its trials, and the signature's label."""
    return f"{key} {label}"


def ended_trials(study: Study) -> list[FrozenTrial]:
    """The trials that count, in order: complete, pruned and diverged ones, but not interrupted ones."""
    from optuna.trial import TrialState

    ended = []
    for trial in study.trials:
        diverged = trial.state == TrialState.FAIL and DIVERGED in trial.user_attrs
        if diverged or trial.state in {TrialState.COMPLETE, TrialState.PRUNED}:
            ended.append(trial)
    return ended


def tuned_trial(trial: FrozenTrial, trial_number: int) -> TunedTrial:
    """A trial that ended; `trial_number` counts from 1, and trial 1 trains the untuned preset."""
    from optuna.trial import TrialState

    values = TunedValues() if trial_number == 1 else TunedValues.of_params(trial.params)
    state = {TrialState.COMPLETE: "finished", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}[trial.state]
    return TunedTrial.model_validate({**values.model_dump(), "state": state, "score": trial.value})


def tuned_trials(study: Study) -> list[TunedTrial]:
    """All trials of a study that ended."""
    return [tuned_trial(trial, number) for number, trial in enumerate(ended_trials(study), start=1)]


def fail_lost_trials(study: Study) -> None:
    """Fail the trials in state running and enqueue their parameters again; only for callers that hold the lock."""
    from optuna.trial import TrialState

    for lost in study.get_trials(states=(TrialState.RUNNING,)):
        study.tell(lost.number, state=TrialState.FAIL)
        if DRAWN in lost.user_attrs and DIVERGED not in lost.user_attrs:
            study.enqueue_trial(lost.params)


def begin_trial(study: Study, trial_number: int, budget: Budget, start: dict[str, float]) -> None:
    """Prepare a study for its next trial; `trial_number` counts from 1.

    `start` is the point of the space that stands for the untuned preset, which is trained first. The sampler gets a new
    seed for each trial, so that an interrupted study proposes the same values as one that was not.
    """
    import optuna
    from optuna.trial import TrialState

    if trial_number == 1 and not study.get_trials(states=(TrialState.WAITING,)):
        study.enqueue_trial(start)
    seed = int(digest([budget.seed, trial_number - 1], 8), 16)
    study.sampler = optuna.samplers.TPESampler(n_startup_trials=budget.startup_trials, seed=seed)
    # Warm-ups differ in the first third of the updates, where scores cannot be compared.
    study.pruner = optuna.pruners.MedianPruner(budget.startup_trials, n_warmup_steps=budget.updates // 3)


def draw_values(trial: Trial, trial_number: int, space: SearchSpace) -> TunedValues:
    """The values of a trial: the preset's for trial 1, then points of the space.

    Every other trial keeps the preset's dropout.
    """
    trial.suggest_float("learning_rate", *space.learning_rate, log=True)
    if trial_number == 1 or trial_number % 2 == 0:
        trial.suggest_float("dropout_scale", *space.dropout_scale)
    trial.suggest_float("warmup", *space.warmup)
    trial.suggest_categorical("clip_norm", space.clip_norm)
    if space.width:
        trial.suggest_categorical("width", space.width)
    trial.set_user_attr(DRAWN, True)
    return TunedValues() if trial_number == 1 else TunedValues.of_params(trial.params)


class TunedFile(Strict):
    """Tuned values of one preset, with their conditions and the command that found them."""

    command: str
    preset: str
    data: str
    features: str
    tuned: str
    budget: Budget
    space: SearchSpace
    models: dict[str, TunedModel] = Field(min_length=1)


FindTuned = Callable[[Planner, Sequence[RequestedModel], Reporter], Tuned]


def from_workspace(workspace: Workspace) -> FindTuned:
    """A function that finds tuned values in the workspace's studies, of the tuning with the most trials.

    It raises BenchError if a model has no finished study, or if two tunings have equally many trials.
    """

    def find(planner: Planner, models: Sequence[RequestedModel], reporter: Reporter) -> Tuned:
        tunings = {model.name: _finished(model, planner, workspace) for model in models}
        common = set.intersection(*(set(by_label) for by_label in tunings.values()))
        if not common:
            missing = [name for name, by_label in tunings.items() if not by_label] or list(tunings)
            raise BenchError(
                f"--tuned workspace: no finished tuning under these conditions in {tuning_folder(workspace)} "
                f"for {', '.join(missing)}",
                f"type: bench tune --models {','.join(tunings)} --preset {planner.context.preset.name} "
                f"--workspace {workspace.root}, with this command's options of data and features; values "
                "found with --stage are read from the file of bench tune --export",
            )
        max_trials = max(int(label.partition("x")[0]) for label in common)
        largest = sorted(label for label in common if label.startswith(f"{max_trials}x"))
        if len(largest) > 1:
            raise BenchError(
                f"--tuned workspace: several tunings of {max_trials} trials: {', '.join(largest)}",
                "write the one that is meant to a file, with its bench tune command and --export FILE, "
                "then bench run --tuned FILE",
            )
        label = largest[0]
        return _tuned(label, {name: by_label[label] for name, by_label in tunings.items()}, reporter)

    return find


def from_file(name: str) -> FindTuned:
    """A function that finds tuned values in a file; it raises BenchError for other conditions or missing models."""
    content = _read(name)

    def find(planner: Planner, models: Sequence[RequestedModel], reporter: Reporter) -> Tuned:
        stages = _searched_stages(content, planner.context.preset)
        differences = _other_conditions(content, planner.context, check_preset=not stages)
        if differences:
            raise BenchError(
                f"--tuned {name}: tuned under other conditions: {differences}",
                f"it was made with: {content.command}; tune anew with `bench tune`, or run under its conditions",
            )
        missing = [model.name for model in models if model.name not in content.models]
        if missing:
            raise BenchError(
                f"--tuned {name}: no values for {', '.join(missing)}",
                f"it has {', '.join(content.models)}; tune all models together with `bench tune --export`",
            )
        tuned = {model.name: content.models[model.name] for model in models}
        preset = planner.context.preset
        covers_all = content.preset == preset.name and stages == preset.schedule.stages
        return _tuned(content.tuned, tuned, reporter, () if covers_all else stages)

    return find


def combine_tuned(first: FindTuned, second: FindTuned) -> FindTuned:
    """A function that combines the values of two files; those of the second are for a single later stage.

    It raises BenchError if they are not, so that the same two files can only be combined in one order.
    """

    def find(planner: Planner, models: Sequence[RequestedModel], reporter: Reporter) -> Tuned:
        earlier = first(planner, models, reporter)
        later = second(planner, models, reporter)
        covered = {name for label in earlier.label.split(",") for name in label.partition(":")[2].split("+")}
        order = [stage.name for stage in planner.context.preset.schedule.stages]
        if not isinstance(later.stages, str) or covered & {"", *order[order.index(later.stages) :]}:
            raise BenchError(
                f"--tuned: {later.label} cannot follow {earlier.label}: it must be for one later stage",
                "name the file of the first stages, then those of bench tune --stage NAME for later ones",
            )
        values = {}
        for name, tuned_values in earlier.values.items():
            then = (*tuned_values.then, (later.stages, later.values[name]))
            values[name] = tuned_values.model_copy(update={"then": then})
        return replace(earlier, label=f"{earlier.label},{later.label}", values=values)

    return find


def _tuned(
    label: str, models: Mapping[str, TunedModel], reporter: Reporter, first_stages: Sequence[Stage] = ()
) -> Tuned:
    """The tuned values for `bench run`; `first_stages` are those that they are for, if others may follow."""
    values = {name: tuned.values for name, tuned in models.items()}
    trials = {name: tuned.trials for name, tuned in models.items()}
    stage = label.partition(":")[2]
    if not first_stages and not stage:
        reporter.note(f"trained models have their tuned values, of {label}")
        return Tuned(label, values, trials)
    names = stage or "+".join(first_stage.name for first_stage in first_stages)
    reporter.note(f"trained models have their tuned values in {names}, of {label}, and the preset's own elsewhere")
    return Tuned(label if stage else f"{label}:{names}", values, trials, stage or len(first_stages))


def _searched_stages(content: TunedFile, preset: Preset) -> tuple[Stage, ...]:
    """The first stages of this preset that the values are for, of any length; none if other settings differ."""
    lengths = load_preset(content.preset).schedule.stages if content.preset in PRESETS else ()
    for count in range(len(preset.schedule.stages), 0, -1):
        stages = preset.schedule.stages[:count]
        if _are_searched(stages, content, preset):
            return stages
        if len(lengths) == count:
            as_long = []
            for stage, tuned_stage in zip(stages, lengths, strict=True):
                length = {"epochs": tuned_stage.epochs, "validate_every": tuned_stage.validate_every}
                as_long.append(stage.model_copy(update=length))
            if _are_searched(tuple(as_long), content, preset):
                return stages
    return ()


def _are_searched(stages: tuple[Stage, ...], content: TunedFile, preset: Preset) -> bool:
    """Whether the preset with only these stages is the searched one, apart from its name."""
    searched = with_stages(preset.model_copy(update={"name": content.preset}), stages)
    return tuned_field(content.space, content.budget, searched) == content.tuned


def _other_conditions(content: TunedFile, context: RunContext, *, check_preset: bool) -> str:
    """The differences from the conditions of the tuning, as text; empty if there are none."""
    current = {"data": context.signature["data"], "features": context.signature["feat"]}
    if check_preset:
        current = {"preset": tuned_field(content.space, content.budget, context.preset)} | current
    tuned = {"preset": content.tuned, "data": content.data, "features": content.features}
    return "; ".join(f"{name} {tuned[name]}, here {current[name]}" for name in current if current[name] != tuned[name])


def _finished(model: RequestedModel, planner: Planner, workspace: Workspace) -> dict[str, TunedModel]:
    """The results of the model's finished tunings under these conditions, by label."""
    if not journal_file(workspace).exists():  # opening would make it
        return {}
    storage = open_journal(workspace)
    from optuna import get_all_study_names, load_study

    key = trial_run(model, planner).key
    tunings = {}
    for name in get_all_study_names(storage):
        label = name.partition(" ")[2]
        if name == study_name(key, label):
            trials = tuned_trials(load_study(study_name=name, storage=storage))
            if len(trials) >= int(label.partition("x")[0]):
                tunings[label] = TunedModel.of_trials(trials)
    return {label: tuned for label, tuned in tunings.items() if tuned.best is not None}


def _read(name: str) -> TunedFile:
    hint = "name a file that bench tune --export wrote"
    try:
        text = read_text(Path(name))
    except OSError as error:
        raise BenchError(f"--tuned {shortened(name)} cannot be read: {reason(error)}", hint) from error
    try:
        return TunedFile.model_validate(load_bounded(text, longest=_MAX_CHARACTERS))
    except ValueError as error:  # includes pydantic's ValidationError
        message = " ".join(str(error).splitlines()[0].split())
        raise BenchError(f"--tuned {shortened(name)} holds no tuned values: {message}", hint) from error
