"""A training schedule: typed stages, read from `schedules/*.yaml`, unknown keys rejected."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator


class Strict(BaseModel):
    """Frozen settings that reject keys they do not know.

    `later` names settings that came after results were stored: a dump leaves them out while they have their default, so
    that the identity of what does not use them stays what it was.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    later: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = dump(self)
        fields = type(self).model_fields
        unused = {name for name in self.later if getattr(self, name) == fields[name].get_default()}
        return {name: value for name, value in content.items() if name not in unused}


class Optimiser(Strict):
    """The optimiser of a stage.

    `radam` is torch's; `radam_liu` is the first authors' form, which does not move during its first steps (see
    `harness.training.optimisers`) and exists for the paper track.
    """

    name: Literal["adam", "adamw", "radam", "radam_liu"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = Field(1e-9, gt=0)
    weight_decay: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name == "radam_liu" and self.weight_decay:
            raise ValueError("radam_liu has no weight decay")
        return self


class LearningRate(Strict):
    """A warm-up over `warmup_steps`, then annealing, never below `minimum` after the warm-up.

    Warm-ups: `linear` rises by peak / warmup_steps from the first step on; `linear-from-zero` is one step behind it;
    `hyperbolic` is peak / (steps left), which stays near zero until its very end (ExpansionNet's released code; the
    paper track's). Annealings: `step` multiplies by `factor` every `every_epochs`, counted from the stage's beginning;
    `cosine` falls to `floor` times the peak at the last step.
    """

    later: ClassVar[frozenset[str]] = frozenset({"warmup", "minimum"})
    peak: float = Field(gt=0)
    warmup_steps: int = Field(0, ge=0)
    warmup: Literal["linear", "linear-from-zero", "hyperbolic"] = "linear"
    annealing: Literal["constant", "step", "cosine"] = "constant"
    factor: float = Field(0.8, gt=0, le=1)
    every_epochs: float = Field(1.0, gt=0)
    floor: float = Field(0.0, ge=0, le=1)
    minimum: float = Field(0.0, ge=0)

    def at(self, step: int, steps_per_epoch: int, total_steps: int) -> float:
        """The rate of step `step` (from 0) of a stage of `total_steps`."""
        if step < self.warmup_steps:
            return self._warming_up(step, steps_per_epoch)
        rate = self.peak
        if self.annealing == "step":
            rate *= self._factor(step, steps_per_epoch)
        if self.annealing == "cosine":
            progress = (step - self.warmup_steps) / max(total_steps - self.warmup_steps, 1)
            rate *= self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
        return max(rate, self.minimum)

    def _warming_up(self, step: int, steps_per_epoch: int) -> float:
        if self.warmup == "linear":
            return self.peak * (step + 1) / self.warmup_steps
        if self.warmup == "linear-from-zero":
            return self.peak * step / self.warmup_steps
        annealed = self._factor(step, steps_per_epoch) if self.annealing == "step" else 1.0
        return self.peak / (self.warmup_steps - step) * annealed

    def _factor(self, step: int, steps_per_epoch: int) -> float:
        return float(self.factor ** math.floor(step / (self.every_epochs * steps_per_epoch)))


class Accumulation(Strict):
    """How gradients of several backward passes make one step of the optimiser.

    `mean`: a batch is worked through in `parts` parts, whose gradients are averaged as the loss would be: less memory,
    the same step. `summed` is ExpansionNet's released code, for the paper track: a batch is itself one part; gradients
    are added, undivided, until the number of the batch, from 0, is a multiple of `parts`. So the first batch of a stage
    makes a step alone, and learning rates count batches.
    """

    parts: int = Field(1, gt=0)
    gradients: Literal["mean", "summed"] = "mean"


class SelfCritical(Strict):
    """Self-critical sequence training (Rennie et al. 2017) with CIDEr-D, the end token a word of its own, as reward.

    `baseline`: `others` is the mean reward of the image's other samples (Luo 2020), `greedy` that of the greedy
    caption. `average`: the loss is a mean over `captions` (of their summed log-probabilities) or over all `tokens`.
    """

    samples: int = Field(5, gt=1, description="captions sampled for an image")
    max_len: int = Field(20, gt=0, description="most sampled tokens, the end token included")
    baseline: Literal["others", "greedy"] = "others"
    average: Literal["captions", "tokens"] = "captions"


class Stage(Strict):
    """One stage of training. Batches count images; each brings `captions_per_image` captions, encoded once.

    With `batch_of: captions`, a batch counts captions, an image is encoded once for each of them, and an epoch sees
    every caption. `drop_last` leaves a smaller last batch of an epoch out. `backbone: trained` needs a model that has
    one, on pixels.
    """

    later: ClassVar[frozenset[str]] = frozenset({"accumulation", "backbone", "batch_of", "drop_last", "self_critical"})
    name: str
    objective: Literal["cross_entropy", "self_critical"] = "cross_entropy"
    epochs: int = Field(gt=0)
    batch_size: int = Field(gt=0)
    batch_of: Literal["images", "captions"] = "images"
    drop_last: bool = False
    captions_per_image: int = Field(5, gt=0)
    backbone: Literal["frozen", "trained"] = "frozen"
    optimiser: Optimiser = Optimiser()
    learning_rate: LearningRate
    accumulation: Accumulation = Accumulation()
    self_critical: SelfCritical = SelfCritical()
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
