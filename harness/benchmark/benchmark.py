"""The benchmark: plan the runs, then train, caption, score, measure and store each that is not finished yet.

Finished runs are re-used, failed ones tried again, and one model's failure never stops the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from harness.benchmark.context import RunContext, prepare_context
from harness.benchmark.control import choose_control, prepare_varied, vary
from harness.benchmark.engines.entering import limit_threads
from harness.benchmark.engines.interface import Engine
from harness.benchmark.engines.local import LocalEngine
from harness.benchmark.hub_options import HubOptions
from harness.benchmark.identity.reuse import settle
from harness.benchmark.models import RequestedModel, graph_kinds, resolve_models, within_recipe
from harness.benchmark.more_metrics import add_more_metrics, more_evaluator
from harness.benchmark.plan import plan_runs
from harness.benchmark.timing import time_deferred
from harness.benchmark.worker import Ended, Shared, Worker
from harness.config.execution import ExecutionConfig
from harness.config.features import FeatureConfig
from harness.config.preset import Preset
from harness.config.tuning import Tuned
from harness.measure.environment import describe_state
from harness.metrics.evaluator import Evaluator
from harness.metrics.more.measure import MoreSettings
from harness.metrics.signature import EvaluationSettings
from harness.metrics.spice import find_spice
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.run_events import RunsEnded
from harness.utils.workspace import Workspace
from results import Store
from results.records import RunSpec


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for.

    Attributes:
        prompt: of checkpoints of transformers' own interface, if not their family's.
        clean: what is done to their captions.
        more: what further metrics are computed with, once all runs have ended; None: there are none.
        control: a trained model or "auto" (`harness.benchmark.control`).
        tuned: finds the tuned values of trained models, once the conditions are known; where it is or gives None, the
            preset is trained as it is.
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
    engine: Engine = field(default_factory=LocalEngine)


@dataclass(slots=True)
class Summary:
    """How the runs ended, by key; `lacking` are metrics that were asked for and not measured, with the reason."""

    finished: list[str] = field(default_factory=list)
    reused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    lacking: dict[str, str] = field(default_factory=dict)
    planned: int = 0
    on_run: Callable[[int, int], None] = lambda *_: None

    def count(self, spec: RunSpec, ended: Ended) -> None:
        """Count a run that ended, and tell `on_run` of the planned ones how many have."""
        getattr(self, ended).append(spec.key)
        self.on_run(len(self.finished) + len(self.reused) + len(self.failed) + len(self.skipped), self.planned)


def run_benchmark(
    request: Request, reporter: Reporter, on_run: Callable[[int, int], None] = lambda *_: None
) -> Summary:
    """Execute the whole request against its workspace; every run ends as a row of the store.

    Args:
        on_run: called when a run has ended, with the number of those that have, and of all.
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
    if not request.engine.finds_devices:
        request.execution.check(device)
    settings = EvaluationSettings(spice=find_spice() is not None)
    with ExitStack() as stack:
        engine = stack.enter_context(closing(request.engine))
        engine.check(request.workspace)
        request.workspace.create()
        store = stack.enter_context(Store(request.workspace.database))
        evaluator = stack.enter_context(Evaluator(settings=settings))
        # The data: images checked, features extracted or re-used, vocabulary built.
        context = prepare_context(
            request.data,
            images=request.images,
            preset=request.preset.untuned(),
            feature_config=request.features,
            sees={model.name: model.visual for model in models},
            graphs=graph_kinds(models),
            evaluation=evaluator.settings,
            skip_bad_images=request.skip_bad_images,
            device=device,
            precision=choose_precision(request.precision, device),
            workspace=request.workspace,
            reporter=reporter,
            spread=engine.extraction(device, reporter),
        )
        trained = [model for model in models if model.kind == "trained"]
        for warning in request.preset.schedule.idle_stages(*context.counts()) if trained else ():
            reporter.note(warning, style="yellow")
        if request.tuned is not None and trained:
            context = replace(context, tuned=request.tuned(context, trained, reporter))
        more = None if request.more is None else more_evaluator(request.more, context.data, str(device))
        # The plan: a spec for every run, less those that finished runs stand for.
        workspace = request.workspace
        specs, apart, changed = plan_benchmark(models, control, request, context, reporter)
        context = replace(context, execution=replace(context.execution, config=request.execution))
        config = replace(request.execution, jobs=engine.slots(specs, context))
        context = replace(context, execution=replace(context.execution, config=config))
        if changed is not None:
            changed = replace(changed, execution=context.execution)
        store.record_dataset(context.data.record(context.signature["data"]))
        settled, notes = settle([*specs, *apart], store, accept=request.accept_code_changes, rerun=request.rerun)
        for note in notes:
            reporter.note(note)
        store.plan(settled)
        summary = Summary(planned=len(settled), on_run=on_run)
        reporter.watch(RunsEnded(0, summary.planned))
        specs, apart = settled[: len(specs)], settled[len(specs) :]
        # The runs, one after the other or side by side, and then the timing of those that ran side by side.
        if others := describe_state(device).get("other_processes"):
            reporter.note(f"{others} other processes use {device}: times will be longer", style="yellow")
        shared = Shared(context, workspace, evaluator.settings, request.rerun)
        _run_all(specs, shared, engine, summary, store, evaluator, reporter)
        if control and changed:
            try:
                changed = prepare_varied(changed, control, reporter, engine.extraction(device, reporter))
            except Exception as error:  # the other runs keep their results
                _fail_all(apart, error, summary, store, reporter)
            else:
                _run_all(apart, replace(shared, context=changed), engine, summary, store, evaluator, reporter)
        if more is not None:
            ended = [spec for spec in settled if spec.key in {*summary.finished, *summary.reused}]
            summary.lacking = add_more_metrics(ended, more, context.data, store, reporter)
            for name, reason in summary.lacking.items():
                reporter.note(f"not measured: {name}: {reason}", style="yellow")
        return summary


