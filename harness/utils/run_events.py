"""What a worker says of its run while it goes on, for tables that are drawn anew; all of it picklable."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainingStands:
    """How far the training of a worker's run is.

    Attributes:
        epoch: from 1; of `epochs` of the stage, which may stop early.
        best: validation CIDEr-D of the stage, a fraction; None before the first validation.
        done: share of the epochs of all stages.
    """

    stage: str
    epoch: int
    epochs: int
    best: float | None
    done: float


@dataclass(frozen=True, slots=True)
class Validated:
    """The validation CIDEr-D of an epoch, a fraction."""

    score: float


@dataclass(frozen=True, slots=True)
class EvaluationBegins:
    """The run is trained, or needs no training: its captions are made and scored."""


RunEvent = TrainingStands | Validated | EvaluationBegins
