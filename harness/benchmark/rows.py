"""The rows of a benchmark: each word of `--models` resolved once into a kind of run."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.benchmark.baselines import REFERENCE_ROWS
from harness.benchmark.captions import CaptionsFile, find_captions
from harness.benchmark.hub_model import HubModel, HubOptions, find_checkpoints
from harness.benchmark.pretrained import Pretrained
from harness.benchmark.saved_model import SavedModel, is_saved
from harness.config.model_patterns import CAPTIONS, ENSEMBLE, expand_models
from harness.config.preset import Preset
from harness.data.hub import PREFIX
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.workspace import Workspace
from results.records import RunKind
from zoo import model_card
from zoo.kinds import GraphKind, VisualKind

_LONGEST = 200
_ENSEMBLES = "write ensemble:MODEL:SEEDS for so many seeds of it, or ensemble:A+B"


@dataclass(frozen=True, slots=True)
class RequestedModel:
    """One row of a benchmark.

    Attributes:
        name: a registered model, a reference row, or the key of a saved run.
        weights: the published weights that it starts from, None if it has none.
        parts: the models of an ensemble, each with its number of seeds.
    """

    name: str
    kind: RunKind
    visual: VisualKind
    weights: Pretrained | None = None
    hub: HubModel | None = None
    graph: GraphKind = "none"
    captions: CaptionsFile | None = None
    parts: tuple[tuple["RequestedModel", int], ...] = ()

    @property
    def models(self) -> tuple["RequestedModel", ...]:
        """The models that it is made of: itself, or those of an ensemble."""
        return tuple(model for model, _ in self.parts) or (self,)

    @property
    def word(self) -> str:
        """What tells it from all other rows: a system whose captions are given may have the name of a model."""
        return self.name if self.captions is None else f"{CAPTIONS}{self.name}"


def graph_kinds(models: Iterable[RequestedModel]) -> frozenset[GraphKind]:
    """The kinds of scene graphs that models read."""
    return frozenset(model.graph for model in models if model.graph != "none")


def resolve_models(
    patterns: Sequence[str],
    workspace: Workspace,
    pretrained: Mapping[str, str] | None = None,
    hub: HubOptions | None = None,
    cards: Path | None = None,
) -> list[RequestedModel]:
    """Resolve names, globs and `all`, each model once, in the order asked for.

    `all` is every model but variants, and every reference row. The key of a run that the workspace holds scores that
    run again, without training. A word that begins with `hf:` is a checkpoint of transformers' own interface, one with
    `captions:` a file of captions, one with `ensemble:` several of these models together. `pretrained` says where
    pretrained models lie, by name, if not where their cards say.

    Raises:
        BenchError: no pattern at all, a saved run that cannot be read, a checkpoint that cannot caption, or an
            option of checkpoints without one.
        ZooError: a pattern that matches nothing, with the nearest names.
    """
    names = expand_models(
        patterns,
        references=REFERENCE_ROWS,
        is_stored=lambda name: name.startswith((PREFIX, CAPTIONS, ENSEMBLE)) or is_saved(name, workspace),
    )
    checkpoints = find_checkpoints(names, hub or {})
    files = find_captions((name for name in names if name.startswith(CAPTIONS)), cards)
    if cards is not None and not files:
        raise BenchError(f"--cards {cards} is for files of captions", f"add {CAPTIONS}FILE to --models")
    models = []
    for name in names:
        if name in files:
            models += [RequestedModel(row.name, "captions", "none", captions=row) for row in files[name]]
        elif (model := checkpoints.get(name)) is not None:
            models.append(RequestedModel(model.row, "hub", "pixels", hub=model))
        else:
            resolve = _resolve_ensemble if name.startswith(ENSEMBLE) else _resolve
            models.append(resolve(name, workspace, pretrained or {}))
    known_names = {model.name for row in models for model in (row, *(part for part, _ in row.parts))}
    if unused := next((name for name in pretrained or () if name not in known_names), None):
        raise BenchError(f"--pretrained {unused}: no such model is asked for", f"add {unused} to --models")
    if long := next((model.name for model in models if len(os.fsencode(model.name)) > _LONGEST), None):
        raise BenchError(
            f"{shortened(long)} is too long a name for the folder of a run: at most {_LONGEST} bytes",
            "rename the model or the folder",
        )
    return models


def _resolve_ensemble(word: str, workspace: Workspace, pretrained: Mapping[str, str]) -> RequestedModel:
    parts: list[tuple[RequestedModel, int]] = []
    for part in word.removeprefix(ENSEMBLE).split("+"):
        name, _, count = part.partition(":")
        model = _resolve(name, workspace, pretrained)
        seeds = int(count) if count.isdecimal() and len(count) < 4 else int(not count)
        if model.kind not in {"trained", "stored"} or not seeds or model in (other for other, _ in parts):
            raise BenchError(f"{word}: {shortened(part)!r} is no trained model, or is there twice", _ENSEMBLES)
        parts.append((model, seeds))
    if sum(count for _, count in parts) < 2:
        raise BenchError(f"{word} names one model", _ENSEMBLES)
    sees = [model.visual for model, _ in parts if model.visual != "none"]
    graphs = [model.graph for model, _ in parts if model.graph != "none"]
    if len({*sees}) > 1 or len({*graphs}) > 1:
        inputs = ", ".join(f"{model.name}: {model.visual}" for model, _ in parts)
        raise BenchError(f"the models of {word} see different things: {inputs}", "name models that see the same")
    return RequestedModel(
        word, "ensemble", next(iter(sees), "none"), graph=next(iter(graphs), "none"), parts=tuple(parts)
    )


def within_recipe(
    models: Sequence[RequestedModel], patterns: Sequence[str], preset: Preset
) -> tuple[list[RequestedModel], list[str]]:
    """The models less those that a shell pattern alone selects and that the preset is no recipe for; and their names.

    A preset without a recipe is for all models, and what is asked for by its name, or by `all`, is never left out.
    """
    globs = [pattern for pattern in patterns if set(pattern) & set("*?[")]
    if preset.recipe is None or not globs or "all" in patterns:
        return list(models), []
    of_zoo = [model for model in models if model.kind in {"trained", "pretrained"} and model.name not in patterns]
    left_out = [model for model in of_zoo if not preset.recipe.covers(model.name)]
    covered = [model for model in models if model not in left_out]
    return (covered, [model.name for model in left_out]) if covered else (list(models), [])


def _resolve(name: str, workspace: Workspace, pretrained: Mapping[str, str]) -> RequestedModel:
    if name in REFERENCE_ROWS:
        return RequestedModel(name, "reference", "pooled" if name == "retrieval" else "none")
    if is_saved(name, workspace):
        stored = model_card(SavedModel.load(workspace.run_folder(name)).model)
        return RequestedModel(name, "stored", stored.visual, graph=stored.graph)
    card = model_card(name)
    if not card.hub:
        return RequestedModel(name, "trained", card.visual, graph=card.graph)
    weights = Pretrained(name, pretrained.get(name, card.hub))
    # The variant of a published model that this benchmark trains further is one of its cards' names.
    return RequestedModel(name, "trained" if name.endswith("/finetuned") else "pretrained", card.visual, weights)
