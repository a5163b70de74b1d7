"""What a finished run has trained already: a run that would train the same goes on from there.

A stage begins from weights alone: optimiser and random numbers are begun anew. So a run of cross-entropy and then
rewards gives, on the same machine, bit for bit what it gives when cross-entropy is trained a second time. A run that
differs in its evaluation alone, as in the width of its beam, is not trained at all.

Under a larger budget a stage has the same rates until those of the smaller one begin to fall: their trunk. A run of the
smaller one keeps its checkpoint of the last whole epoch before, and the next run takes it over as its own first one,
with all that training goes on from; so it too gives, bit for bit, what training it whole gives.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from harness.benchmark.context import Execution
from harness.benchmark.saved_model import WEIGHTS
from harness.config.schedule import Stage
from harness.training.checkpoint import is_whole, last_checkpoint, read_position, save_first_checkpoint
from harness.training.trainer import CHECKPOINTS, TRUNK, TrainState
from harness.utils.atomic import replacing, write_text
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results import Store
from results.records import EpochRecord, Quantity, RunSpec, stages_of
from results.runs.reading import finished
from results.runs.run import Run

NOTE: Final = "first_stages_of"
"""The file in a run's folder that names the run that it began with, for when it is continued."""
_OF_THE_WHOLE: Final = {"schedule", "reward", "tuned", "size", "beam", "lenpen", "nrefs", "tok", "df", "v", "rev"}
"""Fields of the signature that say nothing of a single stage, or are compared otherwise: as settings, or as code."""
_SEEN_WHILE_TRAINING: Final = (
    "train_data_wait", "train_beside",
    "train_peak_memory_host", "train_peak_memory_device", "train_peak_memory_reserved",
)  # fmt: skip
"""Costs that epochs do not tell."""


def adopt_training(
    spec: RunSpec,
    workspace: Workspace,
    store: Store,
    execution: Execution,
    on_epoch: Callable[[EpochRecord], None],
    reporter: Reporter,
) -> str | None:
    """Let a run that has not begun go on from the finished run with most of its training; gives that one's key.

    Its epochs are recorded for this run too, with the time that they took. None where no run has such stages or trunk.
    """
    folder = workspace.run_folder(spec.key)
    planned = stages_of(spec.config)
    if last_checkpoint(folder / CHECKPOINTS) is not None:
        return (folder / NOTE).read_text(encoding="utf-8") if (folder / NOTE).is_file() else None
    (folder / NOTE).unlink(missing_ok=True)
    if spec.kind != "trained":
        return None
    if any(stage["objective"] == "sentence_graph" for stage in planned):  # some models pass over them
        return None
    trained_as = execution.config.record(execution.device, 1)
    alike = [
        run
        for run in finished(store, spec.dataset, model=spec.model, seed=spec.seed)
        if _trained_alike(run, spec) and run.environment.get("training") == trained_as
    ]
    known = [run for run in alike if stages_of(run.config) == planned[: len(stages_of(run.config))]]
    for run in sorted(known, key=lambda run: len(stages_of(run.config)), reverse=True):
        weights = workspace.run_folder(run.key) / WEIGHTS
        if not is_whole(weights):
            continue
        for epoch in run.epochs:
            on_epoch(epoch)
        write_text(folder / NOTE, run.key)
        state = _after(run.epochs, finished=len(stages_of(run.config)) == len(planned))
        if state.finished:
            with replacing(folder / WEIGHTS) as temporary:
                shutil.copyfile(weights, temporary)
        save_first_checkpoint(folder / CHECKPOINTS, weights, {"position": asdict(state)})
        names = ", ".join(stage["name"] for stage in stages_of(run.config))
        reporter.note(f"  {names}: not trained again, the weights are those of {run.key}")
        return run.key
    trunks = [(*trunk, run) for run in alike if (trunk := _trunk(run, spec, workspace)) is not None]
    for epochs, checkpoint, run in sorted(trunks, key=lambda trunk: trunk[0], reverse=True):
        if _take_over(run, checkpoint, epochs, folder, on_epoch):
            stage = run.epochs[0].stage_name
            reporter.note(f"  {stage} epochs 1 to {epochs}: not trained again, they are those of {run.key}")
            return run.key
    return None


