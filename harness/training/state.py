"""Where training stands: what a checkpoint holds beside weights, optimiser and random generators."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.config.schedule import LearningRate, Stage
from results.records import EpochRecord


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
    stale: int = 0
    loss_sum: float = 0.0
    epoch_seconds: float = 0.0
    epoch_images: int = 0
    seconds: float = 0.0
    images: int = 0
    waited: float = 0.0
    """Seconds in which no step was made since the next batch was not there yet."""
    finished: bool = False
    saves: int = 0
    reductions: int = 0
    """Of the learning rate, on plateaus of this stage."""
    level: float = -math.inf
    """What a plateau is measured from: the best CIDEr-D, as the stage's annealing sees it."""
    stuck: int = 0
    before: float = -math.inf
    """The validation CIDEr-D that the stage began from."""
    latest: float = -math.inf
    """The stage's last validation CIDEr-D."""
    parts: int = 1
    """How many passes a batch takes since memory ran out."""

    @property
    def begins_stage(self) -> bool:
        """Whether nothing of the stage has been done."""
        return self.epoch == 0 and self.batch == 0

    def next_stage(self, last: bool) -> TrainState:
        """The position after the stage; the end of training where it was the last one."""
        return TrainState(
            stage=self.stage if last else self.stage + 1,
            total_steps=self.total_steps,
            best=self.best if last else -math.inf,
            best_epoch=self.best_epoch,
            seconds=self.seconds,
            images=self.images,
            waited=self.waited,
            finished=last,
            saves=self.saves,
            before=self.best,
            parts=self.parts,
        )

    def validated(self, cider: float, annealed: LearningRate) -> bool:
        """Take in a validation's CIDEr-D; whether it is the stage's best so far.

        Where it is stuck, a rate `annealed` on plateaus is reduced, as torch's ReduceLROnPlateau does.
        """
        if annealed.annealing == "plateau":
            if annealed.plateau.rises(cider, self.level):
                self.level, self.stuck = cider, 0
            else:
                self.stuck += 1
            if self.stuck > annealed.plateau.patience:
                self.reductions, self.stuck = self.reductions + 1, 0
        self.latest, self.stale = cider, self.stale + 1
        if cider <= self.best:
            return False
        self.best, self.best_epoch, self.stale = cider, self.epoch, 0
        return True

    def stepped(self, loss: float, images: int, seconds: float) -> None:
        """One more batch is done."""
        self.batch, self.step, self.total_steps = self.batch + 1, self.step + 1, self.total_steps + 1
        self.loss_sum += loss
        self.images, self.epoch_images = self.images + images, self.epoch_images + images
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


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """What training came to: seconds and images over all stages (validation not counted), best validation CIDEr-D.

    `parts`: how many passes a batch took in the end, since memory ran out; 1 where it never did. `waited`: seconds
    beside `seconds` in which the next batch was not there yet.
    """

    seconds: float
    images: int
    steps: int
    best_cider: float
    parts: int = 1
    waited: float = 0.0
