"""From what the user asked for to planned runs: one for every model and seed, with all that it is executed by."""

import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from harness.benchmark.baselines import REFERENCE_ROWS
from harness.benchmark.context import RunContext, check_captions, splits_with_lone_references, usable_splits
from harness.benchmark.costs import memory_bytes
from harness.benchmark.hub_model import hub_options
from harness.benchmark.plan_runs import Planner
from harness.benchmark.pretrained import check_places
from harness.benchmark.reuse import reuse_finished_runs
from harness.benchmark.rows import RequestedModel, graph_kinds, resolve_models, within_recipe
from harness.config.execution import AUTO, ExecutionConfig
from harness.config.experiment import Experiment
from harness.config.features import FeatureConfig
from harness.config.load import check_recipe
from harness.config.model_patterns import CAPTIONS, looks_at_nothing, needs_no_training_captions
from harness.config.preset import Preset
from harness.config.run import Conditions, RunData, config_of
from harness.config.tuning import Tuned
from harness.data.dataset import Dataset
from harness.data.vocabulary import choose_preparation, preparation_label
from harness.executors import Executor
from harness.executors.local import LocalExecutor
from harness.metrics.more.measure import MoreSettings
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.records import RunSpec
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class Benchmark:
    """An experiment, and what its names stand for.

    Attributes:
        preset: with the experiment's changes.
        features: those of the experiment, or of the preset on the embedded data.
        execution: as far as it is known before the device is chosen.
        tuned: finds the tuned values of trained models, once the conditions are known; None: as in the preset.
        more: what further metrics are computed with, once all runs have ended; None: there are none.
        executor: where runs are executed; everything else is done in this process.
    """

    experiment: Experiment
    preset: Preset
    workspace: Workspace
    features: FeatureConfig = field(default_factory=FeatureConfig)
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    tuned: Callable[[Planner, Sequence[RequestedModel], Reporter], Tuned] | None = None
    more: MoreSettings | None = None
    executor: Executor = field(default_factory=LocalExecutor)

    @property
    def seeds(self) -> int:
        """Trainings of each model."""
        return self.experiment.seeds or self.preset.seeds

    @property
    def rerun(self) -> bool:
        """Whether finished runs are made again."""
        return self.experiment.reuse == "none"

    @property
    def reuses_other_code(self) -> bool:
        """Whether finished runs that other code made are re-used."""
        return self.experiment.reuse == "any"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The models of a benchmark, and what is opened for them."""

    models: list[RequestedModel]
    conditions: Conditions


def resolve(benchmark: Benchmark, reporter: Reporter) -> Resolved:
    """Resolve the models of a benchmark, and choose device and precision; nothing is opened yet."""
    experiment = benchmark.experiment
    pretrained = check_places(experiment.pretrained)
    hub = hub_options([f"{name}={value}" for name, value in experiment.hub.items()])
    models = resolve_models(experiment.models, benchmark.workspace, pretrained, hub, experiment.cards)
    models, left_out = within_recipe(models, experiment.models, benchmark.preset)
    if left_out:
        reporter.note(f"left out, since {benchmark.preset.name} is a recipe for other models: {', '.join(left_out)}")
    for model in (model_of_row for row in models for model_of_row in row.models):
        if model.kind in {"trained", "pretrained", "hub"}:
            check_recipe(benchmark.preset, model.name)  # before any work
        if model.kind == "trained":
            benchmark.preset.check_lengths()
    conditions = conditions_of(benchmark, models)
    if not benchmark.executor.elsewhere:
        benchmark.execution.check(torch.device(conditions.execution.device))
    return Resolved(models, conditions)


def conditions_of(benchmark: Benchmark, models: Sequence[RequestedModel]) -> Conditions:
    """What is opened for these models; BenchError if the device is not there, or what makes words of captions."""
    experiment = benchmark.experiment
    recipe = benchmark.preset.recipe
    preparation_label(choose_preparation("words" if recipe is None else recipe.captions, experiment.tokenizer))
    device = choose_device(experiment.execution.device)
    needs_pictures = not all(looks_at_nothing(model.word) for model in models)
    kinds = {model.visual for model in models}
    described = RunData(
        sees=tuple(sorted(kinds)) if needs_pictures else (),
        graphs=tuple(sorted(graph_kinds(models))),
        skip_bad_images=experiment.data.skip_bad_images,
        limit=experiment.data.limit,
        left_out=experiment.data.left_out,
    )
    return Conditions.of_inputs(
        experiment.data.annotations,
        experiment.data.images,
        benchmark.features,
        described=described,
        preset=benchmark.preset,
        precision=choose_precision(experiment.precision, device),
        tokenizer=experiment.tokenizer,
        language=experiment.language,
        execution=replace(benchmark.execution, device=str(device)),
    )


def check_rows(benchmark: Benchmark, models: Sequence[RequestedModel], reporter: Reporter, dataset: Dataset) -> None:
    """BenchError if rows cannot be made of a data set, or models would learn no word of it."""
    splits = usable_splits(dataset, dataset.faults)
    words = [model.word for model in models]
    if "human" in benchmark.experiment.models and (lone := splits_with_lone_references(splits)):
        remaining = [word for word in benchmark.experiment.models if word != "human"]
        if not remaining:
            remaining = [f"{CAPTIONS}FILE" if dataset.is_references else "majority"]
        raise BenchError(
            f"human: no image of {', '.join(lone)} has a second reference to score the first against",
            f"leave human out: --models {shlex.quote(','.join(remaining))}",
        )
    trained = [word for word in words if not needs_no_training_captions(word)]
    if dataset.is_references and trained:
        names = ", ".join(trained[:3])
        if len(trained) > 3:
            names += " ..."
        raise BenchError(
            f"{names}: {dataset.name} has references alone, and no captions to train on",
            f"choose human, {CAPTIONS}FILE and hf:NAME with --models; or make a data set to train on: "
            f"{dataset.conversion or 'see bench data convert --help'}",
        )
    trains = any(word not in REFERENCE_ROWS for word in trained)
    tokenizer = benchmark.experiment.tokenizer
    check_captions(dataset, benchmark.preset, trains=trains, reporter=reporter, tokenizer=tokenizer)


def plan(
    benchmark: Benchmark, resolved: Resolved, context: RunContext, reporter: Reporter, store: Store | None
) -> list[RunSpec]:
    """All runs of a benchmark in the order of execution.

    Members of ensembles are finished runs of the store, if it has any that the benchmark accepts.
    """
    experiment = benchmark.experiment
    trained = {model.name: model for row in resolved.models for model in row.models if model.kind == "trained"}
    tuned = None
    if trained:
        for warning in context.preset.schedule.idle_stages(*context.counts()):
            reporter.note(warning, style="yellow")
        if benchmark.tuned is not None:
            untuned = Planner(resolved.conditions, context, benchmark.workspace)
            tuned = benchmark.tuned(untuned, list(trained.values()), reporter)

    def reuse(specs: list[RunSpec]) -> list[RunSpec]:
        if store is None or not benchmark.reuses_other_code:
            return specs
        return reuse_finished_runs(specs, store, accept=True, rerun=benchmark.rerun)[0]

    models = []
    without_people = [] if "human" in experiment.models else splits_with_lone_references(context.data.evaluated)
    for model in resolved.models:
        if model.captions is not None:
            captions = model.captions.checked(context.data, reporter, allow_subset=experiment.allow_subset)
            models.append(replace(model, captions=captions))
        elif model.name == "human" and without_people:
            reporter.note(f"left out: human, since no image of {', '.join(without_people)} has a second reference")
        else:
            models.append(model)
    planner = Planner(resolved.conditions, context, benchmark.workspace, tuned, reuse)
    return planner.plan(models, benchmark.seeds, first_seed=experiment.first_seed, budgets=experiment.budgets)


def choose_jobs(
    executor: Executor, specs: Sequence[RunSpec], context: RunContext, finished: Collection[str] = ()
) -> list[RunSpec]:
    """Set how many runs execute at a time, and prepare the executor; `finished` runs need no slot."""
    configs = [config_of(spec) for spec in specs if spec.key not in finished and spec.kind != "ensemble"]
    devices = context.compute.settings.devices
    count = sum(config.kind != "reference" for config in configs)
    memory = partial(memory_bytes, configs, context)
    jobs = executor.slots(count, context.compute.device, devices, lambda: devices * memory())
    if not isinstance(executor, LocalExecutor):
        jobs = 1 if jobs == 1 else AUTO  # how many share a machine is not known
    return [with_jobs(spec, jobs) for spec in specs]


def with_jobs(spec: RunSpec, jobs: int) -> RunSpec:
    """A planned run that is executed beside so many others."""
    config = config_of(spec)
    execution = replace(config.execution, jobs=jobs)
    return replace(spec, config=config.model_copy(update={"execution": execution}).model_dump(mode="json"))


def choose_device(name: str) -> torch.device:
    """The device of a name or of `auto`; BenchError if it cannot be used here."""
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
