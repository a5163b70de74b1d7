"""Which differences between results are significant: paired tests over images, intervals, and Holm's correction.

Images are resampled, not seeds: how much a model varies over training seeds is another question
(`results.statistics.architecture`). Document frequencies stay as they are in every resample: taken anew they would bias
CIDEr-D upwards.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from results.metrics import METRICS
from results.statistics.estimate import ALPHA, Estimate

Array = NDArray[np.float64]
Interval = tuple[float, float] | tuple[None, None]
RESAMPLES: Final = 10_000
SEED: Final = 2_024
LEVEL: Final = 0.95
_NUMBERS_AT_ONCE: Final = 2_000_000  # 16 MB
_NUMBERS_KEPT: Final = 60_000_000  # 60 MB, of six thousand images: numbers are of one byte where they fit


@dataclass(slots=True)
class Metric:
    """A metric, or several that share their statistics (BLEU-1 to 4).

    `score` gives corpus scores from summed statistics: (..., K) -> (..., len(names)), as fractions.
    """

    names: tuple[str, ...]
    score: Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Sufficient statistics of one system: `values` (N, K) float64, a row per image."""

    metric: Metric
    values: Array

    def corpus(self) -> dict[str, float]:
        """Scores over all rows together, by name."""
        return dict(zip(self.metric.names, self.metric.score(self.values.sum(axis=0)).tolist(), strict=True))

    def of(self, rows: Sequence[int]) -> Self:
        """The statistics of a subset of the images."""
        return replace(self, values=self.values[rows])

    def per_image(self) -> dict[str, Array]:
        """Scores of each image alone, by name: (N,) each."""
        return dict(zip(self.metric.names, self.metric.score(self.values).T, strict=True))


