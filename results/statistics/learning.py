"""Whether a model had finished learning when its training ended, from its validation scores (`docs/statistics.md`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Final, Literal

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
    is the last one's number, from 0, and `epochs` how many were planned for it, None where that is not known;
    `annealing` has those settings of its learning rate that count epochs, too.
    """

    state: State
    validations: int
    rise: float | None = None
    error: float | None = None
    fell: bool = False
    stage: int = 0
    epochs: int | None = None
    annealing: Mapping[str, float] = field(default_factory=dict)


def learning(scores: Sequence[float], *, stopped_early: bool = False) -> Learning:
    """What a stage's validation scores say, in order; `stopped_early`: patience ended it before its last epoch.

    Still learning is what rose over the last quarter of its validations by more than `RISE` beyond the standard error
    of that rise: √2 times the deviation of one validation from the curve that fits best and never falls (isotonic
    regression: Barlow, Bartholomew, Bremner and Brunk, "Statistical Inference under Order Restrictions", 1972). A curve
    that only rises shows no noise, so that few validations rather count as learning. A learning rate that has decayed
    to nothing ends a rise too.
    """
    count = len(scores)
    if count < LEAST:
        return Learning("stopped early" if stopped_early else "unknown", count)
    quarter = ceil(count / 4)
    rise = max(scores[-quarter:]) - max(scores[:-quarter])
    error = sqrt(2) * _deviation(scores)
    fell = scores[-1] < max(scores) - error
    if stopped_early:
        return Learning("stopped early", count, rise, error, fell)
    return Learning("still learning" if rise - error > RISE else "finished learning", count, rise, error, fell)


@dataclass(frozen=True, slots=True)
class MeanLearning:
    """How the trainings of a row ended on average: `rise` over their last quarter and its error, both fractions."""

    state: State
    rise: float | None = None
    error: float | None = None


def mean_learning(seeds: Collection[Learning]) -> MeanLearning:
    """Whether an architecture had finished learning, from trainings with several seeds.

    Still learning is what rose by more than `RISE` on average beyond the standard error of that mean. One seed of many
    may rise by chance, and of more seeds more do; their mean comes nearer to the architecture's own rise the more there
    are. Where patience ended a training, its rise counts as none. One that cannot say leaves it unknown.
    """
    if not seeds or any(each.state == "unknown" for each in seeds):
        return MeanLearning("unknown")
    if all(each.state == "stopped early" for each in seeds):
        return MeanLearning("stopped early")
    rises = [0.0 if each.state == "stopped early" else each.rise or 0.0 for each in seeds]
    rise = sum(rises) / len(rises)
    error = sqrt(sum((each.error or 0.0) ** 2 for each in seeds)) / len(rises)
    return MeanLearning("still learning" if rise - error > RISE else "finished learning", rise, error)


def _deviation(scores: Sequence[float]) -> float:
    """Of one score from the curve that fits best and never falls, which has as many parameters as it has levels."""
    fitted = _never_falling(scores)
    squares = sum((score - level) ** 2 for score, level in zip(scores, fitted, strict=True))
    return sqrt(squares / max(len(scores) - len(set(fitted)), 1))


def _never_falling(scores: Sequence[float]) -> list[float]:
    """The isotonic regression of the scores, by pooling adjacent violators.

    SciPy's is not used since importing `scipy.optimize` takes longer than the whole of a terminal's leaderboard.
    """
    blocks: list[tuple[float, int]] = []
    for score in scores:
        mean, count = score, 1
        while blocks and blocks[-1][0] >= mean:
            before, many = blocks.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        blocks.append((mean, count))
    return [mean for mean, count in blocks for _ in range(count)]
