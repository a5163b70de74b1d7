"""Tuned values for `bench run`: of the studies of a workspace, or of a file that `bench tune --export` wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from pydantic import Field, ValidationError

from harness.config.load import list_tuned, shipped_tuned
from harness.config.schedule import Strict
from harness.config.tuning import Budget, SearchSpace, Tuned, TunedValues
from harness.runner.context import RunContext
from harness.runner.identity.signature import tuned_field
from harness.runner.models import RequestedModel
from harness.tuning.objective import trial_spec
from harness.tuning.storage import open_studies, studies_file, studies_lock
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace, locked

if TYPE_CHECKING:
    from harness.tuning.study import Standing


class TunedModel(Strict):
    """What a model's tuning came to; scores are validation CIDEr-D as fractions."""

    values: TunedValues
    default: float | None = None
    best: float
    finished: int
    pruned: int
    failed: int

    @classmethod
    def of(cls, found: Standing) -> TunedModel:
        """Of a study that is done, with a best trial."""
        counts = {"finished": found.finished, "pruned": found.pruned, "failed": found.failed}
        return cls(values=found.values, default=found.default, best=found.best or 0.0, **counts)


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


def from_workspace(workspace: Workspace) -> Callable[[RunContext, Sequence[RequestedModel]], Tuned]:
    """Finds the tuned values of models in the workspace's studies.

    Of several tunings that all models have finished, the one with the most trials is taken.

    Raises:
        BenchError: when called, where a model has no finished study, or two tunings have as many trials.
    """

    def find(context: RunContext, models: Sequence[RequestedModel]) -> Tuned:
        found = {model.name: _finished(model, context, workspace) for model in models}
        common = set.intersection(*(set(by_label) for by_label in found.values()))
        if not common:
            missing = [name for name, by_label in found.items() if not by_label] or list(found)
            raise BenchError(
                f"--tuned: no finished tuning under these conditions in {studies_file(workspace)} "
                f"for {', '.join(missing)}",
                f"type: bench tune --models {','.join(found)} --preset {context.preset.name} "
                f"--workspace {workspace.root}, with this command's options of data and features",
            )
        most = max(int(label.partition("x")[0]) for label in common)
        largest = sorted(label for label in common if label.startswith(f"{most}x"))
        if len(largest) > 1:
            raise BenchError(
                f"--tuned: several tunings of {most} trials: {', '.join(largest)}",
                "write the one that is meant to a file, with its bench tune command and --export FILE, "
                "then bench run --tuned-from FILE",
            )
        return Tuned(largest[0], {name: by_label[largest[0]] for name, by_label in found.items()})

    return find


def from_file(name: str) -> Callable[[RunContext, Sequence[RequestedModel]], Tuned]:
    """Finds the tuned values of models in a file, or in those that ship under the name of a preset.

    Raises:
        BenchError: the file cannot be read; when called, it is of other conditions, or lacks a model.
    """
    content = _read(name)

    def find(context: RunContext, models: Sequence[RequestedModel]) -> Tuned:
        here = {
            "preset": tuned_field(content.space, content.budget, context.preset),
            "data": context.signature["data"],
            "features": context.signature["feat"],
        }
        theirs = {"preset": content.tuned, "data": content.data, "features": content.features}
        if other := [field for field, value in theirs.items() if value != here[field]]:
            said = "; ".join(f"{field} {theirs[field]}, here {here[field]}" for field in other)
            raise BenchError(
                f"--tuned-from {name}: tuned under other conditions: {said}",
                f"it was made with: {content.command}; tune anew with `bench tune`, or run under its conditions",
            )
        if missing := [model.name for model in models if model.name not in content.models]:
            raise BenchError(
                f"--tuned-from {name}: no values for {', '.join(missing)}",
                f"it has {', '.join(content.models)}; tune all models together with `bench tune --export`",
            )
        return Tuned(content.tuned, {model.name: content.models[model.name].values for model in models})

    return find


def _finished(model: RequestedModel, context: RunContext, workspace: Workspace) -> dict[str, TunedValues]:
    """The chosen values of the model's finished tunings under these conditions, by label."""
    if not studies_file(workspace).is_file():
        return {}
    with locked(studies_lock(workspace), lambda: None):
        storage = open_studies(workspace)

    import optuna

    from harness.tuning.study import standing

    run, found = trial_spec(model, context, workspace).key, {}
    for name in optuna.get_all_study_names(storage):
        if not name.startswith(f"{run} "):
            continue
        study = optuna.load_study(study_name=name, storage=storage)
        stands = standing(study, Budget.model_validate(study.user_attrs["budget"]))
        if stands.done and stands.best is not None:
            found[name.removeprefix(f"{run} ")] = stands.values
    return found


def _read(name: str) -> TunedFile:
    shipped = name in list_tuned()
    try:
        text = shipped_tuned(name) if shipped else Path(name).read_text(encoding="utf-8")
        return TunedFile.model_validate(yaml.safe_load(text))
    except OSError as error:
        ships = ", ".join(list_tuned()) or "none"
        raise BenchError(
            f"--tuned-from {name} cannot be read: {error.strerror}",
            f"name a file that bench tune --export wrote, or a preset whose values ship: {ships}",
        ) from error
    except (UnicodeDecodeError, ValidationError, yaml.YAMLError) as error:
        raise BenchError(
            f"--tuned-from {name} holds no tuned values: {str(error).splitlines()[0]}",
            "name a file that bench tune --export wrote",
        ) from error
