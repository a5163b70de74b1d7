"""The benchmark itself: plan the grid, then train, caption, score, measure and store every cell that is not done yet.

Finished cells are re-used, failed ones tried again, and one model's failure never stops the others.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch

from harness.cell import run_model, run_reference, run_stored
from harness.conditions import Conditions, prepare_conditions
from harness.config import FeatureConfig, Preset
from harness.errors import BenchError
from harness.grid import plan_cells
from harness.machine import Machine
from harness.measure.environment import describe_environment
from harness.metrics.evaluator import METRICS, Evaluator
from harness.metrics.signature import EvaluationSettings
from harness.metrics.spice import find_spice
from harness.pretrained import WeightsMissing
from harness.progress import Reporter, describe_seconds
from harness.references import REFERENCE_ROWS
from harness.scoring import add_missing_scores
from harness.stored_run import StoredRun, is_stored
from harness.training.trainer import CHECKPOINTS
from harness.workspace import Workspace, locked
from results import Store
from results.records import Cell
from results.rescoring import missing_metrics
from zoo import model_card, select_models
from zoo.captioner import VisualKind

LOG_TAIL_LINES = 40


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for."""

    models: tuple[str, ...]
    data: str
    preset: Preset
    workspace: Workspace
    images: Path | None = None
    features: FeatureConfig = field(default_factory=FeatureConfig)
    seeds: int = 1
    device: str = "auto"
    precision: str = "auto"
    skip_bad_images: bool = False
    rerun: bool = False
    pretrained: Mapping[str, str] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)


@dataclass(slots=True)
class Summary:
    """How the cells ended, by key."""

    finished: list[str] = field(default_factory=list)
    reused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def resolve_models(patterns: Sequence[str], workspace: Workspace) -> list[str]:
    """Names for names, globs and `all`: models, reference rows, and keys of runs that the workspace holds.

    `all` is every model but variants, and every reference row. A run's key scores that run again, without training.

    Raises:
        BenchError: no pattern at all.
        ZooError: a pattern that matches nothing, with the nearest names.
    """
    if not patterns:
        raise BenchError("--models names no model", "write --models all, or see `bench models` for the names")
    chosen: dict[str, None] = {}
    for pattern in patterns:
        alone = pattern in REFERENCE_ROWS or is_stored(pattern, workspace)
        found = [pattern] if alone else select_models(pattern)
        if pattern == "all":
            found += REFERENCE_ROWS
        if not found:
            model_card(pattern)  # raises, naming the nearest
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def run_benchmark(request: Request, reporter: Reporter) -> Summary:
    """Run the whole request against its workspace; every cell ends as a row of the store."""
    models = resolve_models(request.models, request.workspace)
    for model in models:
        if model not in REFERENCE_ROWS and not is_stored(model, request.workspace):
            request.preset.model_arguments(model)  # refuses a model that the preset is not for, before any work
    request.workspace.create()
    device = choose_device(request.device)
    request.machine.check(device)
    settings = EvaluationSettings(spice=find_spice() is not None)
    with Store(request.workspace.database) as store, Evaluator(settings=settings) as evaluator:
        conditions = prepare_conditions(
            request.data,
            images=request.images,
            preset=request.preset,
            feature_config=request.features,
            sees={model: _sees(model, request.workspace) for model in models},
            evaluation=evaluator.settings,
            skip_bad_images=request.skip_bad_images,
            device=device,
            precision=_precision(request.precision, device),
            workspace=request.workspace,
            reporter=reporter,
        )
        conditions = replace(conditions, machine=request.machine)
        cells = plan_cells(models, request.seeds, conditions, request.workspace, request.pretrained)
        store.record_dataset(conditions.record())
        store.plan(cells)
        return _run_cells(cells, request, conditions, store, evaluator, reporter)


def _sees(model: str, workspace: Workspace) -> VisualKind:
    """What a row looks at; retrieval compares the pooled features."""
    if model in REFERENCE_ROWS:
        return "pooled" if model == "retrieval" else "none"
    if is_stored(model, workspace):
        model = StoredRun.load(workspace.run_folder(model)).model
    return model_card(model).visual