def _trunk(run: Run, spec: RunSpec, workspace: Workspace) -> tuple[int, Path] | None:
    """The epochs and the checkpoint that a run kept for longer ones, where the planned one trains alike so far.

    None if it is damaged, or not there.
    """
    checkpoint = last_checkpoint(workspace.run_folder(run.key) / TRUNK)
    if checkpoint is None or (position := read_position(checkpoint)) is None:
        return None
    theirs, ours = (stages_of(config) for config in (run.config, spec.config))
    if len(theirs) != 1 or len(ours) != 1:
        return None
    epochs, steps = position["epoch"], position["step"] // position["epoch"]
    shared = Stage.model_validate(theirs[0]).shared_epochs(Stage.model_validate(ours[0]), steps)
    return (epochs, checkpoint) if epochs <= shared else None


def _take_over(run: Run, checkpoint: Path, epochs: int, folder: Path, on_epoch: Callable[[EpochRecord], None]) -> bool:
    """Begin with the trunk of a run, which is then the first checkpoint; False where another run was faster."""
    for epoch in run.epochs[:epochs]:
        on_epoch(epoch)
    write_text(folder / NOTE, run.key)
    (folder / CHECKPOINTS).mkdir(exist_ok=True)
    try:
        if (best := checkpoint / WEIGHTS).is_file():
            with replacing(folder / WEIGHTS) as temporary:
                shutil.copyfile(best, temporary)
        checkpoint.rename(folder / CHECKPOINTS / checkpoint.name)
    except FileNotFoundError:
        (folder / NOTE).unlink()
        return False
    with suppress(OSError):
        checkpoint.parent.rmdir()
    return True


def without_what_was_not_seen(costs: Mapping[str, Quantity], begun_by: str) -> dict[str, Quantity]:
    """The costs of a run that began with the stages of another one, less those that need a look at every stage."""
    reason = f"its beginning was trained by {begun_by}"
    unseen = {name: Quantity(None, reason, costs[name].unit) for name in _SEEN_WHILE_TRAINING if name in costs}
    return {**costs, **unseen}


def _trained_alike(run: Run, spec: RunSpec) -> bool:
    """Whether a run was trained under the conditions and by the code of the planned one, whatever its stages are."""
    return (
        len(stages_of(run.config)) > 0
        and "pretrained" not in run.config
        and _of_stages(run.config, run.signature) == _of_stages(spec.config, spec.signature)
        and run.code is not None
        and spec.code is not None
        and (run.code.model, run.code.revision) == (spec.code.model, spec.code.revision)
    )


def _of_stages(config: dict[str, Any], signature: dict[str, str]) -> Any:
    """What stages depend on besides their own settings, as JSON keeps it."""
    conditions = {name: value for name, value in signature.items() if name not in _OF_THE_WHOLE}
    return json.loads(json.dumps([config.get("arguments"), config["preset"].get("recipe"), conditions]))


def _after(epochs: Sequence[EpochRecord], *, finished: bool) -> TrainState:
    """Where training stands after all stages of a run, as `TrainState.next_stage` has it; `finished`: none follows."""
    last = epochs[-1].stage
    best = max(epoch.val_cider or 0.0 for epoch in epochs if epoch.stage == last)
    return TrainState(
        stage=last if finished else last + 1,
        best=best if finished else -math.inf,
        finished=finished,
        total_steps=epochs[-1].step,
        seconds=sum(epoch.seconds for epoch in epochs),
        images=sum(round(epoch.images_per_second * epoch.seconds) for epoch in epochs),
        saves=1,
        stage_start_score=best,
    )
