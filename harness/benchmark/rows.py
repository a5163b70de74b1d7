"""The rows of a benchmark: each word of `--models` resolved once into a kind, and its runs: a spec a model and seed."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import harness
from harness.benchmark.baselines import REFERENCE_ROWS
from harness.benchmark.captions import CaptionsFile, find_captions
from harness.benchmark.context import BenchmarkData, RunContext
from harness.benchmark.hub_model import HubModel, HubOptions, find_checkpoints
from harness.benchmark.identity.run_key import (
    built_with,
    code_of,
    code_of_hub,
    code_of_model,
    identify,
    keyed_features,
    keyed_preset,
)
from harness.benchmark.identity.signature import nrefs_field, pretraining_field, reference_signature, stored_signature
from harness.benchmark.pretrained import Pretrained, folder_name, published_signature
from harness.benchmark.saved_model import VOCABULARY, SavedModel, is_saved
from harness.config.load import shipped_preset
from harness.config.model_patterns import CAPTIONS, ENSEMBLE, expand_models
from harness.config.preset import Preset
from harness.config.tuning import Tuned
from harness.data.hub import PREFIX
from harness.data.regions.opening import needs_backbone
from harness.data.vocabularies import load_vocabulary
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.hashing import digest
from harness.utils.workspace import Workspace
from results.records import CodeRecord, RunKind, RunSpec
from zoo import ModelCard, Pretraining, model_card
from zoo.captioner import GraphKind, VisualKind

_LONGEST = 200
_ENSEMBLES = "write ensemble:MODEL:SEEDS for so many seeds of it, or ensemble:A+B"


@dataclass(frozen=True, slots=True)
class RequestedModel:
    """One row of a benchmark.

    Attributes:
        name: a registered model, a reference row, or the key of a saved run.
        weights: the published weights that it starts from, None where it has none.
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
    found = []
    for name in names:
        if name in files:
            found += [RequestedModel(each.name, "captions", "none", captions=each) for each in files[name]]
        elif (model := checkpoints.get(name)) is not None:
            found.append(RequestedModel(model.row, "hub", "pixels", hub=model))
        else:
            resolve = _resolve_ensemble if name.startswith(ENSEMBLE) else _resolve
            found.append(resolve(name, workspace, pretrained or {}))
    named = {model.name for each in found for model in (each, *(part for part, _ in each.parts))}
    if unused := next((name for name in pretrained or () if name not in named), None):
        raise BenchError(f"--pretrained {unused}: no such model is asked for", f"add {unused} to --models")
    if long := next((model.name for model in found if len(os.fsencode(model.name)) > _LONGEST), None):
        raise BenchError(
            f"{shortened(long)} is too long a name for the folder of a run: at most {_LONGEST} bytes",
            "rename the model or the folder",
        )
    return found


