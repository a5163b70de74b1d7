"""A training schedule: typed stages, read from `schedules/*.yaml`, unknown keys rejected."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """Frozen settings that reject keys they do not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Optimiser(Strict):
    """The optimiser of a stage."""

    name: Literal["adam", "adamw"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = Field(1e-9, gt=0)
    weight_decay: float = Field(0.0, ge=0)


class LearningRate(Strict):
    """Linear warm-up over `warmup_steps`, then annealing.

    `step` multiplies by `factor` every `every_epochs`; `cosine` falls to `floor` times the peak at the last step.
    """

    peak: float = Field(gt=0)
    warmup_steps: int = Field(0, ge=0)
    annealing: Literal["constant", "step", "cosine"] = "constant"
    factor: float = Field(0.8, gt=0, le=1)
    every_epochs: float = Field(1.0, gt=0)
    floor: float = Field(0.0, ge=0, le=1)

    def at(self, step: int, steps_per_epoch: int, total_steps: int) -> float:
        """The rate of optimiser step `step` (from 0) of a stage of `total_steps`."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        if self.annealing == "step":
            return self.peak * self.factor ** math.floor(step / (self.every_epochs * steps_per_epoch))
        if self.annealing == "cosine":
            progress = (step - self.warmup_steps) / max(total_steps - self.warmup_steps, 1)
            return self.peak * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))
        return self.peak


class Stage(Strict):
    """One stage of training. Batches count images; each brings `captions_per_image` captions, encoded once."""

    name: str
    objective: Literal["cross_entropy"] = "cross_entropy"
    epochs: int = Field(gt=0)
    batch_size: int = Field(gt=0)
    captions_per_image: int = Field(5, gt=0)
    optimiser: Optimiser = Optimiser()
    learning_rate: LearningRate
    dropout: float = Field(0.1, ge=0, lt=1)
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    clip_norm: float | None = Field(None, gt=0)
    validate_every: int = Field(1, gt=0, description="epochs between validations by decoding")
    validation_beam_size: int = Field(1, gt=0)
    patience: int | None = Field(None, gt=0, description="validations without a better CIDEr-D before an early stop")


class Schedule(Strict):
    """Stages in order; each starts from the best checkpoint of the one before."""

    name: str
    summary: str
    stages: tuple[Stage, ...] = Field(min_length=1)
