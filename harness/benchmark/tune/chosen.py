"""Tuned values for `bench run`: of the studies of a workspace, or of a file that `bench tune --export` wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from harness.benchmark.context import RunContext
from harness.benchmark.identity.signature import tuned_field
from harness.benchmark.rows import RequestedModel
from harness.benchmark.tune.study import TunedModel, studies_folder, studies_of
from harness.config.load import list_presets, list_tuned, load_preset, shipped_tuned
from harness.config.preset import Preset
from harness.config.schedule import Stage, Strict
from harness.config.tuning import Budget, SearchSpace, Tuned, with_stages
from harness.utils.errors import BenchError
from harness.utils.files import reason, shortened
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from harness.utils.yaml_value import load_bounded
from results.files import read_text

_MAX_CHARACTERS = 1_000_000
"""Of a file of tuned values; those of a hundred models have a tenth of it."""


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
"""Finds the tuned values of models under these conditions."""


def from_workspace(workspace: Workspace) -> FindTuned:
    """Finds the tuned values of models in the workspace's studies.

    Of several tunings that all models have finished, the one with the most trials is taken.

    Raises:
        BenchError: when called, where a model has no finished study, or two tunings have as many trials.
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
                f"--workspace {workspace.root}, with this command's options of data and features",
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
    """Finds the tuned values of models in a file, or in those that ship under the name of a preset.

    Raises:
        BenchError: the file cannot be read; when called, it is of other conditions, or lacks a model.
    """
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

    Raises:
        BenchError: when called, they are for others: the same two files make one condition, and not two.
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
    lengths = load_preset(content.preset).schedule.stages if content.preset in list_presets() else ()
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
    """In what the conditions differ from those that the values were found under; empty where they do not.

    Args:
        check_preset: False where the preset is known to have the stages that were searched.
    """
    here = {"data": context.signature["data"], "features": context.signature["feat"]}
    if check_preset:
        here = {"preset": tuned_field(content.space, content.budget, context.preset)} | here
    theirs = {"preset": content.tuned, "data": content.data, "features": content.features}
    return "; ".join(f"{name} {theirs[name]}, here {here[name]}" for name in here if here[name] != theirs[name])


def _finished(model: RequestedModel, context: RunContext, workspace: Workspace) -> dict[str, TunedModel]:
    """What came of the model's finished tunings under these conditions, by label."""
    from harness.benchmark.tune.tune import trial_spec

    studies = studies_of(workspace, trial_spec(model, context, workspace).key)
    found = {study.label: study.chosen() for study in studies if study.done}
    return {label: chosen for label, chosen in found.items() if chosen.best is not None}


def _read(name: str) -> TunedFile:
    hint = "name a file that bench tune --export wrote"
    try:
        text = shipped_tuned(name) if name in list_tuned() else read_text(Path(name))
    except OSError as error:
        ships = ", ".join(list_tuned()) or "none"
        raise BenchError(
            f"--tuned {shortened(name)} cannot be read: {reason(error)}",
            f"{hint}, or a preset whose values ship: {ships}",
        ) from error
    try:
        return TunedFile.model_validate(load_bounded(text, longest=_MAX_CHARACTERS))
    except ValueError as error:  # pydantic's, too
        said = " ".join(str(error).splitlines()[0].split())
        raise BenchError(f"--tuned {shortened(name)} holds no tuned values: {said}", hint) from error
