"""Places of a table: laws that hold for any scores, and three in a row."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.statistics.architecture import NEEDS_SEEDS, architecture_difference
from results.statistics.places import Place, places
from results.statistics.significance import Array, holm
from tests.results.statistics.simulated import simulated

DRAWS = st.integers(0, 10_000)
MODELS = st.integers(2, 6)
SEEDS = st.integers(2, 5)


def drawn(seed: int, models: int, seeds: int, spread: float = 3.0) -> list[Array]:
    """Models whose expected scores differ about as much as their seeds do."""
    generator = np.random.default_rng(seed)
    noise = simulated(generator, 1, [seeds] * models, [2.0] * models, images=50)
    return [scores[0] + generator.normal(0, spread) for scores in noise]


@settings(max_examples=30)
@given(DRAWS, MODELS, SEEDS)
def test_identical_models_share_their_place(seed: int, models: int, seeds: int) -> None:
    table = drawn(seed, models, seeds)
    found = places([*table, table[0]]).places
    assert found[0] == found[-1]
    assert found[0].best != found[0].worst


@settings(max_examples=30)
@given(DRAWS, MODELS, SEEDS)
def test_a_model_better_on_every_image_and_seed_is_alone(seed: int, models: int, seeds: int) -> None:
    table = drawn(seed, models, seeds)
    winner = np.max([scores.max(axis=0) for scores in table], axis=0) + np.linspace(1e4, 1.0001e4, seeds)[:, None]
    found = places([*table, winner]).places
    assert found[-1] == Place(1, 1)
    assert all(place.best is not None and place.best >= 2 for place in found[:-1])


def test_three_in_a_row_overlap_where_only_the_ends_differ() -> None:
    base = drawn(1, 3, 4, spread=0)
    step = next(step for step in np.linspace(0, 100, 400) if _ends_alone([base[0] + 2 * step, base[1] + step, base[2]]))
    found = places([base[0] + 2 * step, base[1] + step, base[2]]).places
    assert found == (Place(1, 2), Place(1, 3), Place(2, 3))


@settings(max_examples=30)
@given(DRAWS, MODELS, st.integers(3, 5))
def test_a_place_holds_the_rank_of_the_mean(seed: int, models: int, seeds: int) -> None:
    table = drawn(seed, models, seeds, spread=20)
    means = [scores.mean() for scores in table]
    for mean, place in zip(means, places(table).places, strict=True):
        assert place.best is not None
        assert place.worst is not None
        assert place.best <= 1 + sum(other > mean for other in means) <= place.worst


@settings(max_examples=30)
@given(DRAWS, MODELS, SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_the_table_changes_nothing(seed: int, models: int, seeds: int, random: object) -> None:
    table = drawn(seed, models, seeds, spread=20)
    order = list(range(models))
    random.shuffle(order)  # type: ignore[attr-defined]
    found, moved = places(table).places, places([table[index] for index in order]).places
    assert [found[index] for index in order] == list(moved)


def test_the_correction_is_holms_over_all_pairs() -> None:
    table = drawn(3, 4, 4, spread=10)
    alone = [architecture_difference(*pair).p or 0.0 for pair in combinations(table, 2)]
    assert [pair.adjusted for pair in places(table).pairs] == pytest.approx(holm(alone))
    wide = [
        pair.low < pair.difference.low
        for pair in places(table).pairs
        if pair.low is not None and pair.difference.low is not None
    ]
    assert wide == [True] * 6


def test_two_models_are_placed_by_their_own_interval() -> None:
    [pair] = places(drawn(3, 2, 2)).pairs
    assert (pair.low, pair.high) == (pytest.approx(pair.difference.low), pytest.approx(pair.difference.high))
    assert pair.adjusted == pair.difference.p


def test_a_model_with_one_seed_has_no_place_and_takes_none() -> None:
    table = drawn(3, 3, 4)
    found = places([table[0], table[1][:1], table[2]])
    assert found.places[1] == Place(None, None, NEEDS_SEEDS)
    assert (found.places[0], found.places[2]) == places([table[0], table[2]]).places
    assert [pair.adjusted is None for pair in found.pairs] == [True, False, True]


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_equal_models_are_seldom_told_apart(seeds: int) -> None:
    trials = 150
    table = simulated(np.random.default_rng(5), trials, [seeds] * 6, [2.0, 15.0] * 3)
    wrong = [
        any(place != Place(1, 6) for place in places([each[trial] for each in table]).places) for trial in range(trials)
    ]
    assert sum(wrong) <= 13, "5 % of 150, and two standard deviations"


def _ends_alone(table: list[Array]) -> bool:
    return [pair.low is not None and pair.low > 0 for pair in places(table).pairs] == [False, True, False]
