"""Which architecture is better: differences over training seeds and images (`docs/statistics.md`).

The paired tests of `results.statistics.significance` ask about trained weights; these about what training makes. A
model's scores are an array (S, N) of S seeds and N images. Seeds are a random effect, unpaired between models, images
are paired. Nothing here needs scores to be normal but the seed means, of which there are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from results.statistics.significance import LEVEL, Array

NEEDS_SEEDS: Final = "needs seeds: one is no measure of how much training varies"
NEEDS_IMAGES: Final = "needs images: one is no measure of how much images vary"
OVER_IMAGES: Final = "these weights, over images"
OVER_SEEDS: Final = "over seeds and images"


class Summary(NamedTuple):
    """What a model's scores (..., S, N) say about it.

    `images` (..., N) are the means over seeds; `between` (...) is the variance of the mean over seeds, s²/S;
    `interaction` (...) that of an image's mean over seeds, less the seed's own and the image's own effect, by N.
    """

    images: Array
    between: Array
    interaction: Array
    seeds: int


class Estimate(NamedTuple):
    """Differences first less second, their standard errors, and the degrees of freedom of t; all (...)."""

    difference: Array
    error: Array
    degrees: Array


@dataclass(frozen=True, slots=True)
class ArchitectureDifference:
    """Mean score of the first model less the second's, over seeds and images, in the scores' unit.

    `low` and `high` bound its interval and `p` is two-sided, both from t with `degrees` of freedom. All but the
    difference are None where a side has too few seeds or images, and `reason` says so.
    """

    difference: float
    error: float | None
    degrees: float | None
    low: float | None
    high: float | None
    p: float | None
    reason: str | None
    seeds: tuple[int, int]
    images: int


def architecture_mean(scores: Array, level: float = LEVEL) -> tuple[float, float] | None:
    """The interval of a model's expected score from its scores (S, N); None with too few seeds or images."""
    if missing(scores) is not None:
        return None
    found = summary(scores)
    images = len(found.images)
    left = np.maximum(found.images.var(ddof=1) / images - found.interaction, 0.0)
    error, degrees = error_and_degrees((found.between, np.zeros(())), (found.seeds, found.seeds), left, images)
    half, mean = t_quantile(level, float(degrees)) * float(error), float(scores.mean())
    return mean - half, mean + half


def architecture_difference(first: Array, second: Array, level: float = LEVEL) -> ArchitectureDifference:
    """The difference of two models by their scores (S, N) of the same images in the same order.

    Raises:
        ValueError: the scores are not of the same number of images, or there are none.
    """
    for scores in (first, second):
        if scores.ndim != 2 or not scores.size or scores.shape[1] != first.shape[1]:
            raise ValueError(f"scores (seeds, images) of the same images are needed: {first.shape}, {second.shape}")
    seeds, images = (len(first), len(second)), first.shape[1]
    reason = missing(first) or missing(second)
    if reason is not None:
        gap = float((first.mean(axis=0) - second.mean(axis=0)).mean())
        return ArchitectureDifference(gap, None, None, None, None, None, reason, seeds, images)
    gap, error, degrees = (float(part) for part in estimate(summary(first), summary(second)))
    half = t_quantile(level, degrees) * error
    p = p_of_t(gap, error, degrees)
    return ArchitectureDifference(gap, error, degrees, gap - half, gap + half, p, None, seeds, images)


def joint_degrees(degrees: float, seeds: tuple[int, int], tests: int) -> float:
    """Degrees of freedom of one of several tests that are corrected together.

    Those that two seeds estimate are good enough for 5 %, not for a correction's small levels, which take the fewest
    that there can be (Mickey and Brown 1966).
    """
    return 1.0 if tests > 1 and min(seeds) == 2 else degrees


def missing(scores: Array) -> str | None:
    """Why a model with these scores (S, N) cannot be tested, if it cannot."""
    return NEEDS_SEEDS if len(scores) < 2 else NEEDS_IMAGES if scores.shape[1] < 2 else None


def summary(scores: Array) -> Summary:
    """Means and variances of scores (..., S, N); at least two seeds and two images."""
    seeds, images = scores.shape[-2:]
    by_image, by_seed = scores.mean(axis=-2), scores.mean(axis=-1)
    centred = by_seed - by_seed.mean(axis=-1, keepdims=True)
    left = scores - by_image[..., None, :] - centred[..., None]
    interaction = np.square(left).sum(axis=(-2, -1)) / ((seeds - 1) * (images - 1) * seeds * images)
    return Summary(by_image, np.square(centred).sum(axis=-1) / ((seeds - 1) * seeds), interaction, seeds)


def estimate(first: Summary, second: Summary) -> Estimate:
    """First less second, of models whose seeds are unpaired and whose images are the same.

    The variance is the seeds', s²_A / S_A + s²_B / S_B, and the images', that of the seed-averaged differences by N.
    Both hold the interaction of seeds and images, which is taken out of the images' once. The reciprocal of the degrees
    of freedom is the mean of the parts' reciprocals, weighted by their shares of the variance. Satterthwaite's (1946)
    weighs by squared shares: where two seeds estimate a share, these are too good, and 6 % are false positives.
    """
    gap = first.images - second.images
    between, seeds = (first.between, second.between), (first.seeds, second.seeds)
    parts = error_and_degrees(between, seeds, images_part(first, second), gap.shape[-1])
    return Estimate(gap.mean(axis=-1), *parts)


def images_part(first: Summary, second: Summary) -> Array:
    """What the images add to a difference's variance, without the interaction, which is in the seeds' part."""
    gap = first.images - second.images
    found: Array = gap.var(axis=-1, ddof=1) / gap.shape[-1] - first.interaction - second.interaction
    return np.maximum(found, 0.0)


def error_and_degrees(
    between: tuple[Array, Array], seeds: tuple[int, int], left: Array, images: int
) -> tuple[Array, Array]:
    """Standard errors and degrees of freedom from the variances of both models' means and `left`, the images' part."""
    part = between[0] + between[1]
    variance = part + left
    squares = np.square(between[0]) / (seeds[0] - 1) + np.square(between[1]) / (seeds[1] - 1)
    # squares / part is the seeds' part by Welch's degrees of freedom, so that models without any spread need no case.
    reciprocal = _ratio(_ratio(squares, part), variance) + _ratio(left, variance) / (images - 1)
    degrees = np.where(variance > 0, _ratio(np.ones_like(reciprocal), reciprocal), images - 1)
    return np.sqrt(variance), degrees


def t_quantile(level: float, degrees: float) -> float:
    """Within plus and minus this, t has the probability `level`."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + level) / 2))


def p_of_t(difference: float, error: float, degrees: float) -> float:
    """Two-sided; without any variation a difference is certain, and none is none."""
    from scipy.special import stdtr

    if error == 0:
        return float(difference == 0)
    return 2 * float(stdtr(degrees, -abs(difference) / error))


def _ratio(numerator: Array, denominator: Array) -> Array:
    """By element, 0 where the denominator is."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator, dtype=np.float64), where=denominator > 0)
