"""Tiers of a leaderboard's rows: which are significantly different, by their scores of the single images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from results.queries.views import SignificanceTest, Standing
from results.statistics.significance import (
    ALPHA,
    RESAMPLES,
    SEED,
    Array,
    holm_of_pairs,
    is_exact,
    sign_flip_tests,
    tiers,
)

Scores = Mapping[int, float]


def assign_tiers(
    rows: Sequence[Sequence[Scores]], metric: str
) -> tuple[list[Standing | None], SignificanceTest | None]:
    """The tier of each of the rows, best first, on `metric`, and the test that it comes from.

    A row is its seeds' scores by image, which are averaged over the seeds that have some. A row without any, or of
    other images than the first that has some, has none.
    """
    known = {place: [seed for seed in seeds if seed] for place, seeds in enumerate(rows)}
    images = next((seeds[0].keys() for seeds in known.values() if seeds), None)
    placed = [place for place, seeds in known.items() if seeds and all(seed.keys() == images for seed in seeds)]
    found: list[Standing | None] = [None] * len(rows)
    if images is None:
        return found, None
    scores = np.column_stack([_mean(known[place], list(images)) for place in placed])
    adjusted = holm_of_pairs(sign_flip_tests(scores))
    for column, (place, tier) in enumerate(zip(placed, tiers(list(scores.mean(axis=0)), adjusted), strict=True)):
        against = (float(adjusted[0, column]), float(adjusted[column - 1, column])) if column else (None, None)
        found[place] = Standing(tier, *against)
    return found, significance_test(metric, len(images), len(placed))


def significance_test(metric: str, images: int, rows: int, floor_tests: int = 0) -> SignificanceTest:
    """What tests on so many images were made with."""
    resamples = 2**images if is_exact(images, RESAMPLES) else RESAMPLES
    return SignificanceTest(metric, images, rows, resamples, SEED, ALPHA, floor_tests)


def _mean(seeds: Sequence[Scores], images: Sequence[int]) -> Array:
    values = np.array([[seed[image] for image in images] for seed in seeds], dtype=np.float64)
    mean: Array = values.mean(axis=0)
    return mean
