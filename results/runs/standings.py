"""The places of a leaderboard's rows: the floors first, then all pairs of rows over seeds and images, by metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import variance
from typing import Final

import numpy as np

from results.runs.run import ByImage, Run
from results.statistics.architecture import NEEDS_IMAGES, NEEDS_SEEDS, places
from results.statistics.learning import LEAST, mean_learning
from results.statistics.significance import (
    ALPHA,
    RESAMPLES,
    SEED,
    Array,
    holm,
    is_exact,
    mean_of_seeds,
    sign_flip_columns,
)

FLOORS: Final = ("majority", "retrieval", "blind")
_NO_PART: Final = "none"
"""What a reference's signature says of conditions that it has no part in."""
NOT_ABOVE: Final = "not above the floor"
STILL_LEARNING: Final = "still learning: validation was rising when the training ended"
NEAR_ZERO: Final = "the learning rate was near zero for the end of its training: it may not have finished learning"
AT_CHANCE: Final = "at the level of chance: no validation was above one point of CIDEr-D"
TOO_SHORT: Final = f"fewer than {LEAST} validations: they do not say whether it had finished learning"
ALONE: Final = "no other row has a place to compare it with"
OTHER_IMAGES: Final = "scored on other images than the other rows"
NO_SCORES: Final = (
    "no numbers of single images are stored (bench run, as the run was made, adds those of BLEU and METEOR)"
)

Scored = Mapping[str, Mapping[tuple[int, str], ByImage]]
"""By metric, then by run id and split: one number an image, whose mean is the score."""
Rows = Sequence[Sequence[Run]]


@dataclass(frozen=True, slots=True)
class FloorTest:
    """A row against a floor, by their scores of single images, averaged over seeds.

    `difference` is the row's mean less the floor's, `p` of a paired sign-flip test after Holm's correction for all rows
    and floors of the group.
    """

    floor: str
    difference: float
    p: float
    significant: bool

    @property
    def above(self) -> bool:
        """Whether the row is significantly above the floor."""
        return self.significant and self.difference > 0


@dataclass(frozen=True, slots=True)
class Standing:
    """A row's place among the rows of its group on one metric: ranks `best` to `worst`, 1 the best.

    Both are None with a `reason`: one seed, a training that had not ended, a floor (`is_floor`) or a row that is not
    above each of its group's `floors`. `against_best` and `against_above` are p-values over seeds and images, after
    Holm's correction for all pairs of placed rows, of the difference from the best row and from the next better one.
    """

    best: int | None = None
    worst: int | None = None
    reason: str | None = None
    against_best: float | None = None
    against_above: float | None = None
    floors: tuple[FloorTest, ...] = ()
    is_floor: bool = False

    @property
    def not_above(self) -> tuple[FloorTest, ...]:
        """The floors that the row is not significantly above."""
        return tuple(test for test in self.floors if not test.above)


@dataclass(frozen=True, slots=True)
class SignificanceTest:
    """The tests behind a group's places on `metric`: all pairs of `rows` rows on `images` images, at level `alpha`.

    Before these, `floor_tests` times a row against a floor: paired sign-flip tests over images of the means over seeds,
    by `resamples` resamples from `seed`.
    """

    metric: str
    images: int
    rows: int
    resamples: int
    seed: int
    alpha: float
    floor_tests: int = 0


@dataclass(frozen=True, slots=True)
class Reseeding:
    """How far other seeds moved the rows of a group, on its ranking metric.

    Over `rows` rows of `seeds` seeds or more: the pooled standard `deviation` of a seed's score, the `largest`
    difference of two seeds of a row, and the most `ranks` that a row moves where each seed is ranked alone (None with
    one row). Fractions.
    """

    rows: int
    seeds: int
    deviation: float
    largest: float
    ranks: int | None


def floor_rows(rows: Sequence[Sequence[Run]], references: Sequence[Sequence[Run]]) -> list[Sequence[Run]]:
    """The floors of a group: of its own `rows`, and of the `references` beside it those that were scored alike.

    Retrieval by the group's own features is meant where it ran by these, otherwise by any.
    """
    conditions = rows[0][0].conditions
    found = [runs for runs in rows if runs[0].model in FLOORS]
    other_features: list[Sequence[Run]] = []
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
        found[place] = tuple(
            FloorTest(name, next(differences), p := next(p_values), significant=p < ALPHA) for name, _ in levels
        )
    return found


def _mean(seeds: Sequence[ByImage]) -> ByImage:
    scored = [seed for seed in seeds if seed]
    return mean_of_seeds(scored) if scored else {}


