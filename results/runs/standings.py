"""The places of a leaderboard's rows: the floors first, then all pairs of rows over seeds and images, by metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from results.runs.finished_runs import ByImage, FinishedRun
from results.runs.floors import FLOORS, floor_rows, floor_tests
from results.runs.views import SignificanceTest, Standing
from results.statistics.architecture import NEEDS_IMAGES, NEEDS_SEEDS
from results.statistics.learning import LEAST, Learning, mean_learning
from results.statistics.places import Places, places
from results.statistics.significance import ALPHA, RESAMPLES, SEED, Array, is_exact

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
Rows = Sequence[Sequence[FinishedRun]]


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


def why_unfinished(runs: Sequence[FinishedRun], learning: Mapping[int, Learning]) -> str | None:
    """Why a row of these runs cannot be placed by what it had learnt, if it cannot."""
    trained = [learning[run.id] for run in runs if run.id in learning]
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


def _seeds(runs: Sequence[FinishedRun], split: str, scored: Scored, metric: str) -> list[ByImage]:
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
    tested = places(arrays)
    found = [Standing(reason=reason) for reason in reasons]
    order = sorted(range(len(members)), key=lambda member: -float(arrays[member].mean()))
    for rank, member in enumerate(order):
        place = tested.places[member]
        best, above = (_adjusted(tested, member, order[other]) if rank else None for other in (0, rank - 1))
        found[members[member]] = Standing(place.best, place.worst, place.reason, best, above)
    return found


def _no_place(seeds: Sequence[ByImage], scores: Array | None) -> str | None:
    """Why a row with these seeds' scores cannot be tested, if it cannot."""
    if scores is None:
        return OTHER_IMAGES if any(seeds) and all(seeds) else NO_SCORES
    return NEEDS_SEEDS if len(scores) < 2 else NEEDS_IMAGES if scores.shape[1] < 2 else None


def _adjusted(tested: Places, one: int, other: int) -> float | None:
    return next(pair.adjusted for pair in tested.pairs if {pair.first, pair.second} == {one, other})


def _test(metric: str, images: int, rows: int, floor_tests: int) -> SignificanceTest:
    resamples = 2**images if is_exact(images, RESAMPLES) else RESAMPLES
    return SignificanceTest(metric, images, rows, resamples, SEED, ALPHA, floor_tests)
