"""From what the user asked for to planned runs: one for every model and seed, with all that it is executed by."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from harness.benchmark.baselines import REFERENCE_ROWS
from harness.benchmark.context import RunContext, check_captions, splits_with_lone_references, usable_splits
from harness.benchmark.costs import memory_bytes
from harness.benchmark.engines import Engine
from harness.benchmark.engines.here import HereEngine
from harness.benchmark.hub_model import HubOptions
from harness.benchmark.plan_runs import Planner
from harness.benchmark.reuse import reuse_finished_runs
from harness.benchmark.rows import RequestedModel, graph_kinds, resolve_models, within_recipe
from harness.config.execution import AUTO, ExecutionConfig
from harness.config.features import FeatureConfig
from harness.config.model_patterns import CAPTIONS, looks_at_nothing, needs_no_training_captions
from harness.config.preset import Preset
from harness.config.run import Conditions, RunData, config_of
from harness.config.tuning import Tuned
from harness.data.dataset import Dataset
from harness.metrics.more.measure import MoreSettings
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
    tuned: Callable[[Planner, Sequence[RequestedModel], Reporter], Tuned] | None = None
    cards: Path | None = None
    allow_subset: bool = False
    engine: Engine = field(default_factory=HereEngine)


@dataclass(frozen=True, slots=True)
class Asked:
    """The models of a request, and what is opened for them."""

    models: list[RequestedModel]
    conditions: Conditions


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
    conditions = conditions_of(request, models)
    if not request.engine.elsewhere:
        request.execution.check(torch.device(conditions.execution.device))
    return Asked(models, conditions)


def conditions_of(request: Request, models: Sequence[RequestedModel]) -> Conditions:
    """What is opened for these models; BenchError where the device is not there."""
    device = choose_device(request.device)
    needs_pictures = not all(looks_at_nothing(model.word) for model in models)
    kinds = {model.visual for model in models}
    described = RunData(
        sees=tuple(sorted(kinds)) if needs_pictures else (),
        graphs=tuple(sorted(graph_kinds(models))),
        skip_bad_images=request.skip_bad_images,
    )
    return Conditions.of_inputs(
        request.data,
        request.images,
        request.features,
        described=described,
        preset=request.preset,
        precision=choose_precision(request.precision, device),
        execution=replace(request.execution, device=str(device)),
    )


def check_rows(request: Request, models: Sequence[RequestedModel], reporter: Reporter, dataset: Dataset) -> None:
    """BenchError where rows cannot be made of a data set, or models would learn no word of it."""
    splits = usable_splits(dataset, dataset.faults)
    words = [model.word for model in models]
    if "human" in request.models and (lone := splits_with_lone_references(splits)):
        others = [word for word in request.models if word != "human"]
        if not others:
            others = [f"{CAPTIONS}FILE" if dataset.is_references else "majority"]
        raise BenchError(
            f"human: no image of {', '.join(lone)} has a second reference to score the first against",
            f"leave human out: --models {shlex.quote(','.join(others))}",
        )
    trained = [word for word in words if not needs_no_training_captions(word)]
    if dataset.is_references and trained:
        raise BenchError(
            f"{', '.join(trained[:3])}{' ...' * (len(trained) > 3)}: {dataset.name} has references alone, and no "
            "captions to train on",
            f"choose human, {CAPTIONS}FILE and hf:NAME with --models; or give Karpathy's file of the data set",
        )
    trains = any(word not in REFERENCE_ROWS for word in trained)
    check_captions(dataset, request.preset, trains=trains, reporter=reporter)


def plan(request: Request, asked: Asked, context: RunContext, reporter: Reporter, store: Store | None) -> list[RunSpec]:
    """All runs of a request in the order of execution.

    Members of ensembles are finished runs of the store, if it has any that the request accepts.
    """
    trained = list({each.name: each for row in asked.models for each in row.models if each.kind == "trained"}.values())
    tuned = None
    if trained:
        for warning in context.preset.schedule.idle_stages(*context.counts()):
            reporter.note(warning, style="yellow")
        if request.tuned is not None:
            tuned = request.tuned(Planner(asked.conditions, context, request.workspace), trained, reporter)

    def reuse(specs: list[RunSpec]) -> list[RunSpec]:
        if store is None or not request.accept_code_changes:
            return specs
        return reuse_finished_runs(specs, store, accept=True, rerun=request.rerun)[0]

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
    planner = Planner(asked.conditions, context, request.workspace, tuned, reuse)
    specs = planner.plan(models, request.seeds, first_seed=request.first_seed, budgets=request.budgets)
    count = sum(spec.kind != "reference" for spec in specs)
    devices, room = (
        asked.conditions.execution.devices,
        partial(memory_bytes, [config_of(spec) for spec in specs], context),
    )
    jobs = request.engine.slots(count, context.execution.device, devices, lambda: devices * room())
    if not isinstance(request.engine, HereEngine):
        jobs = 1 if jobs == 1 else AUTO  # how many share a machine is not known
    return [with_jobs(spec, jobs) for spec in specs]


def with_jobs(spec: RunSpec, jobs: int) -> RunSpec:
    """A planned run that is executed beside so many others."""
    config = config_of(spec)
    execution = replace(config.execution, jobs=jobs)
    return replace(spec, config=config.model_copy(update={"execution": execution}).model_dump(mode="json"))


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
