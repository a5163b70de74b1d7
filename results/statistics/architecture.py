"""Which architecture is better: differences over training seeds and images, and places (`docs/statistics.md`).

The paired tests of `results.statistics.significance` ask about trained weights; these about what training makes. A
model's scores are an array (S, N) of S seeds and N images. Seeds are a random effect, unpaired between models, images
are paired. Nothing here needs scores to be normal but the seed means, of which there are few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from results.statistics.significance import ALPHA, LEVEL, Array, holm

NEEDS_SEEDS: Final = "needs seeds: one is no measure of how much training varies"
NEEDS_IMAGES: Final = "needs images: one is no measure of how much images vary"
OVER_IMAGES: Final = "these weights, over images"
OVER_SEEDS: Final = "over seeds and images"


class ScoreSummary(NamedTuple):
    """What a model's scores (..., S, N) say about it.

    `images` (..., N) are the means over seeds; `between` (...) is the variance of the mean over seeds, s²/S;
    `interaction` (...) that of an image's mean over seeds, less the seed's own and the image's own effect, by N.
    `seeds` (...) is S.
    """

    images: Array
    between: Array
    interaction: Array
    seeds: Array | int


class EstimatedDifference(NamedTuple):
    """Differences first less second, their standard errors, and the degrees of freedom of t; all (...)."""

    difference: Array
    error: Array
    degrees: Array


class _Test(NamedTuple):
    """A difference as in `ArchitectureDifference`."""

    difference: float
    error: float
    degrees: float
    low: float
    high: float
    p: float


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
    half, mean = float(t_quantile(level, degrees) * error), float(scores.mean())
    return mean - half, mean + half


def architecture_difference(first: Array, second: Array, level: float = LEVEL) -> ArchitectureDifference:
    """The difference of two models by their scores (S, N) of the same images in the same order.

    Raises:
        ValueError: the scores are not of the same number of images, or there are none.
    """
    comparable = first.ndim == second.ndim == 2 and first.shape[1] == second.shape[1] and first.size
    reason = (missing(first) or missing(second)) if comparable else None
    if reason is None:
        return differences_by_pair((first, second), level)[0, 1]
    gap = float((first.mean(axis=0) - second.mean(axis=0)).mean())
    sizes = (len(first), len(second)), first.shape[1]
    return ArchitectureDifference(gap, None, None, None, None, None, reason, *sizes)


def differences_by_pair(models: Sequence[Array], level: float = LEVEL) -> dict[tuple[int, int], ArchitectureDifference]:
    """The difference of every two models, by their numbers; each model's own part is computed once.

    Raises:
        ValueError: a model has one seed or image, or the scores are not of the same number of images.
    """
    for scores in models:
        if scores.ndim != 2 or min(scores.shape) < 2 or scores.shape[1] != models[0].shape[1]:
            shapes = ", ".join(str(each.shape) for each in models)
            raise ValueError(f"scores (seeds, images) of the same images are needed, two or more of each: {shapes}")
    tested = _tested(dict(enumerate(map(summary, models))), level)
    return {
        (one, two): ArchitectureDifference(*test, None, (len(models[one]), len(models[two])), models[one].shape[1])
        for (one, two), test in tested.items()
    }


def _tested(models: Mapping[int, ScoreSummary], level: float) -> dict[tuple[int, int], _Test]:
    """Difference, error, degrees, low, high and p of every two models by their numbers, which ascend."""
    pairs = list(combinations(models, 2))
    if not pairs:
        return {}
    found = []
    for one, own in list(models.items())[:-1]:
        later = (of for number, of in models.items() if number > one)
        found.append(estimate(own, ScoreSummary(*(np.array(part) for part in zip(*later, strict=True)))))
    gaps, errors, degrees = (np.concatenate(parts) for parts in zip(*found, strict=True))
    halves = t_quantile(level, degrees) * errors
    columns = np.stack((gaps, errors, degrees, gaps - halves, gaps + halves, p_of_t(gaps, errors, degrees)), axis=1)
    return dict(zip(pairs, map(_Test._make, columns.tolist()), strict=True))


def joint_degrees(degrees: float, seeds: tuple[int, int], tests: int) -> float:
    """Degrees of freedom of one of several tests that are corrected together.

    Those that two seeds estimate are good enough for 5 %, not for a correction's small levels, which take the fewest
    that there can be (Mickey and Brown 1966).
    """
    return 1.0 if tests > 1 and min(seeds) == 2 else degrees


def missing(scores: Array) -> str | None:
    """Why a model with these scores (S, N) cannot be tested, if it cannot."""
    return NEEDS_SEEDS if len(scores) < 2 else NEEDS_IMAGES if scores.shape[1] < 2 else None


def summary(scores: Array) -> ScoreSummary:
    """Means and variances of scores (..., S, N); at least two seeds and two images."""
    seeds, images = scores.shape[-2:]
    by_image, by_seed = scores.mean(axis=-2), scores.mean(axis=-1)
    centred = by_seed - by_seed.mean(axis=-1, keepdims=True)
    left = scores - by_image[..., None, :] - centred[..., None]
    interaction = np.square(left).sum(axis=(-2, -1)) / ((seeds - 1) * (images - 1) * seeds * images)
    return ScoreSummary(by_image, np.square(centred).sum(axis=-1) / ((seeds - 1) * seeds), interaction, seeds)


def estimate(first: ScoreSummary, second: ScoreSummary) -> EstimatedDifference:
    """First less second, of models whose seeds are unpaired and whose images are the same.

    The variance is the seeds', s²_A / S_A + s²_B / S_B, and the images', that of the seed-averaged differences by N.
    Both hold the interaction of seeds and images, which is taken out of the images' once. The reciprocal of the degrees
    of freedom is the mean of the parts' reciprocals, weighted by their shares of the variance. Satterthwaite's (1946)
    weighs by squared shares: where two seeds estimate a share, these are too good, and 6 % are false positives.
    """
    gap = first.images - second.images
    between, seeds = (first.between, second.between), (first.seeds, second.seeds)
    parts = error_and_degrees(between, seeds, images_part(first, second), gap.shape[-1])
    return EstimatedDifference(gap.mean(axis=-1), *parts)


def images_part(first: ScoreSummary, second: ScoreSummary) -> Array:
    """What the images add to a difference's variance, without the interaction, which is in the seeds' part."""
    gap = first.images - second.images
    found: Array = gap.var(axis=-1, ddof=1) / gap.shape[-1] - first.interaction - second.interaction
    return np.maximum(found, 0.0)


def error_and_degrees(
    between: tuple[Array, Array], seeds: tuple[Array | int, Array | int], left: Array, images: int
) -> tuple[Array, Array]:
    """Standard errors and degrees of freedom from the variances of both models' means and `left`, the images' part."""
    part = between[0] + between[1]
    variance = part + left
    squares = np.square(between[0]) / (seeds[0] - 1) + np.square(between[1]) / (seeds[1] - 1)
    # squares / part is the seeds' part by Welch's degrees of freedom, so that models without any spread need no case.
    reciprocal = _ratio(_ratio(squares, part), variance) + _ratio(left, variance) / (images - 1)
    degrees = np.where(variance > 0, _ratio(np.ones_like(reciprocal), reciprocal), images - 1)
    return np.sqrt(variance), degrees


def t_quantile(level: float, degrees: Array) -> Array:
    """Within plus and minus this, t has the probability `level`; by element."""
    from scipy.special import stdtrit

    found: Array = stdtrit(degrees, (1 + level) / 2)
    return found


def p_of_t(difference: Array, error: Array, degrees: Array) -> Array:
    """Two-sided, by element; without any variation a difference is certain, and none is none."""
    from scipy.special import stdtr

    certain = error == 0
    t = np.abs(difference) / np.where(certain, 1.0, error)
    found: Array = np.where(certain, difference == 0, 2 * stdtr(degrees, -t))
    return found


def _ratio(numerator: Array, denominator: Array) -> Array:
    """By element, 0 where the denominator is."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator, dtype=np.float64), where=denominator > 0)