def _array(scores: ByImage, images: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([scores[image] for image in images], dtype=np.float64)


def standings(
    rows: Rows, references: Rows, split: str, scored: Scored, metric: str, unfinished: Mapping[int, str]
) -> tuple[list[dict[str, Standing]], SignificanceTest | None]:
    """Each row's standing by metric, and the tests on `metric`.

    Floors are judged on `metric`, for all metrics; one at the level of chance is none. `unfinished` has the row numbers
    that get no place, and why.
    """
    is_floor = [runs[0].model in FLOORS for runs in rows]
    own = [_seeds(runs, split, scored, metric) for runs in rows]
    at_chance = {rows[number][0].id for number, reason in unfinished.items() if reason == AT_CHANCE}
    floors = [
        (runs[0].model, _seeds(runs, split, scored, metric))
        for runs in floor_rows(rows, references)
        if runs[0].id not in at_chance
    ]
    against = floor_tests([[] if floor else seeds for floor, seeds in zip(is_floor, own, strict=True)], floors)
    without = {place: NOT_ABOVE for place, tests in enumerate(against) if not all(test.above for test in tests)}
    without |= {place: "floor" for place, floor in enumerate(is_floor) if floor}
    found: list[dict[str, Standing]] = [{} for _ in rows]
    placed = 0
    for name in scored:
        seeds = [_seeds(runs, split, scored, name) for runs in rows]
        of_metric = _places(seeds, {**unfinished, **without})
        for place, standing in enumerate(of_metric):
            found[place][name] = replace(standing, floors=against[place], is_floor=is_floor[place])
        placed = sum(each.best is not None for each in of_metric) if name == metric else placed
    images = next((len(seed) for seeds in own for seed in seeds if seed), 0)
    tests = sum(map(len, against))
    return found, _test(metric, images, placed, tests) if placed > 1 or tests else None


def why_unfinished(runs: Sequence[Run]) -> str | None:
    """Why a row of these runs cannot be placed by what it had learnt, if it cannot."""
    trained = [run.learning for run in runs if run.learning is not None]
    if not trained:
        return None
    reasons: dict[str, str] = {
        "still learning": STILL_LEARNING,
        "rate near zero": NEAR_ZERO,
        "at chance": AT_CHANCE,
        "unknown": TOO_SHORT,
    }
    return reasons.get(mean_learning(trained).state)


def matrix(seeds: Sequence[ByImage]) -> Array | None:
    """Scores (S, N) of seeds that all have the same images; None where one has none, or others."""
    if not seeds or not seeds[0] or any(seed.keys() != seeds[0].keys() for seed in seeds):
        return None
    images = sorted(seeds[0])
    return np.array([list(map(seed.__getitem__, images)) for seed in seeds], dtype=np.float64)


def _seeds(runs: Sequence[Run], split: str, scored: Scored, metric: str) -> list[ByImage]:
    by_run = scored.get(metric, {})
    return [by_run.get((run.id, split), {}) for run in runs]


def _places(rows: Sequence[Sequence[ByImage]], without: Mapping[int, str]) -> list[Standing]:
    """Standings of rows by their seeds' scores; those in `without` are left out for the reason given."""
    scores = [matrix(seeds) for seeds in rows]
    reasons = [
        without.get(number) or _no_place(seeds, each)
        for number, (seeds, each) in enumerate(zip(rows, scores, strict=True))
    ]
    images = next((rows[number][0].keys() for number, reason in enumerate(reasons) if reason is None), None)
    for number, reason in enumerate(reasons):
        if reason is None and rows[number][0].keys() != images:
            reasons[number] = OTHER_IMAGES
    members = [number for number, reason in enumerate(reasons) if reason is None]
    if len(members) < 2:
        return [Standing(reason=reason or ALONE) for reason in reasons]
    arrays = [each for number in members if (each := scores[number]) is not None]
    pairs, ranks = places(arrays)
    adjusted = {frozenset((pair.first, pair.second)): pair.adjusted for pair in pairs}
    found = [Standing(reason=reason) for reason in reasons]
    order = sorted(range(len(members)), key=lambda member: -float(arrays[member].mean()))
    for rank, member in enumerate(order):
        best, above = (adjusted[frozenset((member, order[other]))] if rank else None for other in (0, rank - 1))
        found[members[member]] = Standing(*ranks[member], None, best, above)
    return found


def _no_place(seeds: Sequence[ByImage], scores: Array | None) -> str | None:
    """Why a row with these seeds' scores cannot be tested, if it cannot."""
    if scores is None:
        return OTHER_IMAGES if any(seeds) and all(seeds) else NO_SCORES
    return NEEDS_SEEDS if len(scores) < 2 else NEEDS_IMAGES if scores.shape[1] < 2 else None


def _test(metric: str, images: int, rows: int, floor_tests: int) -> SignificanceTest:
    resamples = 2**images if is_exact(images, RESAMPLES) else RESAMPLES
    return SignificanceTest(metric, images, rows, resamples, SEED, ALPHA, floor_tests)


def reseeding(rows: Iterable[Sequence[Run]], split: str, metric: str) -> Reseeding | None:
    """Of the rows with several seeds that were scored; None where there is none."""
    several = [scores for runs in rows if len(scores := _scores(runs, split, metric)) > 1]
    if not several:
        return None
    degrees = sum(len(scores) - 1 for scores in several)
    squares = sum((len(scores) - 1) * variance(scores) for scores in several)
    seeds = min(map(len, several))
    largest = max(max(scores) - min(scores) for scores in several)
    return Reseeding(len(several), seeds, sqrt(squares / degrees), largest, _ranks(several, seeds))


def _scores(runs: Sequence[Run], split: str, metric: str) -> list[float]:
    found = (run.scores[split]["overall"].get(metric) for run in runs)
    return [score.value for score in found if score is not None and score.value is not None]


def _ranks(rows: Sequence[Sequence[float]], seeds: int) -> int | None:
    """The most ranks that a row moves where its first, second ... seeds are ranked apart."""
    if len(rows) < 2:
        return None
    ranked: list[list[int]] = []
    for seed in range(seeds):
        order = sorted(range(len(rows)), key=lambda row: -rows[row][seed])
        ranked.append([order.index(row) for row in range(len(rows))])
    return max(max(of[row] for of in ranked) - min(of[row] for of in ranked) for row in range(len(rows)))