def exchanges(images: int) -> Iterator[Array]:
    """Which images two systems exchange in each resample: fair zeros and ones, blocks of (rows, images).

    All 2^images patterns once where these are no more than `RESAMPLES`, as `is_exact` says.
    """
    rows = max(8, _NUMBERS_AT_ONCE // max(1, images))
    total = 2**images if is_exact(images) else RESAMPLES
    generator = np.random.default_rng(SEED)
    for start in range(0, total, rows):
        count = min(rows, total - start)
        if is_exact(images):
            yield (np.arange(start, start + count)[:, None] >> np.arange(images) & 1).astype(np.float64)
        else:
            raw = np.frombuffer(generator.bytes(count * ((images + 7) // 8)), np.uint8).reshape(count, -1)
            yield np.unpackbits(raw, axis=1, count=images).astype(np.float64)


def draws(images: int, *, resamples: int = RESAMPLES) -> Iterator[Array]:
    """How often each image is drawn in each bootstrap resample, with replacement: blocks of (rows, images)."""
    are_kept = images * resamples <= _NUMBERS_KEPT
    for drawn in _kept_draws(images, resamples) if are_kept else _draws(images, resamples):
        yield drawn.astype(np.float64)


@lru_cache(maxsize=4)  # of each split and domain; drawing takes longer than what it is for
def _kept_draws(images: int, resamples: int) -> tuple[NDArray[np.unsignedinteger], ...]:
    return tuple(drawn.astype(np.min_scalar_type(drawn.max())) for drawn in _draws(images, resamples))


def _draws(images: int, resamples: int) -> Iterator[NDArray[np.int64]]:
    generator = np.random.default_rng(SEED)
    rows = max(1, _NUMBERS_AT_ONCE // images)
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        drawn = generator.integers(0, images, (count, images), dtype=np.int32)
        drawn += np.arange(count, dtype=np.int32)[:, None] * np.int32(images)
        yield np.bincount(drawn.ravel(), minlength=count * images).reshape(count, images)


def ratio(numerator: Array, denominator: Array) -> Array:
    """By element, 0 where the denominator is."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator, dtype=np.float64), where=denominator > 0)


def is_exact(images: int) -> bool:
    """Whether all ways to exchange the images are tried, so that p-values are exact."""
    return images < 63 and 2**images <= RESAMPLES


def sign_flip_columns(differences: Array) -> Array:
    """Two-sided p-values of the means of paired differences (N, K), one for each column.

    Each image's two scores are exchanged or not, which flips the sign of its difference (Fisher, "The Design of
    Experiments", 1935, section 21). The same exchanges serve all columns. Where the bound on such a sum's tail
    (Hoeffding, "Probability Inequalities for Sums of Bounded Random Variables", 1963, theorem 2) is lower than the
    lowest p-value that so many draws can give, it is the p-value: a correction for many tests needs it.
    """
    images = len(differences)
    total = differences.sum(axis=0)
    extreme = np.zeros(len(total), np.int64)
    for exchanged in exchanges(images):
        extreme += _as_extreme(total - 2 * (exchanged @ differences), total, images)
    return _p_values(extreme, differences)


def sign_flip_pairs(scores: Array, pairs: Sequence[tuple[int, int]], alpha: float) -> tuple[Array, Array, Array]:
    """Pairs of columns of scores (N, M), first less second, tested as by `sign_flip_columns`.

    Gives two-sided p-values (K,), and the low and high ends of the intervals of the mean differences.

    The intervals hold what the same draws do not reject at `alpha`: a draw is as extreme as what was observed where
    the mean in question is beyond that of the images whose signs it flips, or of all others (Hartigan, "Using
    Subsample Values as Typical Values", 1969). Where no number of draws rejects at so low a level, Hoeffding's bound
    gives their ends; they are infinite where images are too few for it.
    """
    first, second = (np.array([pair[side] for pair in pairs], np.intp) for side in (0, 1))
    images = len(scores)
    differences = scores[:, first] - scores[:, second]
    total = differences.sum(axis=0)
    extreme = np.zeros(len(pairs), np.int64)
    interval_ends: list[Array] = []
    for exchanged in exchanges(images):
        by_model = exchanged @ scores
        flipped = by_model[:, first] - by_model[:, second]
        extreme += _as_extreme(total - 2 * flipped, total, images)
        interval_ends.append(_ends(flipped, exchanged, total))
    return _p_values(extreme, differences), *_bounds(np.concatenate(interval_ends, axis=1), differences, alpha)


def sign_flip_intervals(differences: Array, alphas: Sequence[float]) -> list[tuple[float, float]]:
    """The intervals of the means of paired differences (N, K), each at its own level, as of `sign_flip_pairs`."""
    total = differences.sum(axis=0)
    drawn = [_ends(exchanged @ differences, exchanged, total) for exchanged in exchanges(len(differences))]
    interval_ends = np.concatenate(drawn, axis=1)
    intervals = []
    for column, alpha in enumerate(alphas):
        only = slice(column, column + 1)
        low, high = _bounds(interval_ends[:, :, only], differences[:, only], alpha)
        intervals.append((float(low[0]), float(high[0])))
    return intervals


def _ends(flipped: Array, exchanged: Array, total: Array) -> Array:
    """The mean differences (2, R, K) beyond which a draw is as extreme as what was observed: low, and high negated.

    `flipped` (R, K) is the sum over the images whose signs a draw flips, `total` (K,) that over all.
    """
    images = exchanged.shape[1]
    count = exchanged.sum(axis=1)[:, None]
    means = flipped / np.maximum(count, 1), (total - flipped) / np.maximum(images - count, 1)
    parted = (count > 0) & (count < images)
    low = np.where(parted, np.minimum(*means), -np.inf)
    high = np.where(parted, np.maximum(*means), np.inf)
    return np.stack((low, -high))


def _bounds(interval_ends: Array, differences: Array, alpha: float) -> tuple[Array, Array]:
    """Low and high ends (K,) of the intervals at a level, from the ends (2, R, K) of all draws."""
    images = len(differences)
    draws = 2**images if is_exact(images) else RESAMPLES + 1  # what was observed is one of them
    rejected = int(alpha * draws) - (not is_exact(images))
    if rejected >= 0:
        low, high = np.partition(interval_ends, rejected, axis=1)[:, rejected]
        return low, -high
    mean = differences.sum(axis=0) / images
    half = np.full(differences.shape[1], np.inf)
    level = 2 * np.log(2 / alpha)
    if images > level:  # Hoeffding's bound on a sum's tail
        half = np.sqrt(level * differences.var(axis=0) / (images - level))
    return mean - half, mean + half


def _as_extreme(drawn: Array, total: Array, images: int) -> NDArray[np.int64]:
    """How many draws (R, K) are as extreme as what was observed (K,); rounding must not decide about equal ones."""
    counts: NDArray[np.int64] = (np.abs(drawn) >= np.abs(total) - 1e-12 * images).sum(axis=0)
    return counts


def _p_values(extreme: NDArray[np.int64], differences: Array) -> Array:
    """P-values of differences (N, K) of which so many draws (K,) were as extreme.

    What was observed counts among the draws, unless they are all that there are. Where the bound on the sum's tail is
    lower than what so many draws can give, it is the p-value.
    """
    images = len(differences)
    if is_exact(images):
        exact: Array = extreme / 2**images
        return exact
    observed = np.abs(differences.sum(axis=0))
    squares = np.square(differences).sum(axis=0)
    bound = np.exp(-(observed**2) / (2 * np.where(squares > 0, squares, np.inf)))
    bound = np.maximum(2 * bound, sys.float_info.min)
    p_values: Array = np.where(bound < 1 / (RESAMPLES + 1), bound, (extreme + 1) / (RESAMPLES + 1))
    return p_values


def bootstrap(statistics: Sequence[Statistics], *, resamples: int = RESAMPLES) -> dict[str, Interval]:
    """95 % intervals of every metric, by resampling images with replacement; of one image alone there are none.

    All `statistics` are of the same images in the same order. Percentile method: Efron and Tibshirani, "An Introduction
    to the Bootstrap", 1993, chapter 13.
    """
    values = np.concatenate([system.values for system in statistics], axis=1)
    if len(values) < 2:
        return {name: (None, None) for system in statistics for name in system.metric.names}
    totals = np.concatenate([drawn @ values for drawn in draws(len(values), resamples=resamples)])
    intervals = dict[str, Interval]()
    column = 0
    for system in statistics:
        width = system.values.shape[1]
        scores = system.metric.score(totals[:, column : column + width])
        for metric, resampled in zip(system.metric.names, scores.T, strict=True):
            low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
            intervals[metric] = float(low), float(high)
        column += width
    return intervals


def pseudo_values(values: Array, score: Callable[[Array], Array]) -> Array:
    """Jackknife pseudo-values of corpus scores of statistics (N, K), (N, metrics), whose mean is the corpus score.

    With statistics x of sum T and the score f, image i has f(T) + (N - 1) (mean over j of f(T - x_j) - f(T - x_i)).
    Their variance by N is the jackknife's variance of the score: Tukey, "Bias and Confidence in Not-Quite Large
    Samples", 1958; Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 11. Of two images or more.
    """
    total = values.sum(axis=0)
    without = score(total - values)
    pseudo: Array = score(total) + (len(values) - 1) * (without.mean(axis=0) - without)
    return pseudo


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given (Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def holm_levels(p_values: Sequence[float]) -> list[float]:
    """The level that `holm` leaves to each test: p is below it exactly where the adjusted p is below 5 %."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    levels = [ALPHA] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        tests = len(p_values) - rank
        p = p_values[index]
        largest = max(largest, tests * p)
        levels[index] = ALPHA * (p / largest if p > 0 else 1 / tests)
    return levels


SUMS: Final = tuple(metric.name for metric in METRICS if not metric.is_mean)
"""Metrics that sum the images' statistics before they divide; all others are means over images."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageChanges:
    """The change of each image's mean over seeds, after less before; `before` and `after` are means over images."""

    images: NDArray[np.int64]
    changes: Array
    before: float
    after: float


@dataclass(frozen=True, slots=True, eq=False)
class PairedScores:
    """Scores of two sides, (seeds, images) each, of the same `images`, by their ids; ValueError for none or others."""

    images: NDArray[np.int64]
    before: Array
    after: Array

    def __post_init__(self) -> None:
        if not (self.before.size and self.after.size and self.before.shape[1] == self.after.shape[1]):
            raise ValueError("scores of different images, or of none, cannot be paired")

    @classmethod
    def from_captions(cls, before: Mapping[int, float], after: Mapping[int, float]) -> Self:
        """Of two sets of captions, each with its scores by image id."""
        if before.keys() != after.keys():
            raise ValueError("scores of different images, or of none, cannot be paired")
        images = sorted(before)
        sides = (np.array([[scores[image] for image in images]], np.float64) for scores in (before, after))
        return cls(np.array(images, np.int64), *sides)

    def changes(self) -> ImageChanges:
        before = image_means(self.before)
        after = image_means(self.after)
        return ImageChanges(self.images, after - before, fmean(before.tolist()), fmean(after.tolist()))


def image_means(scores: Array) -> Array:
    """Each image's mean over the seeds of scores (S, N), of sums that are rounded once."""
    if len(scores) == 1:
        means: Array = scores[0] + 0.0  # a copy, in which a zero has no sign, as in a sum
        return means
    return np.array([fmean(seeds) for seeds in scores.T.tolist()])


def paired_differences(changes: Sequence[ImageChanges]) -> list[Estimate]:
    """Every change from before to after: its bootstrap interval, and p by sign flips."""
    estimates: dict[int, Estimate] = {}
    for members in group_by_images(changes):
        differences = np.array([changes[index].changes for index in members]).T
        for index, (low, high, p) in zip(members, _test(differences), strict=True):
            change = changes[index]
            estimates[index] = Estimate(change.after - change.before, low, high, p, len(change.images))
    return [estimates[index] for index in range(len(changes))]


def group_by_images(changes: Sequence[ImageChanges]) -> list[list[int]]:
    """The positions of the changes of each set of images."""
    members: dict[bytes, list[int]] = {}
    for index, change in enumerate(changes):
        members.setdefault(change.images.tobytes(), []).append(index)
    return list(members.values())


def _test(differences: Array) -> list[tuple[float, float, float]]:
    """Low and high end and p-value of each column of differences, (N, K).

    Percentile bootstrap of the means: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993.
    """
    means = np.concatenate([drawn @ differences for drawn in draws(len(differences))]) / len(differences)
    low, high = np.quantile(means, [0.025, 0.975], axis=0).tolist()
    return list(zip(low, high, sign_flip_columns(differences).tolist(), strict=True))
