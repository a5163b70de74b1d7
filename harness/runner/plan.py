"""The planned grid: one spec for every model and seed, with the conditions that its score will depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import harness
from harness.config.load import shipped_preset
from harness.data.vocabulary_file import load_vocabulary
from harness.runner.baselines import REFERENCE_ROWS
from harness.runner.context import Conditions
from harness.runner.identity.run_key import (
    built_with,
    code_of_model,
    code_of_reference,
    identify,
    keyed_features,
    keyed_preset,
)
from harness.runner.identity.signature import nrefs_field, pretraining_field, reference_signature, stored_signature
from harness.runner.pretrained import Pretrained, find_pretrained
from harness.runner.saved_model import VOCABULARY, SavedModel, is_saved
from harness.utils.workspace import Workspace
from results.records import CodeRecord, Role, RunSpec
from zoo import Pretraining, model_card


def plan_runs(
    models: Sequence[str], seeds: int, conditions: Conditions, workspace: Workspace, pretrained: Mapping[str, str]
) -> list[RunSpec]:
    """The grid in the order it is run: seed by seed, so that every model has a row early; untrained rows once.

    Args:
        pretrained: where pretrained models lie, by name, if not where their cards say.
    """
    specs = []
    for seed in range(seeds):
        for model in models:
            if model in REFERENCE_ROWS:
                found = [_reference_spec(model, conditions)] if seed == 0 else []
            elif is_saved(model, workspace):
                found = [_saved_spec(model, conditions, workspace)] if seed == 0 else []
            elif (there := find_pretrained(model, pretrained)) is not None:
                found = [_pretrained_spec(there, seed, conditions)] if seed == 0 or there.trained_here else []
            else:
                found = [_trained_spec(model, seed, conditions)]
            specs += found
    return specs


def _trained_spec(model: str, seed: int, conditions: Conditions) -> RunSpec:
    arguments, card = conditions.preset.model_arguments(model), model_card(model)
    config = {
        "arguments": arguments,
        "preset": conditions.preset.model_dump(mode="json"),
        "shipped_preset": shipped_preset(conditions.preset),
        "evaluated": {split: len(samples) for split, samples in conditions.evaluated.items()},
        "card": _card(model, card.pretraining),
    }
    signature = conditions.signature | pretraining_field(card.pretraining)
    if card.visual == "pixels" and not card.has_backbone:  # it learns to see by itself
        signature = {**signature, "feat": f"pixels[{conditions.preprocessing.key()}]"}
    settings = {
        "arguments": built_with(model, arguments),
        "preset": keyed_preset(conditions.preset),
        "features": keyed_features(conditions.feature_config),
    }
    code = code_of_model(model, arguments)
    return _spec(model, "model", seed, config, settings, signature, code, conditions)


def _pretrained_spec(there: Pretrained, seed: int, conditions: Conditions) -> RunSpec:
    config = {
        "arguments": {},
        "pretrained": there.where,
        "preset": conditions.preset.model_dump(mode="json"),
        "card": _card(there.model, there.pretraining()),
    }
    signature = there.signature(conditions.signature)
    preset = conditions.preset
    if there.trained_here:
        settings: dict[str, Any] = {"preset": keyed_preset(preset)}
    else:
        settings = {"max_len": preset.size["max_len"], "decoding": preset.decoding.model_dump(mode="json")}
    code = code_of_model(there.model, {})
    return _spec(there.model, "model", seed, config, settings, signature, code, conditions)


def _reference_spec(model: str, conditions: Conditions) -> RunSpec:
    signature = reference_signature(
        conditions.signature,
        nrefs=nrefs_field(conditions.evaluated, held_out=int(model == "human")),
        features=conditions.signature["feat"] if model == "retrieval" else None,
        held_out="each" if model == "human" else None,
    )
    config = {"arguments": {}, "what": REFERENCE_ROWS[model]}
    return _spec(model, "reference", 0, config, {}, signature, code_of_reference(), conditions)


def _saved_spec(model: str, conditions: Conditions, workspace: Workspace) -> RunSpec:
    folder = workspace.run_folder(model)
    run = SavedModel.load(folder)
    card = model_card(run.model)
    there = find_pretrained(run.model, {run.model: run.pretrained} if run.pretrained else {})
    pretraining = run.pretraining or (there.pretraining() if there is not None else card.pretraining)
    pixels = card.visual == "pixels"
    signature = stored_signature(
        conditions.signature,
        key=model,
        decoding=run.decoding,
        features=f"pixels[{run.preprocessing.key()}]" if pixels else conditions.signature["feat"],
        vocabulary=f"stored#{load_vocabulary(folder / VOCABULARY).digest()[:6]}",
    ) | pretraining_field(pretraining)
    config = {"arguments": run.arguments, "stored": run.model_dump(mode="json"), "card": _card(run.model, pretraining)}
    code = code_of_model(run.model, run.arguments)
    return _spec(model, "model", 0, config, {}, signature, code, conditions)


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
    role: Role,
    seed: int,
    config: dict[str, Any],
    settings: dict[str, Any],
    signature: dict[str, str],
    code: CodeRecord,
    conditions: Conditions,
) -> RunSpec:
    identity = identify(model, seed, settings, signature, code)
    return RunSpec(
        key=identity.key,
        model=model,
        role=role,
        seed=seed,
        track=signature["track"],
        dataset=conditions.signature["data"],
        config={**config, "settings": identity.settings},
        signature=signature,
        code_version=harness.__version__,
        code=code,
    )
