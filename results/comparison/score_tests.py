"""The tests of a comparison's scores: over seeds and images where both sides have several seeds, else over images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from results.comparison.comparison_types import ScoreChange
from results.comparison.run_snapshot import RunSnapshot
from results.statistics.architecture import (
    OVER_IMAGES,
    OVER_SEEDS,
    ArchitectureDifference,
    architecture_difference,
    joint_degrees,
    p_of_t,
)
from results.statistics.paired import MEANS, ByImage, Difference, mean_of_seeds, paired_differences
from results.statistics.significance import holm

NO_INTERVAL: Final = (
    "the single images' scores are tested, whose mean is not the score, since a run has no influences of images on it "
    "(`bench run`, as that run was made, adds them)"
)

SeedsOfSides = tuple[Sequence[ByImage], Sequence[ByImage]]
"""Numbers of images before and after, of each seed."""


def numbers_to_test(
    before: Sequence[RunSnapshot], after: Sequence[RunSnapshot], split: str, metric: str
) -> tuple[SeedsOfSides, str | None]:
    """The images' numbers of the seeds that have some, and why the score's change has no interval by them.

    Their mean is the score: they are scores of metrics that are means, influences on others. Where a run lacks
    influences, they are scores of single images, and there is no interval.
    """
    weighed = all(metric in run.influences.get(split, {}) for run in (*before, *after))
    influences = weighed and metric not in MEANS

    def of(runs: Sequence[RunSnapshot]) -> list[ByImage]:
        found = [(run.influences if influences else run.by_image).get(split, {}) for run in runs]
        return [by_metric[metric] for by_metric in found if metric in by_metric]

    return (of(before), of(after)), None if influences or metric in MEANS else NO_INTERVAL


def with_tests(scores: Sequence[tuple[ScoreChange, SeedsOfSides]]) -> list[ScoreChange]:
    """Scores with their tests, all corrected together; both sides are of the same images.

    One that says why it has no interval is tested over images, whatever its seeds.
    """
    paired = paired_differences([(mean_of_seeds(before), mean_of_seeds(after)) for _, (before, after) in scores])
    found = [_tested(score, sides, test) for (score, sides), test in zip(scores, paired, strict=True)]
    adjusted = holm([_correctable(score.architecture, test, len(found)) for score, test in found])
    return [replace(score, test=replace(test, adjusted=p)) for (score, test), p in zip(found, adjusted, strict=True)]


def _tested(score: ScoreChange, sides: SeedsOfSides, test: Difference) -> tuple[ScoreChange, Difference]:
    """What the score's test is over, and the test."""
    wide = _over_seeds(*sides) if score.no_interval is None else None
    if wide is None or wide.low is None or wide.high is None or wide.p is None:
        return replace(score, over=OVER_IMAGES), test
    test = replace(test, low=wide.low, high=wide.high, p=wide.p)
    return replace(score, over=OVER_SEEDS, architecture=wide), test


def _correctable(wide: ArchitectureDifference | None, test: Difference, tests: int) -> float:
    """The p-value that a correction for so many tests may take."""
    if wide is None or wide.error is None or wide.degrees is None:
        return test.p
    degrees = joint_degrees(wide.degrees, wide.seeds, tests)
    return float(p_of_t(*map(np.asarray, (wide.difference, wide.error, degrees))))


def _over_seeds(before: Sequence[ByImage], after: Sequence[ByImage]) -> ArchitectureDifference:
    images = list(mean_of_seeds([*before, *after]))
    one, two = (np.array([[seed[image] for image in images] for seed in side]) for side in (before, after))
    return architecture_difference(two, one)
