"""Which differences between models are real, from their scores of the same images: tests, Holm's correction and tiers.

Images, not seeds, are what is drawn here: how much a model varies over training seeds is another question.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RESAMPLES: Final = 10_000
SEED: Final = 2_024
ALPHA: Final = 0.05
_CELLS_AT_ONCE: Final = 2_000_000  # 16 MB


def exchanges(images: int, *, resamples: int = RESAMPLES, seed: int = SEED) -> Iterator[Array]:
    """Which images two systems exchange in each resample: fair zeros and ones, blocks of (rows, images).

    All 2^images patterns once where these are no more than `resamples`, as `is_exact` says.
    """
    rows = max(8, _CELLS_AT_ONCE // max(1, images))
    total = 2**images if is_exact(images, resamples) else resamples
    generator = np.random.default_rng(seed)
    for start in range(0, total, rows):
        count = min(rows, total - start)
        if is_exact(images, resamples):
            yield (np.arange(start, start + count)[:, None] >> np.arange(images) & 1).astype(np.float64)
        else:
            raw = np.frombuffer(generator.bytes(count * ((images + 7) // 8)), np.uint8).reshape(count, -1)
            yield np.unpackbits(raw, axis=1, count=images).astype(np.float64)


def draws(images: int, *, resamples: int = RESAMPLES, seed: int = SEED) -> Iterator[Array]:
    """How often each image is drawn in each bootstrap resample, with replacement: blocks of (rows, images)."""
    generator = np.random.default_rng(seed)
    rows = max(1, _CELLS_AT_ONCE // images)
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        drawn = generator.integers(0, images, (count, images), dtype=np.int32)
        drawn += np.arange(count, dtype=np.int32)[:, None] * np.int32(images)
        yield np.bincount(drawn.ravel(), minlength=count * images).reshape(count, images).astype(np.float64)


def is_exact(images: int, resamples: int) -> bool:
    """Whether all ways to exchange the images are tried, so that p-values are exact."""
    return images < 63 and 2**images <= resamples


def p_value(extreme: int, images: int, resamples: int) -> float:
    """Of `extreme` resamples at least as extreme as what was observed; that one counts among those drawn."""
    return extreme / 2**images if is_exact(images, resamples) else (extreme + 1) / (resamples + 1)


def sign_flip_tests(scores: Array, *, resamples: int = RESAMPLES, seed: int = SEED) -> Array:
    """Two-sided p-values of the difference in mean of every two models, (M, M), from scores of images (N, M).

    For each image the two models' scores are exchanged or not, which flips the sign of its difference (Fisher, "The
    Design of Experiments", 1935, section 21). The same exchanges serve all pairs. Where the bound on such a sum's tail
    (Hoeffding, "Probability Inequalities for Sums of Bounded Random Variables", 1963, theorem 2) is lower than the
    lowest p-value that so many draws can give, it is the p-value: a correction for many pairs needs it.
    """
    images, models = scores.shape
    first, second = np.triu_indices(models, 1)
    total = scores.sum(axis=0)
    observed = np.abs(total[first] - total[second])
    extreme = np.zeros(len(first), np.int64)
    for exchanged in exchanges(images, resamples=resamples, seed=seed):
        drawn = total - 2 * (exchanged @ scores)
        # Rounding must not decide about draws that are as extreme as what was observed.
        extreme += (np.abs(drawn[:, first] - drawn[:, second]) >= observed - 1e-12 * images).sum(axis=0)
    found = np.ones((models, models))
    for pair, (one, two) in enumerate(zip(first, second, strict=True)):
        squares = float(np.square(scores[:, one] - scores[:, two]).sum())
        p = _sharpened(p_value(int(extreme[pair]), images, resamples), observed[pair], squares, images, resamples)
        found[one, two] = found[two, one] = p
    return found


def sign_flip_columns(differences: Array, *, resamples: int = RESAMPLES, seed: int = SEED) -> Array:
    """The same p-values of differences that are taken already, one for each column of (N, K)."""
    images = len(differences)
    total = differences.sum(axis=0)
    observed, squares = np.abs(total), np.square(differences).sum(axis=0)
    extreme = np.zeros(len(total), np.int64)
    for exchanged in exchanges(images, resamples=resamples, seed=seed):
        drawn = total - 2 * (exchanged @ differences)
        extreme += (np.abs(drawn) >= observed - 1e-12 * images).sum(axis=0)
    columns = zip(extreme.tolist(), observed.tolist(), squares.tolist(), strict=True)
    return np.array(
        [_sharpened(p_value(count, images, resamples), sum_, of, images, resamples) for count, sum_, of in columns]
    )


def _sharpened(p: float, observed: float, squares: float, images: int, resamples: int) -> float:
    """The p-value, or the bound on the sum's tail where that is lower than what so many draws can give."""
    if not squares or is_exact(images, resamples):
        return p
    bound = max(2 * float(np.exp(-(observed**2) / (2 * squares))), sys.float_info.min)
    return bound if bound < 1 / (resamples + 1) else p


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given (Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def holm_of_pairs(p_values: Array) -> Array:
    """The same for all pairs of models, (M, M)."""
    pairs = list(combinations(range(len(p_values)), 2))
    adjusted = np.ones_like(p_values)
    for (one, two), value in zip(pairs, holm([p_values[pair] for pair in pairs]), strict=True):
        adjusted[one, two] = adjusted[two, one] = value
    return adjusted


def tiers(scores: Sequence[float], adjusted: Array, *, alpha: float = ALPHA) -> list[int]:
    """Tier of each model, 1 the best: one that cannot be told from the best of a tier belongs to that tier.

    `adjusted` holds the corrected p-values of all pairs, (M, M).
    """
    placed = [0] * len(scores)
    leader, tier = -1, 0
    for model in sorted(range(len(scores)), key=lambda index: -scores[index]):
        if leader < 0 or adjusted[leader, model] < alpha:
            leader, tier = model, tier + 1
        placed[model] = tier
    return placed
