"""How well numbers agree with people's judgements: Kendall's tau and pairwise accuracy, with intervals over images.

All three are ratios of sums over pairs of captions, so that each image has an influence on them (the infinitesimal
jackknife, Jaeckel 1972): the variance is the sum of its squares. The captions of an image stay together.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from results.statistics.estimate import Estimate
from results.statistics.significance import LEVEL, Array, holm

Indices = NDArray[np.int64]
TAU_B: Final = "tau-b"
TAU_C: Final = "tau-c"
ACCURACY: Final = "accuracy"
NO_RATINGS: Final = "no two captions that are compared have different ratings"


@dataclass(frozen=True, slots=True)
class Agreement:
    """A coefficient with its interval over images, and what each image adds to it."""

    estimate: Estimate
    influences: Array


def taus(scores: Array, ratings: Array, images: Indices) -> dict[str, Agreement]:
    """Stuart's (1953) tau-c and Kendall's (1945) tau-b of captions' scores and ratings, (N,); `images` count from 0."""
    image_count = int(images.max()) + 1
    concordant = _signs(scores, ratings)
    untied = [len(values) - _ties(values) for values in (scores, ratings)]
    total, (untied_scores, untied_ratings) = concordant.sum(), (counts.sum() for counts in untied)
    count = len(scores)
    fewer = min(len(np.unique(scores)), len(np.unique(ratings)))
    root = np.sqrt(untied_scores * untied_ratings)
    most_pairs = count**2 * (fewer - 1) / fewer
    with np.errstate(divide="ignore", invalid="ignore"):
        tau_b = total / root
        tau_c = total / most_pairs
        by_b = 2 * concordant / root - tau_b * (untied[0] / untied_scores + untied[1] / untied_ratings)
        by_c = 2 * concordant / most_pairs - 2 * tau_c / count
    return {TAU_C: _agreement(tau_c, by_c, images, image_count), TAU_B: _agreement(tau_b, by_b, images, image_count)}


def pairwise_accuracy(scores: Array, better: Indices, worse: Indices, images: Indices) -> Agreement:
    """The share of pairs of captions, by their numbers, whose `better` one has the higher score; ties count half."""
    right = (np.sign(scores[better] - scores[worse]) + 1) / 2
    value = right.mean() if len(right) else np.nan
    return _agreement(value, (right - value) / max(len(right), 1), images, int(images.max(initial=0)) + 1)


def differences(agreements: Mapping[str, Agreement]) -> dict[tuple[str, str], Estimate]:
    """By pair of names the first less the second, with its p over images after Holm's correction for all pairs."""
    from scipy.special import ndtr

    values = {name: agreement.estimate.value for name, agreement in agreements.items()}
    gaps: dict[tuple[str, str], float] = {}
    p_values: list[float] = []
    for first, second in combinations(values, 2):
        first_value = values[first]
        second_value = values[second]
        if first_value is None or second_value is None:
            continue
        gap = first_value - second_value
        error = _error(agreements[first].influences - agreements[second].influences)
        gaps[first, second] = gap
        p_values.append(2 * float(ndtr(-abs(gap) / error)) if error else float(gap == 0))
    return {
        pair: Estimate(gap, p=p, n=agreements[pair[0]].estimate.n)
        for (pair, gap), p in zip(gaps.items(), holm(p_values), strict=True)
    }


def pairs_of_images(ratings: Array, images: Indices) -> tuple[Indices, Indices, Indices]:
    """The better and worse caption of all pairs of one image that were rated apart, and their images."""
    pairs: list[tuple[int, int, int]] = []
    order = np.argsort(images, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(images[order])) + 1):
        for first, second in combinations(members.tolist(), 2):
            if ratings[first] != ratings[second]:
                pair = (first, second) if ratings[first] > ratings[second] else (second, first)
                pairs.append((*pair, int(images[first])))
    better, worse, pair_images = np.array(pairs, np.int64).reshape(-1, 3).T
    return better, worse, pair_images


def _agreement(value: float, by_item: Array, images: Indices, count: int) -> Agreement:
    from scipy.special import ndtri

    influences = np.bincount(images, by_item, minlength=count).astype(np.float64)
    judged = len(np.unique(images))
    if np.isnan(value):
        return Agreement(Estimate(None, n=judged, reason=NO_RATINGS), influences)
    half = float(ndtri((1 + LEVEL) / 2)) * _error(influences)
    return Agreement(Estimate(float(value), float(value - half), float(value + half), n=judged), influences)


def _error(influences: Array) -> float:
    moved = max(len(influences), 2)
    return float(np.sqrt(np.square(influences).sum() * moved / (moved - 1)))


def _signs(scores: Array, ratings: Array) -> Array:
    """For each caption the concordant less the discordant pairs with all others."""
    signs = np.zeros(len(scores))
    for level in np.unique(ratings):
        level_scores = np.sort(scores[ratings == level])
        lower = np.searchsorted(level_scores, scores, "left")
        higher = len(level_scores) - np.searchsorted(level_scores, scores, "right")
        signs += np.sign(ratings - level) * (lower - higher)
    return signs


def _ties(values: Array) -> Array:
    """For each value how many are the same, itself included."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    tied: Array = counts[inverse].astype(np.float64)
    return tied
