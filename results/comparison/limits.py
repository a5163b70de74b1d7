"""Limits of how far scores may fall from one side of a comparison to the other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from results.comparison.changes import MetricChange
from results.comparison.comparison import Comparison, Pair, ScoreChange

_ROUNDING: Final = 1e-9  # points, by which the difference of two fractions may be wrong


@dataclass(frozen=True, slots=True)
class LimitedChange:
    """A metric's change, and how many points it may fall; None where nobody set a limit."""

    change: MetricChange
    limit: float | None = None

    @property
    def is_exceeded(self) -> bool:
        """Whether it fell further than its limit, whatever its interval, or was not measured."""
        if self.limit is None:
            return False
        fall = self.change.estimate.value
        return fall is None or -100 * fall > self.limit + _ROUNDING

    @property
    def is_unseen(self) -> bool:
        """Whether the images are too few to tell a fall by this limit from chance, and none was found."""
        smallest = self.change.smallest
        if not self.limit or smallest is None or self.change.is_worse:
            return False
        return 100 * smallest > self.limit


def exceeded_limits(comparison: Comparison, limits: Mapping[str, float]) -> list[str]:
    """A sentence for each score that falls further than its metric's limit, in points, or cannot be compared."""
    sentences = []
    for pair in comparison.pairs:
        for metric, limit in limits.items():
            scores = [score for score in pair.scores if score.metric == metric]
            if not scores:
                sentences.append(f"{_name(pair)}: {metric} was not measured")
            for score in scores:
                if sentence := _exceeded(score, limit):
                    sentences.append(f"{_name(pair)}: {metric} on {score.split} {sentence}")
    sentences += [f"{run} is only in A" for run in comparison.only_before]
    compared_models = tuple(f"{pair.after.model} seed " for pair in comparison.pairs)
    for run in comparison.only_after:
        if run.startswith(compared_models):
            sentences.append(f"B also has {run}, which was not compared: compare two runs by their keys")
    return sentences


def _exceeded(score: ScoreChange, limit: float) -> str:
    """What is wrong with a score's change; empty where it is within the limit."""
    if score.before is None or score.after is None:
        return f"was not measured: {score.reason}"
    if score.reason is not None:
        return f"cannot be compared: {score.reason}"
    fall = 100 * (score.before - score.after)
    if fall > limit + _ROUNDING:
        return f"fell by {fall:.2f} points, more than {limit:g}"
    return ""


def _name(pair: Pair) -> str:
    name = pair.before.model
    if pair.after.model != name:
        name = f"{name} → {pair.after.model}"
    return f"{name} ({pair.separating_fields})" if pair.separating_fields else name
