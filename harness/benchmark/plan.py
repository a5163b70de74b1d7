"""From what the user asked for to planned runs: one spec for every model and seed, with all that it is executed by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

import harness
from harness.benchmark.baselines import REFERENCE_ROWS
from harness.benchmark.context import BenchmarkData, RunContext
from harness.benchmark.control import choose_control, vary
from harness.benchmark.engines import Engine
from harness.benchmark.engines.estimate import memory_bytes
from harness.benchmark.engines.here import HereEngine
from harness.benchmark.hub_model import HubModel, HubOptions
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
from harness.benchmark.models import RequestedModel, graph_kinds, resolve_models, within_recipe
from harness.benchmark.pretrained import Pretrained
from harness.benchmark.run_config import AppliedTuning, Opening, RunConfig
from harness.benchmark.saved_model import VOCABULARY, SavedModel
from harness.config.execution import ExecutionConfig
from harness.config.features import FeatureConfig
from harness.config.load import shipped_preset
from harness.config.preset import Preset
from harness.config.tuning import Tuned
from harness.data.pixels import without_control
from harness.data.regions.opening import needs_backbone
from harness.data.vocabularies import load_vocabulary
from harness.metrics.more.measure import MoreSettings
from harness.metrics.spice import find_spice
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.records import CodeRecord, RunKind, RunSpec
from zoo import ModelCard, Pretraining, model_card
from zoo.captioner import GraphKind


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for.

    Attributes:
        device, precision: may be `auto`.
        control: a trained model or "auto" (`harness.benchmark.control`).
        tuned: finds the tuned values of trained models, once the conditions are known; where it is or gives None, the
            preset is trained as it is.
        more: what further metrics are computed with, once all runs have ended; None: there are none.
        engine: where runs are executed; everything else is done in this process.
    """

    models: tuple[str, ...]
    data: str
    preset: Preset
    workspace: Workspace
    images: Path | None = None
    features: FeatureConfig = field(default_factory=FeatureConfig)
    seeds: int = 1
    first_seed: int = 0
    control: str | None = None
    device: str = "auto"
    precision: str = "auto"
    skip_bad_images: bool = False
    rerun: bool = False
    accept_code_changes: bool = False
    pretrained: Mapping[str, str] = field(default_factory=dict)
    more: MoreSettings | None = None
    hub: HubOptions = field(default_factory=HubOptions)
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    tuned: Callable[[RunContext, Sequence[RequestedModel], Reporter], Tuned | None] | None = None
    engine: Engine = field(default_factory=HereEngine)


@dataclass(frozen=True, slots=True)
class Asked:
    """The models of a request, and what is opened for them."""

    models: list[RequestedModel]
    control: RequestedModel | None
    opening: Opening

    def trained(self) -> list[RequestedModel]:
        """The models that are trained."""
        return [model for model in self.models if model.kind == "trained"]


def resolve(request: Request, reporter: Reporter) -> Asked:
    """Resolve the models of a request, and choose device and precision; nothing is opened yet.

    Raises:
        BenchError, ZooError: what `resolve_models` and `choose_control` refuse; a model that the preset is not for; a
            device that is not there.
    """
    models = resolve_models(request.models, request.workspace, request.pretrained, request.hub)
    models, left_out = within_recipe(models, request.models, request.preset)
    if left_out:
        reporter.note(f"left out, since {request.preset.name} is a recipe for other models: {', '.join(left_out)}")
    control = None if request.control is None else choose_control(request.control, models, request.features)
    for model in models:
        if model.kind in {"trained", "pretrained", "hub"}:
            request.preset.check_model(model.name)  # before any work
    device = choose_device(request.device)
    if not request.engine.elsewhere:
        request.execution.check(device)
    opening = Opening(
        data=request.data,
        images=request.images,
        preset=request.preset.untuned(),
        features=request.features,
        sees={model.name: model.visual for model in models},
        graphs=tuple(sorted(graph_kinds(models))),
        skip_bad_images=request.skip_bad_images,
        device=str(device),
        precision=choose_precision(request.precision, device),
        spice=find_spice() is not None,
    )
    return Asked(models, control, opening)


