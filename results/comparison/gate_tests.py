"""The tests of the gate: over seeds and images where rows have several seeds, else over these weights' images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from results.comparison.comparison_types import ScoreChange
from results.comparison.gate_result import IDENTICAL, Settings, Tested, Verdict
from results.comparison.score_tests import SeedsOfSides, with_tests
from results.statistics.architecture import OVER_IMAGES, OVER_SEEDS
from results.statistics.paired import ByImage, Difference, mean_of_seeds
from results.statistics.power import detectable_at_best, detectable_from
from results.statistics.significance import ALPHA, Array

FEWEST_IMAGES: Final = 6
"""With fewer no sign-flip test reaches p < 0.05, and so none excludes anything."""


class Scores(NamedTuple):
    """One metric of one split: the images' scores before and after, of each seed, on the same images."""

    split: str
    metric: str
    sides: SeedsOfSides


def gate_tests(wanted: Sequence[Scores], settings: Settings) -> list[Tested]:
    """The test of each, by the estimator of `bench compare`, all corrected together.

    Where every image's scores are identical, nothing is tested: the difference is 0, and the interval no wider. It
    counts among the tests all the same, with p = 1.
    """
    changes = with_tests([(ScoreChange(each.split, each.metric, None, None), each.sides) for each in wanted])
    return [_tested(each, change, settings, len(wanted)) for each, change in zip(wanted, changes, strict=True)]


def _tested(scores: Scores, change: ScoreChange, settings: Settings, tests: int) -> Tested:
    test, over = change.test, change.over
    assert test is not None
    assert over is not None
    before, after = scores.sides
    if all(one == two for one, two in zip(before, after, strict=True)):
        return Tested(scores.split, scores.metric, replace(test, low=0.0, high=0.0), "same", IDENTICAL)
    return Tested(
        scores.split,
        scores.metric,
        test,
        _verdict(test, settings.least(scores.metric)),
        over,
        _detectable(scores.sides, over, tests),
        change.architecture,
    )


def _verdict(test: Difference, least: float) -> Verdict:
    """What a difference means, with the least effect in points.

    The interval is of one test, not corrected: that all of several rows are within the tolerance is wrongly said no
    more often than that one of them is (Berger, "Multiparameter Hypothesis Testing and Acceptance Sampling",
    Technometrics 1982).
    """
    if test.adjusted < ALPHA and 100 * abs(test.difference) >= least:
        return "improved" if test.difference > 0 else "regressed"
    return "within" if 100 * test.low > -least and test.images >= FEWEST_IMAGES else "undecided"


def _detectable(sides: SeedsOfSides, over: str, tests: int) -> float | None:
    """The smallest fall that such a test finds, from how much these scores vary."""
    images = list(mean_of_seeds([*sides[0], *sides[1]]))
    if len(images) < FEWEST_IMAGES:
        return None
    before, after = (_array(side, images) for side in sides)
    if over == OVER_SEEDS:
        return detectable_from(before, after, tests)
    assert over == OVER_IMAGES
    return detectable_at_best(len(images), float((after.mean(axis=0) - before.mean(axis=0)).std(ddof=1)), tests)


def _array(side: Sequence[ByImage], images: Sequence[int]) -> Array:
    return np.array([[seed[image] for image in images] for seed in side])
