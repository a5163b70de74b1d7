"""How long captioning takes: timed at the end of a run, or later where other models train at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.conditions import Conditions
from harness.measure.captioning_costs import Effort, Timed, time_captioning
from harness.measure.energy import missing_energy
from harness.measure.environment import describe_environment
from harness.measure.latency import missing_latency
from harness.progress import Reporter
from harness.stored_run import StoredRun, open_run
from harness.workspace import Workspace
from results import Store
from results.records import Cell
from results.recosting import add_costs, cells_without_cost
from zoo import Captioner, Visual

THREADS = 1
"""On a processor: one image is too little work for more, and the same number on every machine can be compared."""
DEFERRED = "not timed yet: other models trained at the same time; the same command again does it"


def one_image(model: Captioner, conditions: Conditions) -> Visual:
    """A test image as the model sees it, to measure costs with."""
    return conditions.source(model.visual).visual([conditions.typical_image()], model.visual)


def time_model(model: Captioner, conditions: Conditions) -> Timed:
    """How long captioning one test image takes, and what energy; `DEFERRED` while other models may be at work."""
    if conditions.machine.jobs != 1:
        return _untimed(DEFERRED)
    preset = conditions.preset
    return time_captioning(
        model,
        one_image(model, conditions),
        beam_size=preset.decoding.beam_size,
        max_len=preset.decoding.max_len,
        bos=conditions.vocabulary.bos,
        eos=conditions.vocabulary.eos,
        effort=Effort(preset.latency_repeats, preset.latency_seconds, preset.energy_seconds),
        threads=THREADS,
    )


def time_deferred(
    cells: Sequence[Cell], conditions: Conditions, workspace: Workspace, store: Store, reporter: Reporter
) -> None:
    """Time what was `DEFERRED` of these cells, one after the other, while nothing else is at work here."""
    keys = cells_without_cost(store, DEFERRED)
    left = [cell for cell in cells if cell.key in keys]
    if not left:
        return
    where = describe_environment(conditions.device)  # another machine may have trained them
    alone = replace(conditions, machine=replace(conditions.machine, jobs=1))
    with reporter.task("timing captions", len(left)) as task:
        for cell in left:
            timed = _time_stored(workspace.run_folder(cell.model if "stored" in cell.config else cell.key), alone)
            add_costs(store, cell.key, timed.costs, {"measurement": where | timed.state})
            task.advance(detail=cell.model)
    reporter.note(f"timed captions of {len(left)} models, one at a time")


def _time_stored(folder: Path, conditions: Conditions) -> Timed:
    try:
        return time_model(*open_run(StoredRun.load(folder), folder, conditions))
    except Exception as error:  # one model that cannot be opened any more must not keep the others from being timed
        return _untimed(str(error) or type(error).__name__)


def _untimed(reason: str) -> Timed:
    return Timed(missing_latency(reason) | missing_energy(reason))