def plan(request: Request, asked: Asked, context: RunContext, reporter: Reporter) -> list[RunSpec]:
    """All runs of a request in the order of execution, each with the configuration that it is executed by.

    Args:
        context: of `asked.opening`.

    Raises:
        BenchError: of the tuned values.
        BadImage: an image that was checked before cannot be read any more.
    """
    trained, workspace, tuned = asked.trained(), request.workspace, None
    if trained:
        for warning in context.preset.schedule.idle_stages(*context.counts()):
            reporter.note(warning, style="yellow")
        if request.tuned is not None:
            tuned = request.tuned(context, trained, reporter)
    seeds, first, execution = request.seeds, request.first_seed, request.execution
    specs, control = plan_runs(asked.models, seeds, context, workspace, first_seed=first, tuned=tuned), asked.control
    changed: list[RunSpec] = []
    opening = asked.opening
    if control is not None:
        specs += plan_runs([control], seeds, context, workspace, first_seed=first + seeds, tuned=tuned)
        if (varied := vary(context, control, reporter)) is not None:
            changed = plan_runs([control], seeds, varied, workspace, first_seed=first, tuned=tuned)
            change = varied.data.backbone.preprocessing.control
            opening = opening.model_copy(update={"control": change, "sees": {control.name: control.visual}})
    count = sum(spec.kind != "reference" for spec in (*specs, *changed))
    jobs = request.engine.slots(
        count,
        context.execution.device,
        execution.devices,
        lambda: execution.devices * memory_bytes(specs, context),
    )
    execution = replace(execution, jobs=jobs)
    return [_configured(spec, asked.opening, execution, tuned) for spec in specs] + [
        _configured(spec, opening, execution, tuned) for spec in changed
    ]


def _configured(spec: RunSpec, opening: Opening, execution: ExecutionConfig, tuned: Tuned | None) -> RunSpec:
    """The spec with its `RunConfig`."""
    tuning = None
    if spec.kind == "trained" and tuned is not None and spec.model in tuned.values:
        tuning = AppliedTuning(label=tuned.label, values=tuned.values[spec.model], stages=tuned.stages)
    config = RunConfig(opening=opening.resolved(), execution=execution, tuned=tuning)
    return replace(spec, execution=config.model_dump(mode="json"))


def plan_runs(
    models: Sequence[RequestedModel],
    seeds: int,
    context: RunContext,
    workspace: Workspace,
    *,
    first_seed: int = 0,
    tuned: Tuned | None = None,
) -> list[RunSpec]:
    """The runs in the order of execution: reference rows, once, then seed by seed, so that every model has a row early.

    Other untrained rows come once too, with the first seed.
    """
    first = sorted(models, key=lambda model: model.kind != "reference")
    return [
        _plan(model, seed if model.kind == "trained" else 0, context, workspace, tuned)
        for seed in range(first_seed, first_seed + seeds)
        for model in first
        if seed == first_seed or model.kind == "trained"
    ]


def _plan(model: RequestedModel, seed: int, context: RunContext, workspace: Workspace, tuned: Tuned | None) -> RunSpec:
    if model.kind == "reference":
        return _reference(model.name, context)
    if model.kind == "stored":
        return _stored(model.name, context, workspace)
    values = {}
    if model.kind == "trained" and tuned is not None and model.name in tuned.values:
        values = tuned.record(model.name, context.preset)
        context = context.tuned(AppliedTuning(label=tuned.label, values=tuned.values[model.name], stages=tuned.stages))
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


def choose_device(name: str) -> torch.device:
    """The device of a name or of `auto`; BenchError where it cannot be used here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.partition(":")[0] not in {"cpu", "cuda"}:
        raise BenchError(f"--device {name!r} is unknown", "choose auto, cpu, cuda or cuda:N")
    try:
        device = torch.device(name)
        if device.type == "cuda":  # a tensor would take memory of a GPU that perhaps another process is to work on
            torch.cuda.get_device_properties(device)
        else:
            torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise BenchError(
            f"--device {name} is not usable here: {reason}", "use --device cpu; see `bench doctor`"
        ) from error
    return device


def choose_precision(name: str, device: torch.device) -> str:
    """The arithmetic of a name or of `auto`: bf16 where the device computes in it natively."""
    if name == "auto":
        # Older GPUs emulate it, more slowly than they compute in single precision.
        native = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16" if native else "fp32"
    return name
