"""One metric's change between two sides of a comparison, and the smallest change that its test would find."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from results.statistics.architecture import OVER_SEEDS
from results.statistics.estimate import Estimate
from results.statistics.power import detectable_at_best, detectable_from
from results.statistics.significance import PairedScores

FEWEST_IMAGES: Final = 6  # with fewer no sign-flip test reaches p < 0.05


@dataclass(frozen=True, slots=True)
class MetricChange:
    """One metric of a model on a split: means over seeds as fractions, and the change, after less before.

    The `estimate` is corrected for all changes that were tested together; its reason says why a change could not be
    tested. `smallest` is the smallest change that these images and seeds show: the test finds it four times in five.
    `identical`: every image scores the same with every seed, so that there is nothing to test, and the interval is 0.
    """

    model: str
    split: str
    metric: str
    before: float | None
    after: float | None
    estimate: Estimate
    over: str | None = None
    smallest: float | None = None
    identical: bool = False

    @property
    def numbers(self) -> dict[str, float | bool | str | None]:
        """The metric, both sides, and the estimate with what it could have shown, as JSON has them: fractions."""
        return {
            "metric": self.metric,
            "before": self.before,
            "after": self.after,
            "change": self.estimate.value,
            "low": self.estimate.low,
            "high": self.estimate.high,
            "p": self.estimate.p,
            "smallest": self.smallest,
            "identical": self.identical,
            "reason": self.estimate.reason or None,
        }

    @property
    def is_worse(self) -> bool:
        return self.estimate.is_significant and self.estimate.value is not None and self.estimate.value < 0

    @property
    def is_better(self) -> bool:
        return self.estimate.is_significant and self.estimate.value is not None and self.estimate.value > 0


def with_smallest_change(change: MetricChange, scores: PairedScores | None, tests: int) -> MetricChange:
    """The change with what these scores could have shown, and whether they are the same."""
    if scores is None:
        return change
    change = replace(change, smallest=_smallest_change(scores, change.over, tests))
    if np.array_equal(scores.before, scores.after):
        certain = replace(change.estimate, low=0.0, high=0.0, p=1.0, reason="")
        return replace(change, estimate=certain, identical=True)
    return change


def _smallest_change(scores: PairedScores, over: str | None, tests: int) -> float | None:
    """The smallest change that a test of such scores finds; None where they are of too few images or other seeds."""
    before = scores.before
    after = scores.after
    if before.shape[1] < FEWEST_IMAGES:
        return None
    if over == OVER_SEEDS:
        return detectable_from(before, after, tests) if before.shape == after.shape else None
    deviation = float((after.mean(axis=0) - before.mean(axis=0)).std(ddof=1))
    return detectable_at_best(before.shape[1], deviation, tests) if deviation > 0 else None