def plan_benchmark(
    models: Sequence[RequestedModel],
    control: RequestedModel | None,
    request: Request,
    context: RunContext,
    reporter: Reporter,
) -> tuple[list[RunSpec], list[RunSpec], RunContext | None]:
    """A spec for every run, those of `--control` with another preprocessing, and their context, if there are any.

    Raises:
        BadImage: an image that was checked before cannot be read any more.
    """
    seeds, first, workspace = request.seeds, request.first_seed, request.workspace
    specs = plan_runs(models, seeds, context, workspace, first_seed=first)
    if control is None:
        return specs, [], None
    specs += plan_runs([control], seeds, context, workspace, first_seed=first + seeds)
    changed = vary(context, control, reporter)
    apart = [] if changed is None else plan_runs([control], seeds, changed, workspace, first_seed=first)
    return specs, apart, changed


def _run_all(
    specs: Sequence[RunSpec],
    shared: Shared,
    engine: Engine,
    summary: Summary,
    store: Store,
    evaluator: Evaluator,
    reporter: Reporter,
) -> None:
    """Execute the runs of one context, then time those that ran side by side; the summary counts them."""
    with limit_threads(shared.context.execution.config.jobs):
        _execute_all(specs, shared, engine, summary, store, evaluator, reporter)
    time_deferred(specs, shared.context, shared.workspace, store, reporter)


def _fail_all(specs: Sequence[RunSpec], error: Exception, summary: Summary, store: Store, reporter: Reporter) -> None:
    """Store why control runs could not start; finished ones stay as they are."""
    for spec in specs:
        if store.status(spec.key) == "finished":
            summary.count(spec, "reused")
            continue
        store.fail(spec.key, type(error).__name__, str(error), "")
        summary.count(spec, "failed")
    reporter.note(f"control runs failed: {type(error).__name__}: {error}", style="red")


def _execute_all(
    specs: Sequence[RunSpec],
    shared: Shared,
    engine: Engine,
    summary: Summary,
    store: Store,
    evaluator: Evaluator,
    reporter: Reporter,
) -> None:
    """Execute all runs: first those that are finished, then those that no other command executes."""
    worker = Worker(shared, store, evaluator, reporter)
    several = len({spec.seed for spec in specs}) > 1
    titled = [
        (f"[{number}/{len(specs)}] {spec.model}" + (f" seed {spec.seed}" if several else ""), spec)
        for number, spec in enumerate(specs, 1)
    ]
    left = []
    for title, spec in titled:
        if worker.is_done(spec):
            summary.count(spec, worker.work(spec, title))
        else:
            left.append((title, spec))
    for spec, ended in engine.execute(left, shared, store, reporter, worker):
        summary.count(spec, ended)


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
