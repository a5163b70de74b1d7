"""Control pairs of a store: which runs they are of, and differences as the test over seeds and images has them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from results import Store
from results.records import Quantity
from results.runs.controls import NEEDS_IMAGE_SCORES, Controls, controls
from results.runs.leaderboard import leaderboard
from results.runs.reading import finished
from results.statistics.architecture import NEEDS_SEEDS, architecture_difference
from results.statistics.significance import Array
from tests.results.conftest import SIGNATURE, Make

Add = Callable[..., str]
CHANGED = {**SIGNATURE, "preprocessing": "bicubic"}


def drawn(store: Store, model: str, seeds: Sequence[int], **changes: object) -> Array:
    """Runs with random scores of single images, and their means as scores; these, in points (S, 3)."""
    scores = np.random.default_rng(len(seeds) + len(model)).normal(0.8, 0.3, (len(seeds), 3))
    for seed, row in zip(seeds, scores.tolist(), strict=True):
        spec = Make.spec(model, seed, **changes)
        store.plan([spec])
        outcome = Make.outcome()
        split = replace(
            outcome.splits[0],
            per_image={"CIDEr-D": dict(zip((1, 2, 30), row, strict=True))},
            scores={"overall": {"CIDEr-D": Quantity(float(np.mean(row)))}},
        )
        store.finish(spec.key, replace(outcome, splits=(split,)))
    return 100 * scores


def found(store: Store) -> list[Controls]:
    return controls(store, leaderboard(store), {run.key: run for run in finished(store)})


@pytest.mark.parametrize(("count", "half"), [(4, 2), (5, 2), (6, 3)])
def test_the_second_half_of_the_seeds_is_against_the_first(store: Store, count: int, half: int) -> None:
    seeds = list(range(3, 3 + count))
    scores = drawn(store, "m2", seeds[::-1])[::-1]
    [only] = found(store)
    [pair] = only.pairs
    expected = architecture_difference(scores[half:], scores[:half])
    assert (pair.model, pair.change, pair.reason) == ("m2", None, None)
    assert pair.seeds == (count - half, half)
    assert (pair.difference, pair.low, pair.high, pair.p) == pytest.approx(
        (expected.difference, expected.low, expected.high, expected.p)
    )
    assert pair.difference == pytest.approx(scores[half:].mean() - scores[:half].mean())
    assert (only.largest, only.median) == (None, None), "one model differs from none"


def test_three_seeds_are_no_two_halves(store: Store) -> None:
    drawn(store, "m2", (0, 1, 2))
    assert found(store) == [Controls()]


def test_another_preprocessing_is_a_pair_of_the_group_without_it(store: Store) -> None:
    own = drawn(store, "m2", (0, 1, 2))
    other = drawn(store, "m2", (0, 1), signature=CHANGED, variant="c")
    first, second = found(store)
    [pair] = first.pairs
    expected = architecture_difference(other, own)
    assert (pair.change, pair.seeds, pair.reason) == ("bicubic", (2, 3), None)
    assert (pair.difference, pair.low, pair.p) == pytest.approx((expected.difference, expected.low, expected.p))
    assert second.pairs == ()


def test_one_seed_has_a_difference_and_nothing_else(store: Store) -> None:
    own, other = drawn(store, "m2", (0,)), drawn(store, "m2", (0,), signature=CHANGED, variant="c")
    [pair] = found(store)[0].pairs
    assert pair.difference == pytest.approx(other.mean() - own.mean())
    assert (pair.low, pair.high, pair.p, pair.reason) == (None, None, None, NEEDS_SEEDS)


@pytest.mark.parametrize(
    "changes",
    [
        {"signature": {**CHANGED, "beam": "1"}},
        {"signature": {**SIGNATURE, "feat": "other"}},
        {"signature": CHANGED, "config": {"training": {"epochs": 4}}},
        {"signature": CHANGED, "track": "paper"},
    ],
)
def test_runs_that_differ_in_anything_else_are_no_control(store: Store, changes: dict[str, object]) -> None:
    drawn(store, "m2", (0, 1))
    drawn(store, "m2", (0, 1), variant="c", **changes)
    drawn(store, "aoanet", (0, 1), signature=CHANGED)
    assert [pair for group in found(store) for pair in group.pairs] == []


def test_another_release_of_the_same_results_is_a_control(store: Store) -> None:
    for signature, variant in ((SIGNATURE | {"rev": "1", "v": "1"}, ""), (CHANGED | {"rev": "1", "v": "2"}, "c")):
        drawn(store, "m2", (0, 1), signature=signature, variant=variant)
    assert [pair.change for pair in found(store)[0].pairs] == ["bicubic"]


def test_without_scores_of_images_the_means_differ(store: Store, add: Add) -> None:
    own = drawn(store, "m2", (0, 1))
    spec = Make.spec("m2", 0, signature=CHANGED, variant="c")
    store.plan([spec])
    store.finish(spec.key, replace(Make.outcome(), splits=(replace(Make.outcome(0.5).splits[0], per_image={}),)))
    add("m2", 1, None, signature=CHANGED, variant="c")
    [pair] = found(store)[0].pairs
    assert pair.difference == pytest.approx(50 - own.mean())
    assert (pair.low, pair.p, pair.reason, pair.seeds) == (None, None, NEEDS_IMAGE_SCORES, (1, 2))


def test_the_table_differs_by_all_pairs_of_models_above_floors(store: Store) -> None:
    means = [drawn(store, model, (0, 1)).mean() for model in ("aoanet", "m2", "updown", "cgru")]
    drawn(store, "blind", (0, 1, 2))
    [only] = found(store)
    gaps = [abs(one - other) for one, other in combinations(means, 2)]
    assert (only.largest, only.median) == pytest.approx((max(gaps), np.median(gaps)))
