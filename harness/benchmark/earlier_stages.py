"""Stages that a finished run has trained already: a run that has them too begins with their weights.

A stage begins from weights alone: optimiser and random numbers are begun anew. So a run of cross-entropy and then
rewards gives, on the same machine, bit for bit what it gives when cross-entropy is trained a second time. A run that
differs in its evaluation alone, as in the width of its beam, is not trained at all.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from harness.benchmark.context import Execution
from harness.benchmark.saved_model import WEIGHTS
from harness.training.checkpoint import is_whole, last_checkpoint, save_first_checkpoint
from harness.training.state import TrainState
from harness.training.trainer import CHECKPOINTS
from harness.utils.atomic import replacing, write_text
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results import Store
from results.records import EpochRecord, Quantity, RunSpec
from results.runs.reading import finished
from results.runs.run import Run

NOTE: Final = "first_stages_of"
"""The file in a run's folder that names the run whose stages it began with, for when it is continued."""
_OF_THE_WHOLE: Final = {"schedule", "reward", "tuned", "size", "beam", "lenpen", "nrefs", "tok", "df", "v", "rev"}
"""Fields of the signature that say nothing of a single stage, or are compared otherwise: as settings, or as code."""
_SEEN_WHILE_TRAINING: Final = (
    "train_data_wait", "train_beside",
    "train_peak_memory_host", "train_peak_memory_device", "train_peak_memory_reserved",
)  # fmt: skip
"""Costs that epochs do not tell."""


def adopt_stages(
    spec: RunSpec,
    workspace: Workspace,
    store: Store,
    execution: Execution,
    on_epoch: Callable[[EpochRecord], None],
    reporter: Reporter,
) -> str | None:
    """Let a run that has not begun go on from the finished run with most of its stages; gives that one's key.

    Its epochs are recorded for this run too, with the time that they took. None where no run has such stages.
    """
    folder = workspace.run_folder(spec.key)
    planned = _stages(spec.config)
    if last_checkpoint(folder / CHECKPOINTS) is not None:
        return (folder / NOTE).read_text(encoding="utf-8") if (folder / NOTE).is_file() else None
    (folder / NOTE).unlink(missing_ok=True)
    if spec.kind != "trained":
        return None
    if any(stage["objective"] == "sentence_graph" for stage in planned):  # some models pass over them
        return None
    alike = finished(store, spec.dataset, model=spec.model, seed=spec.seed)
    known = [run for run in alike if _has_first_stages(run, spec)]
    for run in sorted(known, key=lambda run: len(_stages(run.config)), reverse=True):
        weights = workspace.run_folder(run.key) / WEIGHTS
        trained_as = run.environment.get("training")
        if not is_whole(weights) or trained_as != execution.config.record(execution.device, 1):
            continue
        for epoch in run.epochs:
            on_epoch(epoch)
        write_text(folder / NOTE, run.key)
        state = _after(run.epochs, finished=len(_stages(run.config)) == len(planned))
        if state.finished:
            with replacing(folder / WEIGHTS) as temporary:
                shutil.copyfile(weights, temporary)
        save_first_checkpoint(folder / CHECKPOINTS, weights, {"position": asdict(state)})
        names = ", ".join(stage["name"] for stage in _stages(run.config))
        reporter.note(f"  {names}: not trained again, the weights are those of {run.key}")
        return run.key
    return None


def without_what_was_not_seen(costs: Mapping[str, Quantity], begun_by: str) -> dict[str, Quantity]:
    """The costs of a run that began with the stages of another one, less those that need a look at every stage."""
    reason = f"stages were trained by {begun_by}"
    unseen = {name: Quantity(None, reason, costs[name].unit) for name in _SEEN_WHILE_TRAINING if name in costs}
    return {**costs, **unseen}


def _has_first_stages(run: Run, spec: RunSpec) -> bool:
    """Whether a run's whole schedule is the planned one or its beginning, under the same conditions and code."""
    theirs, ours = _stages(run.config), _stages(spec.config)
    return (
        0 < len(theirs) <= len(ours)
        and theirs == ours[: len(theirs)]
        and "pretrained" not in run.config
        and _of_stages(run.config, run.signature) == _of_stages(spec.config, spec.signature)
        and run.code is not None
        and spec.code is not None
        and (run.code.model, run.code.revision) == (spec.code.model, spec.code.revision)
    )


def _stages(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The stages of a run's configuration; none where there is no schedule."""
    stages: list[dict[str, Any]] = config.get("preset", {}).get("schedule", {}).get("stages", [])
    return stages


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
