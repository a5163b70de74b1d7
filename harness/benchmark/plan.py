"""From what the user asked for to planned runs: one spec for every model and seed, with all that it is executed by."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

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
from harness.metrics.more.measure import MoreSettings
from harness.metrics.spice import find_spice
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.records import RunSpec
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for.

    Attributes:
        device, precision: may be `auto`.
        budgets: ascending; every trained model is trained under each, with so many times the preset's epochs.
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
    opening: Opening


def resolve(request: Request, reporter: Reporter) -> Asked:
    """Resolve the models of a request, and choose device and precision; nothing is opened yet."""
    models = resolve_models(request.models, request.workspace, request.pretrained, request.hub, request.cards)
    models, left_out = within_recipe(models, request.models, request.preset)
    if left_out:
        reporter.note(f"left out, since {request.preset.name} is a recipe for other models: {', '.join(left_out)}")
    for model in (each for row in models for each in row.models):
        if model.kind in {"trained", "pretrained", "hub"}:
            request.preset.check_model(model.name)  # before any work
        if model.kind == "trained":
            request.preset.check_lengths()
    opening = opening_of(request, models, spice=find_spice() is not None)
    if not request.engine.elsewhere:
        request.execution.check(torch.device(opening.device))
    return Asked(models, opening)


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
    execution = request.execution

    def reuse(specs: list[RunSpec]) -> list[RunSpec]:
        if store is None or not request.accept_code_changes:
            return specs
        return settle(specs, store, accept=True, rerun=request.rerun)[0]

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
    specs = plan_runs(
        models,
        request.seeds,
        context,
        workspace,
        first_seed=request.first_seed,
        tuned=tuned,
        budgets=budgets,
        reuse=reuse,
    )
    count = sum(spec.kind != "reference" for spec in specs)
    devices, room = execution.devices, partial(memory_bytes, specs, context)
    jobs = request.engine.slots(count, context.execution.device, devices, lambda: devices * room())
    if not isinstance(request.engine, HereEngine):
        jobs = 1 if jobs == 1 else AUTO  # how many share a machine is not known
    planned = []
    for spec in specs:
        tuning = tuned.of(spec.model) if spec.kind == "trained" and tuned is not None else None
        config = RunConfig(
            opening=asked.opening.resolved(),
            execution=replace(execution, jobs=jobs),
            tuned=tuning,
            captions=files.get((spec.model, spec.seed)) if spec.kind == "captions" else None,
        )
        planned.append(replace(spec, execution=config.model_dump(mode="json")))
    return planned


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
