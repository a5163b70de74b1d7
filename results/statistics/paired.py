"""Paired differences of two results on the same images: mean, bootstrap interval and sign-flip test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

import numpy as np

from results.statistics.significance import Array, draws, holm, sign_flip_columns

ByImage = Mapping[int, float]
MEANS: Final = ("CIDEr-D", "ROUGE-L", "SPICE")
"""Metrics whose score is the mean of the images' scores; BLEU and METEOR sum statistics before they divide."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Means before and after, `difference` after less before with its 95 % bootstrap interval over images.

    `p` is of the two-sided sign-flip test, `adjusted` after Holm's correction for all that were tested together.
    """

    before: float
    after: float
    difference: float
    low: float
    high: float
    p: float
    adjusted: float
    images: int


def paired_differences(pairs: Sequence[tuple[ByImage, ByImage]]) -> list[Difference]:
    """The difference of every (before, after), scores by image id; ValueError where a pair is not of the same images.

    Every pair is one test, and all are corrected together.
    """
    places: dict[tuple[int, ...], list[int]] = {}
    for place, (before, after) in enumerate(pairs):
        if before.keys() != after.keys() or not before:
            raise ValueError("scores of different images, or of none, cannot be paired")
        places.setdefault(tuple(sorted(before)), []).append(place)
    found: dict[int, Difference] = {}
    for images, members in places.items():
        columns = [[pairs[place][1][image] - pairs[place][0][image] for image in images] for place in members]
        tests = _test(np.array(columns, dtype=np.float64).T)
        for place, (low, high, p) in zip(members, tests, strict=True):
            one, two = (fmean(side.values()) for side in pairs[place])
            found[place] = Difference(one, two, two - one, low, high, p, p, len(images))
    tested = [found[place] for place in range(len(pairs))]
    adjusted = holm([each.p for each in tested])
    return [replace(each, adjusted=value) for each, value in zip(tested, adjusted, strict=True)]


def mean_of_seeds(seeds: Sequence[ByImage]) -> dict[int, float]:
    """Each image's mean over seeds; images that a seed lacks are left out."""
    images = set.intersection(*(set(seed) for seed in seeds))
    return {image: fmean(seed[image] for seed in seeds) for image in sorted(images)}


def _test(differences: Array) -> list[tuple[float, float, float]]:
    """Low and high end and p-value of each column of differences, (N, K); columns of zeros need no resampling."""
    found = [(0.0, 0.0, 1.0)] * differences.shape[1]
    moved = np.flatnonzero(differences.any(axis=0))
    if not len(moved):
        return found
    differences = differences[:, moved]
    p_values, (low, high) = sign_flip_columns(differences), _interval(differences)
    for place, column in enumerate(moved.tolist()):
        found[column] = (float(low[place]), float(high[place]), float(p_values[place]))
    return found


def _interval(differences: Array) -> tuple[Array, Array]:
    """Percentile bootstrap of the columns' means (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993)."""
    means = np.concatenate([drawn @ differences for drawn in draws(len(differences))]) / len(differences)
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return low, high
