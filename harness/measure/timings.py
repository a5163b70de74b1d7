"""What repeated timings say: median, quartiles, how far another run's median may lie, and whether to believe them."""

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
"""Fewer runs say nothing of how far another run's median may lie."""
_PLACEMENT = 0.03
"""What one process differs from the next by, since it lies elsewhere in memory, as a fraction; no run sees that."""
_NORMAL_95 = 1.96
_DRAWN_RUNS = 2000

Seconds = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of the same work, or of several pieces of work round after round, in the order in which they were taken.

    What pieces differ by is no noise: a caption of twelve words takes longer than one of eight. What the same piece
    differs by from round to round is.

    Attributes:
        seconds: two at least; of several pieces, two whole rounds at least.
        pieces: how many there are; each is timed once a round.
    """

    seconds: tuple[float, ...]
    pieces: int = 1

    @property
    def median(self) -> float:
        """Half of all timings took less."""
        return float(np.median(self.seconds))

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of all timings took less than the first, a quarter more than the second."""
        low, high = np.percentile(self.seconds, (25, 75))
        return float(low), float(high)

    @property
    def margin(self) -> float | None:
        """How far the median of another run over the same pieces lies from this one, at most, in 9 of 10 tries.

        From the 95 % interval of the median, which asks nothing of the timings' distribution: of one piece by order
        statistics, of several by drawing runs. It is wider where neighbouring timings resemble each other, and taken
        times the square root of two since the other median varies too. At least what the halves differ by, and 3 % for
        the luck of a process. None for fewer than `MIN_RUNS`.
        """
        if len(self.seconds) < MIN_RUNS:
            return None
        reach = self._reach_of_one() if self.pieces == 1 else self._reach_of_several()
        return max(math.sqrt(2) * reach, self._drift, _PLACEMENT * self.median)

    def noise(self) -> tuple[str, ...]:
        """Why the timings are not to be believed, one sentence each; empty where they are steady."""
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
        """How far the ends of the median's interval lie, by the ranks beside it."""
        count, likeness = len(self.seconds), _likeness(np.array(self.seconds))
        reach = _NORMAL_95 / 2 * math.sqrt(count * (1 + likeness) / (1 - likeness))
        ordered, median = sorted(self.seconds), self.median
        low = ordered[max(math.floor(count / 2 - reach) - 1, 0)]
        high = ordered[min(math.ceil(count / 2 + reach), count - 1)]
        return max(median - low, high - median)

    def _reach_of_several(self) -> float:
        """The same from runs in which each piece takes what it took, times the noise of any timing drawn at random."""
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
        """What each piece takes."""
        return np.median(self._rounds, axis=0)

    @property
    def _noise(self) -> Seconds:
        """Each timing as a multiple of what its piece takes, in the order taken.

        A timing has a part in its piece's own level, so that it lies too near to it where rounds are few.
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
    """Correlation of the ranks of neighbours, in [0, 0.95]; ranks, so that one outlier says nothing."""
    ranks = np.argsort(np.argsort(noise)) - (len(noise) - 1) / 2
    return min(max(float(ranks[:-1] @ ranks[1:] / (ranks @ ranks)), 0.0), 0.95)
