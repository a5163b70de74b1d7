"""What `--models` asks for: each name resolved once into a kind of run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.benchmark.baselines import REFERENCE_ROWS
from harness.benchmark.hub_model import AS_USUAL, PREFIX, HubModel, HubOptions
from harness.benchmark.pretrained import Pretrained
from harness.benchmark.saved_model import SavedModel, is_saved
from harness.config.model_patterns import expand_models
from harness.config.preset import Preset
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.workspace import Workspace
from results.records import RunKind
from zoo import model_card
from zoo.captioner import GraphKind, VisualKind

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class RequestedModel:
    """One row of a benchmark.

    Attributes:
        name: a registered model, a reference row, or the key of a saved run.
        kind: which executor runs it.
        visual: the kind of visual input.
        weights: the published weights that it starts from, None where it has none.
        hub: the checkpoint of transformers' own interface, of a row of that kind.
        graph: the kind of scene graph that it reads.
    """

    name: str
    kind: RunKind
    visual: VisualKind
    weights: Pretrained | None = None
    hub: HubModel | None = None
    graph: GraphKind = "none"


def graph_kinds(models: Iterable[RequestedModel]) -> frozenset[GraphKind]:
    """The kinds of scene graphs that models read."""
    return frozenset(model.graph for model in models if model.graph != "none")


def resolve_models(
    patterns: Sequence[str],
    workspace: Workspace,
    pretrained: Mapping[str, str] | None = None,
    hub: HubOptions = AS_USUAL,
) -> list[RequestedModel]:
    """Resolve names, globs and `all`, each model once, in the order asked for.

    `all` is every model but variants, and every reference row. The key of a run that the workspace holds scores that
    run again, without training. A word that begins with `hf:` is a checkpoint of transformers' own interface.

    Args:
        pretrained: where pretrained models lie, by name, if not where their cards say.
        hub: how all checkpoints of `hf:` caption.

    Raises:
        BenchError: no pattern at all, a saved run that cannot be read, a checkpoint that cannot caption, or an
            option of checkpoints without one.
        ZooError: a pattern that matches nothing, with the nearest names.
    """
    names = expand_models(
        patterns,
        references=REFERENCE_ROWS,
        is_stored=lambda name: name.startswith(PREFIX) or is_saved(name, workspace),
    )
    if hub.given and not any(name.startswith(PREFIX) for name in names):
        raise BenchError(f"{hub.given} is for models of hf:, and --models names none", "add hf:ORG/NAME or hf:FOLDER")
    found = [
        _resolve_hub(name, hub) if name.startswith(PREFIX) else _resolve(name, workspace, pretrained or {})
        for name in names
    ]
    if long := next((model.name for model in found if len(os.fsencode(model.name)) > _LONGEST), None):
        raise BenchError(
            f"{shortened(long)} is too long a name for the folder of a run: at most {_LONGEST} bytes",
            "rename the model or the folder",
        )
    return found


def _resolve_hub(name: str, options: HubOptions) -> RequestedModel:
    model = HubModel.parse(name, options)
    model.refuse()
    return RequestedModel(model.row, "hub", "pixels", hub=model)


def within_recipe(
    models: Sequence[RequestedModel], patterns: Sequence[str], preset: Preset
) -> tuple[list[RequestedModel], list[str]]:
    """The models less those that a shell pattern alone selects and that the preset is no recipe for; and their names.

    A preset without a recipe is for all models, and what is asked for by its name, or by `all`, is never left out.
    """
    globs = [pattern for pattern in patterns if set(pattern) & set("*?[")]
    if preset.recipe is None or not globs or "all" in patterns:
        return list(models), []
    kept: list[RequestedModel] = []
    left_out: list[RequestedModel] = []
    for model in models:
        others = model.kind in {"trained", "pretrained"} and not preset.recipe.covers(model.name)
        (left_out if others and model.name not in patterns else kept).append(model)
    return (kept, [model.name for model in left_out]) if kept else (list(models), [])


def _resolve(name: str, workspace: Workspace, pretrained: Mapping[str, str]) -> RequestedModel:
    if name in REFERENCE_ROWS:
        return RequestedModel(name, "reference", "pooled" if name == "retrieval" else "none")
    if is_saved(name, workspace):
        saved = SavedModel.load(workspace.run_folder(name))
        stored = model_card(saved.model)
        return RequestedModel(name, "stored", stored.visual, graph=stored.graph)
    card = model_card(name)
    if not card.hub:
        return RequestedModel(name, "trained", card.visual, graph=card.graph)
    weights = Pretrained(name, pretrained.get(name, card.hub))
    # The variant of a published model that this benchmark trains further is one of its cards' names.
    return RequestedModel(name, "trained" if name.endswith("/finetuned") else "pretrained", card.visual, weights)
