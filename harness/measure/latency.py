"""Latency and throughput of captioning a batch: timings, their statistics, and what makes them unreliable."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from harness.utils.processes import on_threads
from results.records import Quantity

SPREAD = 0.10  # quartiles of the same work further apart than this fraction of the median are noisy
DRIFT = 0.05
"""Medians of the first and the second half that differ by more than this fraction of the median are noisy."""
MIN_RUNS = 5
_PLACEMENT = 0.03
"""Relative difference between processes, due to memory placement, which cannot be seen within one run."""
_NORMAL_95 = 1.96
_DRAWN_RUNS = 2000

Seconds = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Timings of the same work, or of several pieces of work in rounds, in order.

    Differences between pieces are not noise: a caption of twelve words takes longer than one of eight. Differences
    between rounds of the same piece are.

    Attributes:
        seconds: at least two; for several pieces, at least two complete rounds.
        pieces: number of pieces, each of which is timed once per round.
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
        """Bound on the difference to the median of another run over the same pieces, which holds in 9 of 10 runs.

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
        """Reasons why the timings are unreliable; empty if they are steady."""
        low, high = np.percentile(self._noise, (25, 75))
        spread = float(high - low)
        drift = self._drift / self.median
        reasons = []
        if spread > SPREAD:
            difference = f"the quartiles of the same work differ by {100 * spread:.0f} % of the median"
            reasons.append(f"{difference}, more than {100 * SPREAD:.0f} %")
        if drift > DRIFT:
            difference = f"the medians of the two halves differ by {100 * drift:.0f} % of the median"
            reasons.append(f"{difference}, more than {100 * DRIFT:.0f} %")
        return tuple(reasons)

    def _reach_of_one(self) -> float:
        """Half-width of the median's interval, by order statistics."""
        count = len(self.seconds)
        likeness = _likeness(np.array(self.seconds))
        reach = _NORMAL_95 / 2 * math.sqrt(count * (1 + likeness) / (1 - likeness))
        ordered = sorted(self.seconds)
        median = self.median
        low = ordered[max(math.floor(count / 2 - reach) - 1, 0)]
        return max(median - low, ordered[min(math.ceil(count / 2 + reach), count - 1)] - median)

    def _reach_of_several(self) -> float:
        """Half-width of the median's interval, by resampling: each piece's time, times the noise of a random timing."""
        noise = self._noise
        rounds = len(self._rounds)
        drawn = np.random.default_rng(0).choice(noise, (_DRAWN_RUNS, len(noise))) * np.tile(self._levels, rounds)
        reach = float(np.quantile(np.abs(np.median(drawn, axis=1) - self.median), 0.95))
        likeness = _likeness(noise)
        return reach * math.sqrt((1 + likeness) / (1 - likeness))

    @property
    def _rounds(self) -> Seconds:
        return np.array(self.seconds).reshape(-1, self.pieces)

    @property
    def _levels(self) -> Seconds:
        return np.median(self._rounds, axis=0)

    @property
    def _noise(self) -> Seconds:
        """Each timing as a multiple of its piece's median, in order.

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
    """Rank correlation of consecutive timings, in [0, 0.95]; ranks are robust to outliers."""
    ranks = np.argsort(np.argsort(noise)) - (len(noise) - 1) / 2
    return min(max(float(ranks[:-1] @ ranks[1:] / (ranks @ ranks)), 0.0), 0.95)


BUSY_CORES = 0.25  # timings are noisy if other processes keep more cores busy than this
_STAT = Path("/proc/stat")
_BUSY = (0, 1, 2, 5, 6, 7)


class OtherLoad:
    """Mean number of cores that other processes used within a block: `with OtherLoad() as load: ...; load.cores`.

    None if the kernel does not report it. Child processes count as this process once they have ended.
    """

    cores: float | None = None

    def __enter__(self) -> Self:
        self._begin = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        end = self._now()
        if self._begin is None or end is None:
            return
        elapsed, machine, this_process = (after - before for before, after in zip(self._begin, end, strict=True))
        # The kernel counts in hundredths of a second, too coarse for a shorter block.
        self.cores = max(machine - this_process, 0.0) / elapsed if elapsed >= 0.1 else None

    def noise(self) -> tuple[str, ...]:
        """Reasons why timings within the block are unreliable; empty if other load was small or is unknown."""
        if self.cores is None or self.cores <= BUSY_CORES:
            return ()
        return (f"other processes kept {self.cores:.1f} of {os.cpu_count()} cores busy",)

    def _now(self) -> tuple[float, float, float] | None:
        """Wall-clock seconds, and seconds of CPU time of the machine and of this process."""
        try:
            columns = _STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
            machine = sum(int(columns[column]) for column in _BUSY) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError, AttributeError):
            return None
        return time.perf_counter(), machine, sum(os.times()[:4])


COSTS = {
    "latency_median": "s",
    "latency_iqr": "s",
    "latency_margin": "s",
    "latency_throughput": "images/s",
    "latency_batch": "images",
    "latency_threads": "threads",
    "latency_repeats": "runs",
    "latency_images": "images",
    "latency_noisy": "",
}


def time_work(
    caption: Callable[[], object],
    count: int,
    device: torch.device,
    *,
    batch: int,
    repeats: int,
    threads: int | None = None,
) -> tuple[dict[str, Quantity], dict[str, Any]]:
    """Time captioning of `count` batches in turn, after untimed runs: a tenth of the repeats or of the batches.

    Args:
        caption: captions the next batch, of `batch` images.
        repeats: number of rounds in which every batch is timed, at least two.
        threads: torch's intra-op threads; None for the current number.

    Returns:
        The costs of `COSTS`, and the number of threads with the reasons why the times are unreliable. The median has
        its quartiles as bounds; `latency_margin` bounds the difference to the median of another run;
        `latency_throughput` is in images per second at the median; `latency_noisy` is 1 if there are such reasons, else
        0; `latency_repeats` is the number of all timed runs, `latency_images` that of different batches among them.
    """
    with torch.inference_mode(), on_threads(threads) as used_threads, OtherLoad() as load:
        for _ in range(max(repeats // 10, count // 10, 1)):
            caption()
        seconds = tuple(seconds_of(caption, device) for _ in range(repeats * count))
    timing = Timing(seconds, count)
    noise, (low, high) = [*timing.noise(), *load.noise()], timing.quartiles
    too_few = f"fewer than {MIN_RUNS} timed runs"
    values = {
        "latency_median": Quantity(timing.median, low=low, high=high),
        "latency_iqr": Quantity(high - low),
        "latency_margin": Quantity(timing.margin, too_few if timing.margin is None else None),
        "latency_throughput": Quantity(batch / timing.median, low=batch / high, high=batch / low),
        "latency_batch": Quantity(float(batch)),
        "latency_threads": Quantity(float(used_threads)),
        "latency_repeats": Quantity(float(len(seconds))),
        "latency_images": Quantity(float(count)),
        "latency_noisy": Quantity(float(bool(noise))),
    }
    costs = {name: replace(value, unit=COSTS[name]) for name, value in values.items()}
    return costs, {"threads": used_threads, "noise": noise}


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Time one call: by CUDA events on a CUDA device, by the clock elsewhere."""
    if device.type != "cuda":
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin
    with torch.cuda.device(device):
        started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        started.record()
        work()
        ended.record()
        torch.cuda.synchronize()
    return float(started.elapsed_time(ended)) / 1000
