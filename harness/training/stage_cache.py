"""Finished stages of training, cached by everything that training up to their ends depends on.

A self-critical run begins with the cross-entropy stage of the same seed, whichever run trained it; a run that differs
only in its decoding trains nothing. A stage depends only on the weights it begins with and on fresh random numbers, so
that on the same machine its results are bit for bit those of a training from the start.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from harness.config.schedule import Stage
from harness.training.checkpoint import WEIGHTS, is_whole, last_checkpoint, save_first_checkpoint
from harness.training.trainer import CHECKPOINTS, TrainState
from harness.utils.atomic import replacing, write_text
from harness.utils.hashing import digest
from harness.utils.progress import Reporter
from results.records import EpochRecord

STATE: Final = "stage.json"
BEGINNING: Final = "beginning.json"
"""In the folder of a run: which run trained its first stages, and on what machine."""


@dataclass(frozen=True)
class KeptStages:
    """Some first stages of a schedule, as a run trained them.

    Attributes:
        count: how many stages.
        state: of training at their end.
        epochs: the record of each epoch; stages are counted within the schedule that trained them.
        made_by: the key of the run.
        machine: the processor or GPU that they were trained on.
    """

    count: int
    weights: Path
    state: TrainState
    epochs: tuple[EpochRecord, ...]
    made_by: str
    machine: str


@dataclass(frozen=True)
class StageCache:
    """The finished stages of a workspace: one training may begin with them, and adds its own.

    Attributes:
        folder: of the workspace.
        reads: everything that training depends on except the stages: arguments, data, seed, precision, devices, code.
        run: the key of the run that trains.
        machine: the processor or GPU that it trains on.
        recorded: returns the stored epochs of the run.
        may_reuse: whether the training may begin with cached stages.
    """

    folder: Path
    reads: Mapping[str, Any]
    run: str
    machine: str
    recorded: Callable[[], Sequence[EpochRecord]]
    may_reuse: bool = True

    def longest(self, stages: Sequence[Stage]) -> KeptStages | None:
        """The longest cached prefix of a schedule's stages; None if there is none that can be read."""
        for count in range(len(stages), 0, -1):
            folder = self.folder / self._key(stages[:count])
            if (folder / STATE).is_file() and is_whole(folder / WEIGHTS):
                with suppress(KeyError, TypeError, ValueError):  # of another release
                    return _read(folder, count)
        return None

    def begin(
        self, stages: Sequence[Stage], run_folder: Path, on_epoch: Callable[[EpochRecord], None], reporter: Reporter
    ) -> None:
        """Start a training that has no checkpoint from the longest kept prefix of its stages.

        The epochs of the prefix are recorded for this run too, with the time that they took; `BEGINNING` in the run's
        folder names the run that trained them.
        """
        if not self.may_reuse or last_checkpoint(run_folder / CHECKPOINTS) is not None:
            return
        (run_folder / BEGINNING).unlink(missing_ok=True)
        beginning = self.longest(stages)
        if beginning is None:
            return
        for epoch in beginning.epochs:
            on_epoch(epoch)
        run_folder.mkdir(parents=True, exist_ok=True)
        made_by = {"made_by": beginning.made_by, "machine": beginning.machine}
        write_text(run_folder / BEGINNING, json.dumps(made_by))
        finished = beginning.count == len(stages)
        if finished:
            with replacing(run_folder / WEIGHTS) as temporary:
                shutil.copyfile(beginning.weights, temporary)
        state = replace(beginning.state.next_stage(last=finished), saves=1)
        save_first_checkpoint(run_folder / CHECKPOINTS, beginning.weights, {"position": asdict(state)})
        names = ", ".join(stage.name for stage in stages[: beginning.count])
        reporter.log(f"  {names}: not trained again, the weights are those of {beginning.made_by}")

    def keep(self, stages: Sequence[Stage], weights: Path, state: TrainState, epochs: Sequence[EpochRecord]) -> None:
        """Cache the best weights of the last of these stages, as a hard link if the file system supports it."""
        folder = self.folder / self._key(stages)
        if self.may_reuse and (folder / STATE).is_file() and is_whole(folder / WEIGHTS):
            return
        shutil.rmtree(folder, ignore_errors=True)  # damaged, or trained anew
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=".", dir=self.folder))
        try:
            try:
                os.link(weights, unfinished / WEIGHTS)
            except OSError:
                shutil.copyfile(weights, unfinished / WEIGHTS)
            content = {
                "made_by": self.run,
                "machine": self.machine,
                "state": asdict(state),
                "epochs": [asdict(epoch) for epoch in epochs],
            }
            write_text(unfinished / STATE, json.dumps(content))
            unfinished.rename(folder)
        except OSError:
            if not folder.exists():  # else another run was faster
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _key(self, stages: Sequence[Stage]) -> str:
        return digest({**self.reads, "stages": [stage.model_dump(mode="json") for stage in stages]}, 20)


def _read(folder: Path, count: int) -> KeptStages:
    content = json.loads((folder / STATE).read_text(encoding="utf-8"))
    return KeptStages(
        count=count,
        weights=folder / WEIGHTS,
        state=TrainState(**content["state"]),
        epochs=tuple(EpochRecord(**epoch) for epoch in content["epochs"]),
        made_by=content["made_by"],
        machine=content["machine"],
    )