@dataclass(frozen=True, slots=True)
class PairOfModels:
    """Two models by their numbers, and the difference first less second.

    `low` and `high` hold for all pairs of the table at once, `adjusted` is p after Holm's correction for all of them.
    """

    first: int
    second: int
    difference: ArchitectureDifference
    low: float
    high: float
    adjusted: float


class Place(NamedTuple):
    """Best and worst rank of a model, 1 the best."""

    best: int
    worst: int


def places(models: Sequence[Array], alpha: float = ALPHA) -> tuple[list[PairOfModels], list[Place]]:
    """All pairs of models by their scores (S, N) of the same images in the same order, and each model's place.

    Each interval has the level 1 - alpha / pairs (Bonferroni), so that all hold at once with 1 - alpha, whatever the
    dependence between pairs. A place runs from 1 plus the number of models that are surely better to the number of
    models less those that are surely worse (Klein, Wright and Wieczorek 2020): then all places hold at once too.

    Raises:
        ValueError: a model has one seed or image, or the scores are not of the same number of images.
    """
    found = differences_by_pair(models)
    tests = len(found)
    columns = [
        (each.difference, each.error, joint_degrees(each.degrees or 0, each.seeds, tests)) for each in found.values()
    ]
    differences, errors, degrees = np.array(columns, dtype=np.float64).reshape(-1, 3).T
    halves = t_quantile(1 - alpha / max(tests, 1), degrees) * errors
    bounds = zip((differences - halves).tolist(), (differences + halves).tolist(), strict=True)
    adjusted = holm(p_of_t(differences, errors, degrees).tolist())
    pairs = [
        PairOfModels(*pair, each, low, high, p)
        for (pair, each), (low, high), p in zip(found.items(), bounds, adjusted, strict=True)
    ]
    better, worse = [0] * len(models), [0] * len(models)
    for each in pairs:
        if each.low > 0 or each.high < 0:
            winner, loser = (each.first, each.second) if each.low > 0 else (each.second, each.first)
            better[loser] += 1
            worse[winner] += 1
    return pairs, [Place(1 + better[model], len(models) - worse[model]) for model in range(len(models))]
