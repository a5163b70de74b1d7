"""Whether a model had finished learning when its training ended, from its validation scores (`docs/statistics.md`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final, Literal

import numpy as np

RISE: Final = 0.01
"""What validation may rise over the last quarter by chance or for good, as a fraction: one point of CIDEr-D."""
LEAST: Final = 3
"""Validations below which a curve says nothing."""

State = Literal["still learning", "finished learning", "stopped early", "unknown"]


@dataclass(frozen=True, slots=True)
class Learning:
    """How the validations of the last stage ended.

    `rise` is the best score of their last quarter less the best before, `error` its standard error, both fractions and
    None where there are too few validations. `fell`: the last score is below the best by more than that error. `stage`
    is the last one's number, from 0, and `epochs` how many were planned for it, None where that is not known.
    """

    state: State
    validations: int
    rise: float | None = None
    error: float | None = None
    fell: bool = False
    stage: int = 0
    epochs: int | None = None


def learning(scores: Sequence[float], *, stopped_early: bool = False) -> Learning:
    """What a stage's validation scores say, in order; `stopped_early`: patience ended it before its last epoch.

    Still learning is what rose over the last quarter of its validations by more than `RISE` beyond the standard error
    of that rise, √2 times the deviation of one validation, which comes from the second differences of the last half
    (Gasser, Sroka and Jennen-Steinmetz, "Residual Variance and Residual Pattern in Nonlinear Regression", Biometrika
    1986: a straight trend does not count as noise). A learning rate that has decayed to nothing ends a rise too.
    """
    count = len(scores)
    if count < LEAST:
        return Learning("stopped early" if stopped_early else "unknown", count)
    quarter = ceil(count / 4)
    rise = max(scores[-quarter:]) - max(scores[:-quarter])
    last_half = scores[-max(LEAST, ceil(count / 2)) :]
    error = sqrt(2 * float(np.square(np.diff(last_half, 2)).mean()) / 6)
    fell = scores[-1] < max(scores) - error
    if stopped_early:
        return Learning("stopped early", count, rise, error, fell)
    return Learning("still learning" if rise - error > RISE else "finished learning", count, rise, error, fell)