def _resolve_ensemble(word: str, workspace: Workspace, pretrained: Mapping[str, str]) -> RequestedModel:
    parts: list[tuple[RequestedModel, int]] = []
    for part in word.removeprefix(ENSEMBLE).split("+"):
        name, _, count = part.partition(":")
        model = _resolve(name, workspace, pretrained)
        seeds = int(count) if count.isdecimal() and len(count) < 4 else int(not count)
        if model.kind not in {"trained", "stored"} or not seeds or model in (each for each, _ in parts):
            raise BenchError(f"{word}: {shortened(part)!r} is no trained model, or is there twice", _ENSEMBLES)
        parts.append((model, seeds))
    if sum(count for _, count in parts) < 2:
        raise BenchError(f"{word} names one model", _ENSEMBLES)
    sees = [model.visual for model, _ in parts if model.visual != "none"]
    graphs = [model.graph for model, _ in parts if model.graph != "none"]
    if len({*sees}) > 1 or len({*graphs}) > 1:
        seen = ", ".join(f"{model.name}: {model.visual}" for model, _ in parts)
        raise BenchError(f"the models of {word} see different things: {seen}", "name models that see the same")
    return RequestedModel(
        word, "stored", next(iter(sees), "none"), graph=next(iter(graphs), "none"), parts=tuple(parts)
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
    kept = [model for model in models if model not in left_out]
    return (kept, [model.name for model in left_out]) if kept else (list(models), [])


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


def plan_runs(
    models: Sequence[RequestedModel],
    seeds: int,
    context: RunContext,
    workspace: Workspace,
    *,
    first_seed: int = 0,
    tuned: Tuned | None = None,
    budgets: Sequence[int] = (1,),
    reuse: Callable[[list[RunSpec]], list[RunSpec]] = list,
) -> list[RunSpec]:
    """The runs in the order of execution: reference rows, once, then seed by seed, so that every model has a row early.

    `reuse` gives the finished runs that stand for members of ensembles.

    Other untrained rows come once too, with the first seed. Trained ones come budget by budget, ascending, so that the
    run that a longer one goes on from has ended before. Ensembles come last: as many as the seeds are enough for, and
    one at least.
    """
    first = sorted((model for model in models if not model.parts), key=lambda model: model.kind != "reference")
    alone = [
        _plan(model, seed, context.under(budget), workspace, tuned)
        if model.kind == "trained"
        else _plan(model, 0, context, workspace, tuned)
        for budget in budgets
        for seed in range(first_seed, first_seed + seeds)
        for model in first
        if (budget, seed) == (budgets[0], first_seed) or model.kind == "trained"
    ]
    # Of stored runs alone all would be the same one.
    ensembles = [(model, any(part.kind == "trained" for part in model.models)) for model in models if model.parts]
    return alone + [
        _ensemble(model, first_seed, number, context.under(budget), workspace, tuned, reuse)
        for model, seeded in ensembles
        for budget in (budgets if seeded else budgets[:1])
        for number in range(max(1, seeds // max(count for _, count in model.parts)) if seeded else 1)
    ]


def _plan(model: RequestedModel, seed: int, context: RunContext, workspace: Workspace, tuned: Tuned | None) -> RunSpec:
    if model.kind == "reference":
        return _reference(model.name, context)
    if model.kind == "stored":
        return _stored(model.name, context, workspace)
    if model.captions is not None:
        return _captions(model.captions, context)
    values = {}
    if model.kind == "trained" and tuned is not None and (applied := tuned.of(model.name)) is not None:
        values, context = tuned.record(model.name, context.preset), context.tuned(applied)
    if model.hub is not None:
        spec = _hub(model.hub, context)
    elif model.weights is not None:
        spec = _with_published_weights(model, model.weights, seed, context)
    else:
        spec = _trained(model.name, seed, context)
    return replace(spec, config=spec.config | values)


def _trained(model: str, seed: int, context: RunContext) -> RunSpec:
    card = model_card(model)
    arguments = context.preset.model_arguments(model, **context.sizes)
    _, unmatched = context.preset.matched_widths(model, **context.sizes)
    grid = context.data.grid
    if card.visual == "regions+grid" and grid is not None and grid.dim != context.data.visual_dim:
        arguments = {**arguments, "grid_dim": grid.dim}
    if card.graph != "none" and context.data.graphs is not None:  # sizes that follow from the scene graphs it reads
        count = len(context.graph_entries(card.graph))
        sizes = {"n_graph_words": count} if card.graph == "words" else {"n_labels": 1 + count}
        arguments = {**arguments, **sizes}
    config = {
        "arguments": arguments,
        "preset": context.preset.model_dump(mode="json"),
        "shipped_preset": shipped_preset(context.preset),
        "evaluated": {split: len(samples) for split, samples in context.data.evaluated.items()},
        "card": _card(model, card.pretraining),
        **({"unmatched": unmatched} if unmatched else {}),
    }
    signature = context.signature | pretraining_field(card.pretraining)
    if card.visual == "pixels" and not card.has_backbone:  # it learns to see by itself
        signature = {**signature, "feat": f"pixels[{context.inputs.preprocessing.key()}]"}
    else:
        signature = {**signature, "feat": _seen(card, signature["feat"], context.data)}
    signature |= _graph_field(card, context.data)
    settings = {
        "arguments": built_with(model, arguments),
        "preset": keyed_preset(context.preset),
        "features": keyed_features(context.data.feature_config),
    }
    return _spec(model, "trained", seed, config, settings, signature, code_of_model(model, arguments), context)


def _seen(card: ModelCard, features: str, data: BenchmarkData) -> str:
    """The features that a model sees: of two streams more than the others do, so that it is not ranked among them.

    A grid that regions were cut from is the backbone's, which the features name; one of a file has a digest of its own.
    """
    if card.visual != "regions+grid":
        return features
    regions, grid = data.feature_config.regions, data.grid
    of_file = grid is not None and regions is not None and not needs_backbone(regions.source)
    return f"{features}+grid#{grid.digest[:8]}" if grid is not None and of_file else f"{features}+grid"


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
    name, trained = folder_name(weights.where), model.kind == "trained"
    signature = published_signature(context.signature, name, weights.pretraining(), trained=trained)
    preset = context.preset
    if trained:
        settings: dict[str, Any] = {"preset": keyed_preset(preset)}
    else:
        settings = {"max_len": preset.size["max_len"], "decoding": preset.decoding.model_dump(mode="json")}
    code = code_of_model(weights.model, {})
    return _spec(weights.model, model.kind, seed, config, settings, signature, code, context)


def _hub(model: HubModel, context: RunContext) -> RunSpec:
    config = {
        "arguments": {},
        "pretrained": model.where,
        "hub": asdict(model),
        "preset": context.preset.model_dump(mode="json"),
        "card": model.card(),
    }
    settings = {"decoding": context.preset.decoding.model_dump(mode="json")}
    return _spec(model.row, "hub", 0, config, settings, model.signature(context.signature), code_of_hub(), context)


def _reference(model: str, context: RunContext) -> RunSpec:
    signature = reference_signature(
        context.signature,
        nrefs=nrefs_field(context.data.evaluated, held_out=int(model == "human")),
        features=context.signature["feat"] if model == "retrieval" else None,
        held_out="each" if model == "human" else None,
    )
    config = {"arguments": {}, "what": REFERENCE_ROWS[model]}
    return _spec(model, "reference", 0, config, {}, signature, code_of({}), context)


def _captions(file: CaptionsFile, context: RunContext) -> RunSpec:
    """Captions of another system: the same conditions for all of them, but for the images that a file lacks."""
    signature = reference_signature(context.signature, nrefs=nrefs_field(context.data.evaluated))
    signature = signature | {"track": "captions"} | file.subset
    config = {"arguments": {}, "card": file.record(context.data.dataset.name)}
    return _spec(file.name, "captions", file.seed, config, file.settings(), signature, code_of({}), context)


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
    return _spec(model, "stored", 0, config, {}, signature, code_of_model(run.model, run.arguments), context)


def _ensemble(
    model: RequestedModel,
    first: int,
    number: int,
    context: RunContext,
    workspace: Workspace,
    tuned: Tuned | None,
    reuse: Callable[[list[RunSpec]], list[RunSpec]],
) -> RunSpec:
    """Stored runs together, the `number`th of such ensembles: no two of a row share a seed of a trained model."""
    members = [
        _plan(part, first + number * count + seed, context, workspace, tuned)
        for part, count in model.parts
        for seed in range(count)
    ]
    members = reuse(members)
    names = list(dict.fromkeys(part.name for part in model.models))
    signature = {
        field: "+".join(dict.fromkeys(member.signature[field] for member in members if field in member.signature))
        for field in dict.fromkeys(field for member in members for field in member.signature)
    }
    first_config = members[0].config
    shared = {
        name: value
        for name, value in first_config.items()
        if all(name in other.config and other.config[name] == value for other in members)
    }
    seen = [found for member in members if (found := member.config["card"].get("pretraining"))]
    card = {
        **first_config["card"],
        **({"pretraining": _seen_by_any(seen)} if seen else {}),
        "name": model.name,
        "family": first_config["card"]["family"] if len(names) == 1 else "ensemble",
        "model": names[0] if len(names) == 1 else "",
        "summary": f"The mean of {len(members)} models' probabilities at each word: {', '.join(names)}.",
    }
    keys = [member.model if member.kind == "stored" else member.key for member in members]
    codes = [member.code for member in members if member.code is not None]
    code = replace(
        codes[0],
        model=digest(sorted({code.model or "" for code in codes}), 10),
        files={path: said for each in codes for path, said in each.files.items()},
    )
    config = {**shared, "arguments": {}, "members": keys, "card": card}
    return _spec(model.name, "stored", first + number, config, {"members": keys}, signature, code, context)


def _seen_by_any(seen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The pretraining of several models together: what any of them has seen."""
    return {
        **{
            name: list(dict.fromkeys(each for of in seen for each in of[name])) for name in ("data_sets", "captions_of")
        },
        **{name: "; ".join(dict.fromkeys(of[name] for of in seen)) for name in ("captions", "source")},
        "overlap": {data: why for of in seen for data, why in of["overlap"].items()},
    }


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
    # A file's number is its place in the command: the same file is the same run.
    key, chosen = identify(model, 0 if kind == "captions" else seed, settings, signature, code)
    return RunSpec(
        key=key,
        model=model,
        role="reference" if kind == "reference" else "model",
        seed=seed,
        track=signature["track"],
        dataset=context.signature["data"],
        config={**config, "settings": chosen},
        signature=signature,
        code_version=harness.__version__,
        code=code,
        kind=kind,
    )
