"""A paper's own recipe: what the paper track does otherwise than the controlled track, each thing by its name."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from harness.config.schedule import Schedule, Strict


class Published(Strict):
    """What the paper reports for this recipe; scores as it prints them."""

    source: str
    split: str
    scores: dict[str, float]


class Recipe(Strict):
    """How a paper prepared captions and pictures, for the models that it is about.

    Args:
        models: names or shell patterns.
        captions: how captions become words (`harness.data.preparation.PREPARATIONS`).
        non_rgb: what becomes of pictures that are not stored as RGB.
        published: the target.
    """

    models: tuple[str, ...] = Field(min_length=1)
    captions: Literal["words", "expansionnet"] = "words"
    non_rgb: Literal["convert", "black"] = "convert"
    published: Published | None = None

    def covers(self, model: str) -> bool:
        """Whether the recipe is one for this model."""
        return any(fnmatchcase(model, pattern) for pattern in self.models)

    def settings(self) -> Iterator[str]:
        """What is unusual about the data."""
        if self.captions != "words":
            yield f"captions={self.captions}"
        if self.non_rgb != "convert":
            yield f"non-rgb={self.non_rgb}"


def unusual_training(schedule: Schedule) -> Iterator[str]:
    """What a schedule does as released code does, against better knowledge; each once."""
    stages = schedule.stages
    if any(stage.optimiser.name == "radam_liu" for stage in stages):
        yield "optimiser=radam_liu"
    for warmup in sorted({stage.learning_rate.warmup for stage in stages} - {"linear"}):
        yield f"warmup={warmup}"
    if any(stage.learning_rate.plateau.negated for stage in stages):
        yield "plateau=negated"
    if any(stage.accumulation.gradients == "summed" for stage in stages):
        yield "gradients=summed"
