"""What repeated timings say: median, quartiles, how far another run's median may lie, and whether to believe them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

SPREAD = 0.10
"""Quartiles further apart than this fraction of the median are noisy."""
DRIFT = 0.05
"""Medians of the first and the second half that differ by more than this fraction of the median are noisy."""
LEAST_RUNS = 5
"""Fewer runs say nothing of how far another run's median may lie."""
_PLACEMENT = 0.03
"""What one process differs from the next by, since it lies elsewhere in memory, as a fraction; no run sees that."""
_NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of the same work, in the order in which they were taken; two at least."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Half of the runs took less."""
        return float(np.median(self.seconds))

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the runs took less than the first, a quarter more than the second."""
        low, high = np.percentile(self.seconds, (25, 75))
        return float(low), float(high)

    @property
    def margin(self) -> float | None:
        """How far the median of another run of as many timings lies from this one, at most, in 9 of 10 tries.

        From the 95 % interval of the median by order statistics, which asks nothing of the timings' distribution: the
        ranks beside the median, further out where neighbouring timings resemble each other, times the square root of
        two since the other median varies too. At least what the halves differ by, and 3 % for the luck of a process.
        None for fewer than `LEAST_RUNS`.
        """
        count = len(self.seconds)
        if count < LEAST_RUNS:
            return None
        likeness = _likeness(self.seconds)
        reach = _NORMAL_95 / 2 * math.sqrt(count * (1 + likeness) / (1 - likeness))
        ordered, median = sorted(self.seconds), self.median
        low = ordered[max(math.floor(count / 2 - reach) - 1, 0)]
        high = ordered[min(math.ceil(count / 2 + reach), count - 1)]
        return max(math.sqrt(2) * max(median - low, high - median), self._drift, _PLACEMENT * median)

    @property
    def _drift(self) -> float:
        half = len(self.seconds) // 2
        return float(abs(np.median(self.seconds[half:]) - np.median(self.seconds[:half])))

    def noise(self) -> tuple[str, ...]:
        """Why the timings are not to be believed, one sentence each; empty where they are steady."""
        found = []
        low, high = self.quartiles
        if (spread := (high - low) / self.median) > SPREAD:
            found.append(f"the quartiles lie {100 * spread:.0f} % of the median apart, more than {100 * SPREAD:.0f} %")
        if (drift := self._drift / self.median) > DRIFT:
            found.append(
                f"the medians of the two halves differ by {100 * drift:.0f} % of the median, more than "
                f"{100 * DRIFT:.0f} %"
            )
        return tuple(found)


def _likeness(seconds: tuple[float, ...]) -> float:
    """Correlation of the ranks of neighbours, in [0, 0.95]; ranks, so that one outlier says nothing."""
    ranks = np.argsort(np.argsort(seconds)) - (len(seconds) - 1) / 2
    return min(max(float(ranks[:-1] @ ranks[1:] / (ranks @ ranks)), 0.0), 0.95)
