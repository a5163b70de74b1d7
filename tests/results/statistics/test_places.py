"""Places of a table: laws that hold for any scores, and three in a row."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.statistics.architecture import Place, architecture_difference, places
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
    found = places([*table, table[0]])[1]
    assert found[0] == found[-1]
    assert found[0].best != found[0].worst


@settings(max_examples=30)
@given(DRAWS, MODELS, SEEDS)
def test_a_model_better_on_every_image_and_seed_is_alone(seed: int, models: int, seeds: int) -> None:
    table = drawn(seed, models, seeds)
    winner = np.max([scores.max(axis=0) for scores in table], axis=0) + np.linspace(1e4, 1.0001e4, seeds)[:, None]
    found = places([*table, winner])[1]
    assert found[-1] == Place(1, 1)
    assert all(place.best >= 2 for place in found[:-1])


def test_three_in_a_row_overlap_where_only_the_ends_differ() -> None:
    base = drawn(1, 3, 4, spread=0)
    step = next(step for step in np.linspace(0, 100, 400) if _ends_alone([base[0] + 2 * step, base[1] + step, base[2]]))
    found = places([base[0] + 2 * step, base[1] + step, base[2]])[1]
    assert found == [Place(1, 2), Place(1, 3), Place(2, 3)]


@settings(max_examples=30)
@given(DRAWS, MODELS, st.integers(3, 5))
def test_a_place_holds_the_rank_of_the_mean(seed: int, models: int, seeds: int) -> None:
    table = drawn(seed, models, seeds, spread=20)
    means = [scores.mean() for scores in table]
    for mean, place in zip(means, places(table)[1], strict=True):
        assert place.best <= 1 + sum(other > mean for other in means) <= place.worst


@settings(max_examples=30)
@given(DRAWS, MODELS, SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_the_table_changes_nothing(seed: int, models: int, seeds: int, random: object) -> None:
    table = drawn(seed, models, seeds, spread=20)
    order = list(range(models))
    random.shuffle(order)  # type: ignore[attr-defined]
    found, moved = places(table)[1], places([table[index] for index in order])[1]
    assert [found[index] for index in order] == moved


def test_the_correction_is_holms_over_all_pairs() -> None:
    table = drawn(3, 4, 4, spread=10)
    alone = [architecture_difference(*pair).p or 0.0 for pair in combinations(table, 2)]
    assert [pair.adjusted for pair in places(table)[0]] == pytest.approx(holm(alone))
    assert all(pair.low < (pair.difference.low or 0) for pair in places(table)[0])


def test_two_models_are_placed_by_their_own_interval() -> None:
    [pair] = places(drawn(3, 2, 2))[0]
    assert (pair.low, pair.high) == (pytest.approx(pair.difference.low), pytest.approx(pair.difference.high))
    assert pair.adjusted == pair.difference.p


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_equal_models_are_seldom_told_apart(seeds: int) -> None:
    trials = 150
    table = simulated(np.random.default_rng(5), trials, [seeds] * 6, [2.0, 15.0] * 3)
    wrong = [
        any(place != Place(1, 6) for place in places([each[trial] for each in table])[1]) for trial in range(trials)
    ]
    assert sum(wrong) <= 13, "5 % of 150, and two standard deviations"


def _ends_alone(table: list[Array]) -> bool:
    return [pair.low > 0 for pair in places(table)[0]] == [False, True, False]
