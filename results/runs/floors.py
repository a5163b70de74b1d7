"""Which rows of a leaderboard are above its floors: what one caption, copied captions and language alone score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from results.runs.finished_runs import ByImage, FinishedRun
from results.runs.views import FloorTest
from results.statistics.paired import mean_of_seeds
from results.statistics.significance import ALPHA, holm, sign_flip_columns

FLOORS: Final = ("majority", "retrieval", "blind")
_NO_PART: Final = "none"
"""What a reference's signature says of conditions that it has no part in."""


def floor_rows(
    rows: Sequence[Sequence[FinishedRun]], references: Sequence[Sequence[FinishedRun]]
) -> list[Sequence[FinishedRun]]:
    """The floors of a group: of its own `rows`, and of the `references` beside it those that were scored alike.

    Retrieval by the group's own features is meant where it ran by these, otherwise by any.
    """
    conditions = rows[0][0].conditions
    found = [runs for runs in rows if runs[0].model in FLOORS]
    other_features: list[Sequence[FinishedRun]] = []
    for runs in references:
        own = runs[0].conditions
        says_nothing = {"track", "v"} if "rev" in own else {"track"}  # of a results revision any release is
        differing = {name for name in own if own[name] not in (_NO_PART, conditions.get(name))} - says_nothing
        if runs[0].model in FLOORS and differing <= {"feat"}:
            (other_features if differing else found).append(runs)
    there = {runs[0].model for runs in found}
    return found + [runs for runs in other_features if runs[0].model not in there]


def floor_tests(
    rows: Sequence[Sequence[ByImage]], floors: Sequence[tuple[str, Sequence[ByImage]]]
) -> list[tuple[FloorTest, ...]]:
    """Each row's tests against all floors, corrected together; a row is not tested against floors of other images.

    Rows and floors are their seeds' scores by image, which are averaged over the seeds that have some.
    """
    means = [_mean(seeds) for seeds in rows]
    images = next((list(scores) for scores in means if scores), [])
    levels = [
        (name, _array(scores, images)) for name, seeds in floors if (scores := _mean(seeds)).keys() == set(images)
    ]
    tested = [place for place, scores in enumerate(means) if levels and scores and scores.keys() == set(images)]
    if not tested:
        return [()] * len(rows)
    columns = [_array(means[place], images) - level for place in tested for _, level in levels]
    p_values = iter(holm(sign_flip_columns(np.column_stack(columns)).tolist()))
    differences = iter(float(column.mean()) for column in columns)
    found: list[tuple[FloorTest, ...]] = [()] * len(rows)
    for place in tested:
        found[place] = tuple(_test(name, next(differences), next(p_values)) for name, _ in levels)
    return found


def _test(floor: str, difference: float, p: float) -> FloorTest:
    return FloorTest(floor, difference, p, significant=p < ALPHA)


def _mean(seeds: Sequence[ByImage]) -> ByImage:
    scored = [seed for seed in seeds if seed]
    return mean_of_seeds(scored) if scored else {}


def _array(scores: ByImage, images: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([scores[image] for image in images], dtype=np.float64)
