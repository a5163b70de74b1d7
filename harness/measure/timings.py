"""Statistics of repeated timings: median, quartiles, margin of another run's median, and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

SPREAD = 0.10
"""Quartiles of the same work further apart than this fraction of the median are noisy."""
DRIFT = 0.05
"""Medians of the first and the second half that differ by more than this fraction of the median are noisy."""
MIN_RUNS = 5
"""Minimum number of runs for a margin."""
_PLACEMENT = 0.03
"""Relative difference between processes, due to memory placement, which cannot be seen within one run."""
_NORMAL_95 = 1.96
_DRAWN_RUNS = 2000

Seconds = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of the same work, or of several pieces of work round after round, in the order taken.

    Differences between pieces are not noise: a caption of twelve words takes longer than one of eight. Differences
    of the same piece between rounds are.

    Attributes:
        seconds: at least two; for several pieces, at least two whole rounds.
        pieces: their number; each is timed once a round.
    """

    seconds: tuple[float, ...]
    pieces: int = 1

    @property
    def median(self) -> float:
        """The median of all timings."""
        return float(np.median(self.seconds))

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile of all timings."""
        low, high = np.percentile(self.seconds, (25, 75))
        return float(low), float(high)

    @property
    def margin(self) -> float | None:
        """Bound on the difference to the median of another run over the same pieces, which holds in 9 of 10 tries.

        From the distribution-free 95 % interval of the median: by order statistics for one piece, by resampling runs
        for several. It is widened for autocorrelated timings, and multiplied by the square root of two since the other
        median varies too. At least the difference of the two halves, and 3 % for differences between processes. None
        for fewer than `MIN_RUNS`.
        """
        if len(self.seconds) < MIN_RUNS:
            return None
        reach = self._reach_of_one() if self.pieces == 1 else self._reach_of_several()
        return max(math.sqrt(2) * reach, self._drift, _PLACEMENT * self.median)

    def noise(self) -> tuple[str, ...]:
        """Why the timings are unreliable, one sentence each; empty if they are steady."""
        found = []
        low, high = np.percentile(self._noise, (25, 75))
        if (spread := high - low) > SPREAD:
            found.append(
                f"the quartiles of the same work lie {100 * spread:.0f} % of the median apart, more than "
                f"{100 * SPREAD:.0f} %"
            )
        if (drift := self._drift / self.median) > DRIFT:
            found.append(
                f"the medians of the two halves differ by {100 * drift:.0f} % of the median, more than "
                f"{100 * DRIFT:.0f} %"
            )
        return tuple(found)

    def _reach_of_one(self) -> float:
        """Distance of the ends of the median's interval, by order statistics."""
        count, likeness = len(self.seconds), _likeness(np.array(self.seconds))
        reach = _NORMAL_95 / 2 * math.sqrt(count * (1 + likeness) / (1 - likeness))
        ordered, median = sorted(self.seconds), self.median
        low = ordered[max(math.floor(count / 2 - reach) - 1, 0)]
        high = ordered[min(math.ceil(count / 2 + reach), count - 1)]
        return max(median - low, high - median)

    def _reach_of_several(self) -> float:
        """The same from resampled runs: the time of each piece, times the noise of a random timing."""
        noise, rounds = self._noise, len(self._rounds)
        drawn = np.random.default_rng(0).choice(noise, (_DRAWN_RUNS, len(noise))) * np.tile(self._levels, rounds)
        reach = float(np.quantile(np.abs(np.median(drawn, axis=1) - self.median), 0.95))
        likeness = _likeness(noise)
        return reach * math.sqrt((1 + likeness) / (1 - likeness))

    @property
    def _rounds(self) -> Seconds:
        """The timings by round and piece."""
        return np.array(self.seconds).reshape(-1, self.pieces)

    @property
    def _levels(self) -> Seconds:
        """Median of each piece."""
        return np.median(self._rounds, axis=0)

    @property
    def _noise(self) -> Seconds:
        """Each timing as a multiple of its piece's median, in the order taken.

        Each timing contributes to its piece's median, so the deviations are scaled up for few rounds.
        """
        rounds = len(self._rounds)
        away = (self._rounds / self._levels - 1).ravel()
        return 1 + away * (math.sqrt(rounds / (rounds - 1)) if self.pieces > 1 else 1.0)

    @property
    def _drift(self) -> float:
        rounds = self._rounds
        half = len(rounds) // 2
        return float(abs(np.median(rounds[half:]) - np.median(rounds[:half])))


def _likeness(noise: Seconds) -> float:
    """Correlation of the ranks of neighbours, in [0, 0.95]; of ranks, which are robust to outliers."""
    ranks = np.argsort(np.argsort(noise)) - (len(noise) - 1) / 2
    return min(max(float(ranks[:-1] @ ranks[1:] / (ranks @ ranks)), 0.0), 0.95)