def _run_cells(
    cells: Sequence[Cell],
    request: Request,
    conditions: Conditions,
    store: Store,
    evaluator: Evaluator,
    reporter: Reporter,
) -> Summary:
    summary = Summary()
    retried = set(METRICS) if evaluator.settings.spice else set(METRICS) - {"SPICE"}
    done = [not request.rerun and store.status(cell.key) == "finished" for cell in cells]
    if not all(done) or any(missing_metrics(store, cell.key, retried) for cell in cells):
        samples = chain.from_iterable(conditions.evaluated.values())
        references = chain.from_iterable(sample.captions for sample in samples)
        evaluator.warm_up([*conditions.vocabulary.words, *references])  # hidden behind the first training
    environment = describe_environment(conditions.device)
    if others := environment["state"].get("other_processes"):
        reporter.note(f"{others} other processes use {conditions.device}: times will be longer", style="yellow")
    for number, cell in enumerate(cells, 1):
        title = f"[{number}/{len(cells)}] {cell.model}" + (f" seed {cell.seed}" if request.seeds > 1 else "")
        folder = request.workspace.run_folder(cell.key)

        def waiting(title: str = title) -> None:
            reporter.note(f"{title}: another process works on it; waiting")

        with locked(folder / "lock", waiting):
            if store.status(cell.key) == "finished" and not request.rerun:
                added = _add_missing_scores(cell, retried, conditions, store, evaluator)
                reporter.note(f"{title}: re-used, finished before{added}")
                summary.reused.append(cell.key)
                continue
            if request.rerun:
                shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
            reporter.note(title)
            started = time.monotonic()
            ended = _run_one(cell, folder, conditions, environment, store, evaluator, reporter)
            getattr(summary, ended).append(cell.key)
            if ended == "finished":
                reporter.note(f"  done in {describe_seconds(time.monotonic() - started)}")
    return summary


def _add_missing_scores(
    cell: Cell, retried: set[str], conditions: Conditions, store: Store, evaluator: Evaluator
) -> str:
    """What to say of the metrics that a finished cell lacked; those that are still missing are not `retried` again."""
    missing = missing_metrics(store, cell.key, retried)
    if not missing:
        return ""
    reasons = add_missing_scores(cell, missing, conditions, evaluator, store)
    retried -= {metric for metric, reason in reasons.items() if reason}
    return "".join(f"; {metric}: {reason or 'scored now'}" for metric, reason in reasons.items())


def _run_one(
    cell: Cell,
    folder: Path,
    conditions: Conditions,
    environment: dict[str, Any],
    store: Store,
    evaluator: Evaluator,
    reporter: Reporter,
) -> Literal["finished", "failed", "skipped"]:
    """Run one cell; whatever goes wrong inside becomes its row, with class and log tail."""
    store.begin(cell.key, environment)
    try:
        if cell.role == "reference":
            outcome = run_reference(cell, conditions, evaluator, environment)
        elif "stored" in cell.config:
            outcome = run_stored(
                cell,
                conditions,
                evaluator,
                stored=folder.parent / cell.model,
                environment=environment,
                reporter=reporter,
            )
        else:
            outcome = run_model(
                cell,
                conditions,
                evaluator,
                folder=folder,
                environment=environment,
                on_epoch=lambda record: store.record_epoch(cell.key, record),
                reporter=reporter,
            )
        store.finish(cell.key, outcome)
    except WeightsMissing as missing:
        reason = f"{missing} ({missing.hint})"
        store.skip(cell.key, reason)
        reporter.note(f"  skipped: {reason}", style="yellow")
        return "skipped"
    except Exception as error:
        tail = "\n".join(traceback.format_exc().splitlines()[-LOG_TAIL_LINES:])
        hint = getattr(error, "hint", None)
        reason = (str(error) or type(error).__name__) + (f" ({hint})" if hint else "")
        store.fail(cell.key, type(error).__name__, reason, tail)
        reporter.note(f"  failed: {type(error).__name__}: {reason}", style="red")
        return "failed"
    return "finished"


def choose_device(name: str) -> torch.device:
    """The device of a name or of `auto`; BenchError where it cannot be used here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise BenchError(
            f"--device {name} is not usable here: {reason}", "use --device cpu; see `bench doctor`"
        ) from error
    return device


def _precision(name: str, device: torch.device) -> str:
    if name == "auto":
        return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    return name
