"""The planned runs: one spec for every model and seed, with the conditions that its score depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import harness
from harness.benchmark.baselines import REFERENCE_ROWS
from harness.benchmark.context import BenchmarkData, RunContext
from harness.benchmark.hub_model import HubModel
from harness.benchmark.identity.run_key import (
    built_with,
    code_of_hub,
    code_of_model,
    code_of_reference,
    identify,
    keyed_features,
    keyed_preset,
)
from harness.benchmark.identity.signature import nrefs_field, pretraining_field, reference_signature, stored_signature
from harness.benchmark.models import RequestedModel
from harness.benchmark.pretrained import Pretrained
from harness.benchmark.saved_model import VOCABULARY, SavedModel
from harness.config.load import shipped_preset
from harness.data.pixels import without_control
from harness.data.regions.opening import needs_backbone
from harness.data.vocabularies import load_vocabulary
from harness.utils.workspace import Workspace
from results.records import CodeRecord, RunKind, RunSpec
from zoo import ModelCard, Pretraining, model_card
from zoo.captioner import GraphKind


def plan_runs(
    models: Sequence[RequestedModel],
    seeds: int,
    context: RunContext,
    workspace: Workspace,
    *,
    first_seed: int = 0,
) -> list[RunSpec]:
    """The runs in the order of execution: reference rows, once, then seed by seed, so that every model has a row early.

    Other untrained rows come once too, with the first seed.
    """
    first = sorted(models, key=lambda model: model.kind != "reference")
    return [
        _plan(model, seed if model.kind == "trained" else 0, context, workspace)
        for seed in range(first_seed, first_seed + seeds)
        for model in first
        if seed == first_seed or model.kind == "trained"
    ]


def _plan(model: RequestedModel, seed: int, context: RunContext, workspace: Workspace) -> RunSpec:
    if model.kind == "reference":
        return _reference(model.name, context)
    if model.kind == "stored":
        return _stored(model.name, context, workspace)
    values = {}
    if model.kind == "trained" and context.tuned is not None and model.name in context.tuned.values:
        values = context.tuned.record(model.name, context.preset)
        context = context.for_model(model.name)
    if model.hub is not None:
        spec = _hub(model.hub, context)
    elif model.weights is not None:
        spec = _with_published_weights(model, model.weights, seed, context)
    else:
        spec = _trained(model.name, seed, context)
    return replace(spec, config=spec.config | values)


def _trained(model: str, seed: int, context: RunContext) -> RunSpec:
    card = model_card(model)
    arguments = context.preset.model_arguments(
        model, vocab_size=len(context.inputs.vocabulary), visual_dim=context.data.visual_dim
    )
    grid = context.data.grid
    if card.visual == "regions+grid" and grid is not None and grid.dim != context.data.visual_dim:
        arguments = {**arguments, "grid_dim": grid.dim}
    arguments = {**arguments, **_graph_arguments(card.graph, context)}
    config = {
        "arguments": arguments,
        "preset": context.preset.model_dump(mode="json"),
        "shipped_preset": shipped_preset(context.preset),
        "evaluated": {split: len(samples) for split, samples in context.data.evaluated.items()},
        "card": _card(model, card.pretraining),
    }
    signature = context.signature | pretraining_field(card.pretraining)
    if card.visual == "pixels" and not card.has_backbone:  # it learns to see by itself
        # A control's change of the preprocessing has a field of its own.
        signature = {**signature, "feat": f"pixels[{without_control(context.inputs.preprocessing).key()}]"}
    else:
        signature = {**signature, "feat": _seen(card, signature["feat"], context.data)}
    signature |= _graph_field(card, context.data)
    settings = {
        "arguments": built_with(model, arguments),
        "preset": keyed_preset(context.preset),
        "features": keyed_features(context.data.feature_config),
    }
    code = code_of_model(model, arguments)
    return _spec(model, "trained", seed, config, settings, signature, code, context)


def _seen(card: ModelCard, features: str, data: BenchmarkData) -> str:
    """The features that a model sees: of two streams more than the others do, so that it is not ranked among them.

    A grid that regions were cut from is the backbone's, which the features name; one of a file has a digest of its own.
    """
    if card.visual != "regions+grid":
        return features
    regions, grid = data.feature_config.regions, data.grid
    of_file = grid is not None and regions is not None and not needs_backbone(regions.source)
    return f"{features}+grid#{grid.digest[:8]}" if grid is not None and of_file else f"{features}+grid"


def _graph_arguments(kind: GraphKind, context: RunContext) -> dict[str, int]:
    """The sizes of a model that follow from the scene graphs it reads."""
    if kind == "none" or context.data.graphs is None:
        return {}
    count = len(context.graph_entries(kind))
    return {"n_graph_words": count} if kind == "words" else {"n_labels": 1 + count}


def _graph_field(card: ModelCard, data: BenchmarkData) -> dict[str, str]:
    """The scene graphs that a model reads; no field for those that read none, as ever."""
    return {} if card.graph == "none" or data.graphs is None else {"graph": data.graphs.described[card.graph]}


def _with_published_weights(model: RequestedModel, weights: Pretrained, seed: int, context: RunContext) -> RunSpec:
    config = {
        "arguments": {},
        "pretrained": weights.where,
        "preset": context.preset.model_dump(mode="json"),
        "card": _card(weights.model, weights.pretraining()),
    }
    signature = weights.signature(context.signature, trained=model.kind == "trained")
    preset = context.preset
    if model.kind == "trained":
        settings: dict[str, Any] = {"preset": keyed_preset(preset)}
    else:
        settings = {"max_len": preset.size["max_len"], "decoding": preset.decoding.model_dump(mode="json")}
    code = code_of_model(weights.model, {})
    return _spec(weights.model, model.kind, seed, config, settings, signature, code, context)


def _hub(model: HubModel, context: RunContext) -> RunSpec:
    """A checkpoint of transformers' own interface, as it is."""
    config = {
        "arguments": {},
        "pretrained": model.where,
        "hub": asdict(model),
        "preset": context.preset.model_dump(mode="json"),
        "card": model.card(),
    }
    settings = {"decoding": context.preset.decoding.model_dump(mode="json")}
    signature = model.signature(context.signature)
    return _spec(model.row, "hub", 0, config, settings, signature, code_of_hub(), context)


