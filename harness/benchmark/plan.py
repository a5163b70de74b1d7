"""From what the user asked for to planned runs: one spec for every model and seed, with all that it is executed by.

Control runs are of a model of the benchmark under changes that are not the architecture, to compare differences with.
One control is the same model with as many further seeds: they are seeds of its row. The other is the same model and
seeds under a harmless change of the images' preprocessing: its signature has a field `preprocessing`, so that its runs
have a leaderboard group of their own.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from harness.benchmark.context import RunContext, splits_with_lone_references
from harness.benchmark.costs import memory_bytes
from harness.benchmark.engines import Engine
from harness.benchmark.engines.here import HereEngine
from harness.benchmark.hub_model import HubOptions
from harness.benchmark.identity.reuse import settle
from harness.benchmark.rows import RequestedModel, graph_kinds, plan_runs, resolve_models, within_recipe
from harness.benchmark.run_config import Opening, RunConfig
from harness.config.execution import AUTO, ExecutionConfig
from harness.config.features import FeatureConfig
from harness.config.preset import Preset
from harness.config.tuning import Tuned
from harness.data.images import load_image
from harness.data.regions.opening import needs_backbone
from harness.metrics.more.measure import MoreSettings
from harness.metrics.spice import find_spice
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.records import RunSpec
from results.store.store import Store

SAMPLED = 16


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for.

    Attributes:
        device, precision: may be `auto`.
        budgets: ascending; every trained model is trained under each, with so many times the preset's epochs.
        control: a trained model or "auto".
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
    budgets: tuple[int, ...] = (1,)
    control: str | None = None
    device: str = "auto"
    precision: str = "auto"
    skip_bad_images: bool = False
    rerun: bool = False
    accept_code_changes: bool = False
    pretrained: Mapping[str, str] = field(default_factory=dict)
    more: MoreSettings | None = None
    hub: HubOptions = field(default_factory=dict)
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    tuned: Callable[[RunContext, Sequence[RequestedModel], Reporter], Tuned | None] | None = None
    cards: Path | None = None
    allow_subset: bool = False
    engine: Engine = field(default_factory=HereEngine)


@dataclass(frozen=True, slots=True)
class Asked:
    """The models of a request, and what is opened for them."""

    models: list[RequestedModel]
    control: RequestedModel | None
    opening: Opening


def resolve(request: Request, reporter: Reporter) -> Asked:
    """Resolve the models of a request, and choose device and precision; nothing is opened yet."""
    models = resolve_models(request.models, request.workspace, request.pretrained, request.hub, request.cards)
    models, left_out = within_recipe(models, request.models, request.preset)
    if left_out:
        reporter.note(f"left out, since {request.preset.name} is a recipe for other models: {', '.join(left_out)}")
    control = None if request.control is None else choose_control(request.control, models, request.features)
    for model in (each for row in models for each in row.models):
        if model.kind in {"trained", "pretrained", "hub"}:
            request.preset.check_model(model.name)  # before any work
        if model.kind == "trained":
            request.preset.check_lengths()
    opening = opening_of(request, models, spice=find_spice() is not None)
    if not request.engine.elsewhere:
        request.execution.check(torch.device(opening.device))
    return Asked(models, control, opening)


def opening_of(request: Request, models: Sequence[RequestedModel], *, spice: bool = False) -> Opening:
    """What is opened for these models; BenchError where the device is not there."""
    device = choose_device(request.device)
    return Opening(
        models=request.models,
        data=request.data,
        images=request.images,
        preset=request.preset,
        features=request.features,
        sees={model.word: model.visual for model in models},
        graphs=tuple(sorted(graph_kinds(models))),
        skip_bad_images=request.skip_bad_images,
        device=str(device),
        precision=choose_precision(request.precision, device),
        spice=spice,
    )


def plan(request: Request, asked: Asked, context: RunContext, reporter: Reporter, store: Store | None) -> list[RunSpec]:
    """All runs of a request in the order of execution, each with the configuration that it is executed by.

    Members of ensembles are finished runs of the store, if it has any that the request accepts.
    """
    trained = list({each.name: each for row in asked.models for each in row.models if each.kind == "trained"}.values())
    workspace, budgets, tuned = request.workspace, request.budgets, None
    if trained:
        for warning in context.preset.schedule.idle_stages(*context.counts()):
            reporter.note(warning, style="yellow")
        if request.tuned is not None:
            tuned = request.tuned(context, trained, reporter)
    seeds, first, execution = request.seeds, request.first_seed, request.execution

    def reuse(specs: list[RunSpec]) -> list[RunSpec]:
        if store is None or not request.accept_code_changes:
            return specs
        return settle(specs, store, accept=True, rerun=request.rerun)[0]

    runs_of = partial(plan_runs, seeds=seeds, workspace=workspace, tuned=tuned, budgets=budgets, reuse=reuse)
    models = [
        replace(each, captions=each.captions.checked(context.data, reporter, allow_subset=request.allow_subset))
        if each.captions
        else each
        for each in asked.models
    ]
    if "human" not in request.models and (splits := splits_with_lone_references(context.data.evaluated)):
        with_human, models = models, [model for model in models if model.name != "human"]
        if len(models) < len(with_human):
            reporter.note(f"left out: human, since no image of {', '.join(splits)} has a second reference")
    files = {(each.name, each.captions.seed): each.captions.path for each in models if each.captions}
    specs, control = runs_of(models, context=context, first_seed=first), asked.control
    changed: list[RunSpec] = []
    opening = asked.opening
    if control is not None:
        specs += runs_of([control], context=context, first_seed=first + seeds)
        if (varied := vary(context, control, reporter)) is not None:
            changed = runs_of([control], context=varied, first_seed=first)
            change = varied.data.backbone.preprocessing.control
            opening = opening.model_copy(update={"control": change, "sees": {control.name: control.visual}})
    count = sum(spec.kind != "reference" for spec in (*specs, *changed))
    devices, room = execution.devices, partial(memory_bytes, specs, context)
    jobs = request.engine.slots(count, context.execution.device, devices, lambda: devices * room())
    if not isinstance(request.engine, HereEngine):
        jobs = 1 if jobs == 1 else AUTO  # how many share a machine is not known
    planned = []
    for spec, its in [*((spec, asked.opening) for spec in specs), *((spec, opening) for spec in changed)]:
        tuning = tuned.of(spec.model) if spec.kind == "trained" and tuned is not None else None
        config = RunConfig(
            opening=its.resolved(),
            execution=replace(execution, jobs=jobs),
            tuned=tuning,
            captions=files.get((spec.model, spec.seed)) if spec.kind == "captions" else None,
        )
        planned.append(replace(spec, execution=config.model_dump(mode="json")))
    return planned


def choose_control(name: str, models: Sequence[RequestedModel], features: FeatureConfig) -> RequestedModel:
    """The model of `--control`; `auto` is the first trained one whose preprocessing can be varied, else the first."""
    trained = {model.name: model for model in models if model.kind == "trained"}
    if not trained:
        raise BenchError("--control needs a trained model, but --models names none", "add one, or leave out --control")
    if name == "auto":
        varied = (model for model in trained.values() if nothing_to_vary(model, features) is None)
        return next(varied, next(iter(trained.values())))
    if name not in trained:
        known = ", ".join(trained)
        raise BenchError(f"--control {name}: --models trains no model of this name", f"choose auto, or one of: {known}")
    return trained[name]


def nothing_to_vary(model: RequestedModel, features: FeatureConfig) -> str | None:
    """Why the preprocessing of images cannot be varied for a model, None where it can."""
    if model.weights is not None:
        return "images are prepared by the image processor of its published weights"
    if model.visual == "none":
        return "it sees no images"
    if model.visual != "pixels" and features.regions is not None and not needs_backbone(features.regions.source):
        return f"its features are read from {features.regions.source}, not made of images"
    return None


def vary(context: RunContext, model: RequestedModel, reporter: Reporter) -> RunContext | None:
    """The context with a harmless change of the preprocessing, to plan with; its features are still the old ones.

    None where there is nothing to vary for the model, which the reporter is told. BadImage where an image that was
    checked before cannot be read any more.
    """
    if (reason := nothing_to_vary(model, context.data.feature_config)) is not None:
        reporter.note(f"control: {model.name} with further seeds alone; no other preprocessing, since {reason}")
        return None
    data, backbone = context.data, copy.copy(context.data.backbone)
    shown = data.train[:: max(len(data.train) // SAMPLED, 1)][:SAMPLED]
    images = [load_image(data.dataset.path(sample)) for sample in shown]
    # The other resize filter where it changes most of them: images of the input's size are not resized at all.
    preprocessing, other = backbone.preprocessing, replace(backbone.preprocessing, control="other-filter")
    changed = sum(not np.array_equal(preprocessing(image), other(image)) for image in images)
    rescaled = replace(preprocessing, control="rescaled")
    backbone.preprocessing = other if 2 * changed > len(images) else rescaled
    change = backbone.preprocessing.described_control()
    reporter.note(f"control: {model.name} with further seeds, and with preprocessing {change}")
    return replace(
        context,
        data=replace(data, backbone=backbone),
        inputs=replace(context.inputs, preprocessing=backbone.preprocessing),
        signature=context.signature | {"preprocessing": change},
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
