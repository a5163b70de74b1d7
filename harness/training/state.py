"""Where training stands: what a checkpoint holds beside weights, optimiser and random generators, and what is shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from harness.config.schedule import LearningRate, Schedule, Stage
from harness.utils.progress import describe_seconds
from results.records import EpochRecord
from results.statistics.learning import CHANCE


@dataclass
class TrainState:
    """Where training stands, and what the current epoch has gathered so far; part of every checkpoint."""

    stage: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    total_steps: int = 0
    best: float = -math.inf
    best_epoch: int = 0
    bad_epochs: int = 0
    """Validations since the best one of this stage, which are counted once it is above the level of chance."""
    loss_sum: float = 0.0
    epoch_seconds: float = 0.0
    epoch_images: int = 0
    seconds: float = 0.0
    images: int = 0
    data_wait_seconds: float = 0.0
    """In which no step was made since the next batch was not there yet."""
    finished: bool = False
    saves: int = 0
    reductions: int = 0
    """Of the learning rate, on plateaus of this stage."""
    level: float = -math.inf
    """What a plateau is measured from: the best CIDEr-D, as the stage's annealing sees it."""
    plateau_epochs: int = 0
    """Validations since the level rose, or the learning rate was reduced."""
    stage_start_score: float = -math.inf
    """The validation CIDEr-D that the stage began from."""
    latest: float = -math.inf
    """The stage's last validation CIDEr-D."""
    micro_batches: int = 1
    """How many passes a batch takes since memory ran out."""

    @property
    def begins_stage(self) -> bool:
        """Whether nothing of the stage has been done."""
        return self.epoch == 0 and self.batch == 0

    def next_stage(self, last: bool) -> TrainState:
        """The state after the stage; the end of training where it was the last one."""
        kept = ("total_steps", "best_epoch", "seconds", "images", "data_wait_seconds", "saves", "micro_batches")
        return TrainState(
            stage=self.stage if last else self.stage + 1,
            best=self.best if last else -math.inf,
            finished=last,
            stage_start_score=self.best,
            **{name: getattr(self, name) for name in kept},
        )

    def validated(self, cider: float, annealed: LearningRate) -> bool:
        """Take in a validation's CIDEr-D; whether it is the stage's best so far.

        Where it no longer rises, a rate `annealed` on plateaus is reduced, as torch's ReduceLROnPlateau does.
        """
        if annealed.annealing == "plateau":
            if annealed.plateau.rises(cider, self.level):
                self.level, self.plateau_epochs = cider, 0
            else:
                self.plateau_epochs += 1
            if self.plateau_epochs > annealed.plateau.patience:
                self.reductions, self.plateau_epochs = self.reductions + 1, 0
        # Patience is for what has learnt something: slow learners stay at the level of chance for a while.
        self.latest, self.bad_epochs = cider, self.bad_epochs + 1 if self.best > CHANCE else 0
        if cider <= self.best:
            return False
        self.best, self.best_epoch, self.bad_epochs = cider, self.epoch, 0
        return True

    def stepped(self, images: int, seconds: float) -> None:
        """One more batch is done; its loss is added when it is read."""
        self.batch, self.step, self.total_steps = self.batch + 1, self.step + 1, self.total_steps + 1
        self.images, self.epoch_images = self.images + images, self.epoch_images + images
        self.took(seconds)

    def took(self, seconds: float) -> None:
        """So long was spent on steps that are done."""
        self.seconds, self.epoch_seconds = self.seconds + seconds, self.epoch_seconds + seconds

    def next_epoch(self) -> None:
        """All batches of the epoch are done."""
        self.epoch, self.batch = self.epoch + 1, 0
        self.loss_sum, self.epoch_seconds, self.epoch_images = 0.0, 0.0, 0

    def record(self, stage: Stage, rate: float, cider: float | None) -> EpochRecord:
        """The epoch whose last batch was done, as the store keeps it."""
        return EpochRecord(
            stage=self.stage,
            stage_name=stage.name,
            objective=stage.objective,
            epoch=self.epoch,
            step=self.total_steps,
            learning_rate=rate,
            train_loss=self.loss_sum / self.batch,
            val_cider=cider,
            seconds=self.epoch_seconds,
            images_per_second=self.epoch_images / max(self.epoch_seconds, 1e-9),
        )


def describe_progress(state: TrainState, stage: Stage, batches: int) -> str:
    """The epoch's mean loss, the last validation, the speed, and how long the stage still takes without validations.

    Args:
        state: after at least one batch of the epoch.
    """
    cider = "" if state.latest == -math.inf or not stage.gives_ciders else f", CIDEr-D {100 * state.latest:.1f}"
    seconds = max(state.epoch_seconds, 1e-9)
    left = (stage.epochs - state.epoch) * batches - state.batch
    time_left = describe_seconds(seconds / state.batch * left)
    speed = f"{state.epoch_images / seconds:.0f} images/s"
    return f"loss {state.loss_sum / state.batch:.3f}{cider}, {speed}, stage: {time_left} left"


def standing(state: TrainState, schedule: Schedule, batches: int) -> dict[str, Any]:
    """How far training is, for `Reporter.watch`; a stage that stops early ends before its share."""
    stage, epochs = schedule.stages[state.stage], [stage.epochs for stage in schedule.stages]
    passed = sum(epochs[: state.stage]) + state.epoch + state.batch / batches
    best = None if state.best == -math.inf or not stage.gives_ciders else state.best
    done = passed / sum(epochs)
    return {"stage": stage.name, "epoch": state.epoch + 1, "epochs": stage.epochs, "best": best, "done": done}


def warn_if_worse(state: TrainState, stage: Stage, cider: float) -> str | None:
    """A warning where self-critical training scores below where the stage began; None where it does not."""
    start = state.stage_start_score
    if stage.objective == "cross_entropy" or cider >= start:
        return None
    drop = f"  validation CIDEr-D {100 * cider:.1f} is {100 * (start - cider):.1f} below where {stage.name} began"
    if state.epoch + 1 < stage.epochs:
        return f"{drop}; the likeliest captions follow the sampled ones late, so the first epochs may fall"
    if state.best >= start:
        return f"{drop}; the best epoch, which is kept, is above"
    return f"{drop}, and so is its best epoch: give the stage more epochs, or another learning rate"