def _reference(model: str, context: RunContext) -> RunSpec:
    signature = reference_signature(
        context.signature,
        nrefs=nrefs_field(context.data.evaluated, held_out=int(model == "human")),
        features=context.signature["feat"] if model == "retrieval" else None,
        held_out="each" if model == "human" else None,
    )
    config = {"arguments": {}, "what": REFERENCE_ROWS[model]}
    return _spec(model, "reference", 0, config, {}, signature, code_of_reference(), context)


def _stored(model: str, context: RunContext, workspace: Workspace) -> RunSpec:
    folder = workspace.run_folder(model)
    run = SavedModel.load(folder)
    card = model_card(run.model)
    published = Pretrained(run.model, run.pretrained or card.hub).pretraining() if card.hub else card.pretraining
    pretraining = run.pretraining or published
    feat = context.signature["feat"]
    seen = f"pixels[{run.preprocessing.key()}]" if card.visual == "pixels" else _seen(card, feat, context.data)
    signature = stored_signature(
        context.signature,
        key=model,
        decoding=run.decoding,
        features=seen,
        vocabulary=f"stored#{load_vocabulary(folder / VOCABULARY).digest()[:6]}",
    )
    signature |= pretraining_field(pretraining) | _graph_field(card, context.data)
    config = {"arguments": run.arguments, "stored": run.model_dump(mode="json"), "card": _card(run.model, pretraining)}
    code = code_of_model(run.model, run.arguments)
    return _spec(model, "stored", 0, config, {}, signature, code, context)


def _card(model: str, pretraining: Pretraining | None) -> dict[str, Any]:
    """What reports say of a model, kept with its results: they need neither registry nor the plug-in it came from.

    `pretraining` is that of the weights which the run was given.
    """
    card = model_card(model)
    described = {name: getattr(card, name) for name in ("name", "paper", "year", "source", "summary", "visual")}
    seen = {} if pretraining is None else {"pretraining": asdict(pretraining)}
    return {"family": model.partition("/")[0], **described, **seen}


def _spec(
    model: str,
    kind: RunKind,
    seed: int,
    config: dict[str, Any],
    settings: dict[str, Any],
    signature: dict[str, str],
    code: CodeRecord,
    context: RunContext,
) -> RunSpec:
    identity = identify(model, seed, settings, signature, code)
    return RunSpec(
        key=identity.key,
        model=model,
        role="reference" if kind == "reference" else "model",
        seed=seed,
        track=signature["track"],
        dataset=context.signature["data"],
        config={**config, "settings": identity.settings},
        signature=signature,
        code_version=harness.__version__,
        code=code,
        kind=kind,
    )
