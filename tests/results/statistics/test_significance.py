"""Sign-flip tests, Holm's correction and tiers: against published numbers, exact answers and scipy."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pytest

from results.statistics.significance import (
    RESAMPLES,
    exchanges,
    holm,
    holm_of_pairs,
    is_exact,
    p_value,
    sign_flip_tests,
    tiers,
)

# Heights of Darwin's 15 pairs of maize plants, crossed less self-fertilised, in eighths of an inch. Fisher ("The Design
# of Experiments", 1935, section 21) counted that 1,726 of the 32,768 ways to give them signs make a sum as far from 0.
MAIZE = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]) / 8
FISHERS = 1_726 / 32_768


def two(differences: np.ndarray) -> np.ndarray:
    """Scores of two models that differ by so much."""
    return np.column_stack([differences, np.zeros(len(differences))])


def test_fishers_exact_p_value_of_darwins_maize() -> None:
    exact = sign_flip_tests(two(MAIZE), resamples=2**15)
    assert exact[0, 1] == exact[1, 0] == FISHERS
    drawn = sign_flip_tests(two(MAIZE))  # 10,000 of the 32,768
    assert drawn[0, 1] == pytest.approx(FISHERS, abs=0.007)
    assert drawn[0, 1] != FISHERS


def test_p_values_equal_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    scores = np.random.default_rng(3).normal(0.5, 0.2, (300, 3)) + np.array([0.0, 0.01, 0.03])
    found = sign_flip_tests(scores)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        theirs = stats.permutation_test(
            (scores[:, one], scores[:, other]),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples",
            n_resamples=9_999,
            batch=1_000,
            rng=1,
        )
        assert found[one, other] == pytest.approx(theirs.pvalue, abs=0.02)


def test_few_images_are_exchanged_in_every_way_once() -> None:
    patterns = np.concatenate(list(exchanges(3, resamples=8)))
    assert sorted(map(tuple, patterns.astype(int).tolist())) == sorted(product((0, 1), repeat=3))
    assert sign_flip_tests(two(np.array([1.0, 2.0, 3.0])))[0, 1] == 2 / 8
    assert is_exact(13, RESAMPLES)
    assert not is_exact(14, RESAMPLES)
    assert not is_exact(5_000, RESAMPLES)


def test_a_draw_counts_itself_among_those_drawn() -> None:
    assert p_value(0, 5_000, 999) == 1 / 1_000
    assert p_value(3, 2, 999) == 3 / 4


def test_equal_models_are_never_different() -> None:
    scores = np.repeat(np.random.default_rng(0).random((50, 1)), 3, axis=1)
    assert (sign_flip_tests(scores) == 1).all()


def test_large_differences_survive_the_correction_for_many_pairs() -> None:
    generator = np.random.default_rng(5)
    scores = generator.random((2_000, 1)) + generator.random((2_000, 60)) + 0.002 * np.arange(60)
    p = sign_flip_tests(scores)
    assert 0 < p[0, -1] < 1e-12, "less than 10,000 draws alone can tell"
    assert holm_of_pairs(p)[0, -1] < 1e-9
    neighbours = p[np.arange(59), np.arange(1, 60)]
    assert (neighbours > 1e-4).mean() > 0.9


def test_hoeffdings_bound_is_above_the_exact_p_value() -> None:
    differences = np.full(20, 0.5)  # only all signs alike are as extreme
    assert sign_flip_tests(two(differences), resamples=100)[0, 1] == pytest.approx(2 * np.exp(-10))
    assert 2 * np.exp(-10) > 2 / 2**20


def test_the_seed_decides() -> None:
    scores = np.random.default_rng(1).random((100, 4))
    assert (sign_flip_tests(scores) == sign_flip_tests(scores)).all()
    assert (sign_flip_tests(scores) != sign_flip_tests(scores, seed=1)).any()


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([]) == []
    pairs = np.array([[1.0, 0.01, 0.04], [0.01, 1.0, 0.03], [0.04, 0.03, 1.0]])
    assert holm_of_pairs(pairs) == pytest.approx(np.array([[1, 0.03, 0.06], [0.03, 1, 0.06], [0.06, 0.06, 1]]))


def test_tiers_follow_the_best_of_each() -> None:
    def apart(*pairs: str) -> np.ndarray:
        adjusted = np.full((4, 4), 0.5)
        for one, other in pairs:
            adjusted["abcd".index(one), "abcd".index(other)] = adjusted["abcd".index(other), "abcd".index(one)] = 0.01
        return adjusted

    scores = [0.8, 1.0, 0.7, 0.9]  # b, d, a, c
    assert tiers(scores, apart()) == [1, 1, 1, 1]
    assert tiers(scores, apart("ba", "bc", "da")) == [2, 1, 2, 1]
    assert tiers(scores, apart("bd", "ba", "bc", "da", "dc", "ac")) == [3, 1, 4, 2]
    assert tiers([], np.ones((0, 0))) == []


def test_twenty_models_of_five_thousand_images_take_a_moment() -> None:
    scores = np.random.default_rng(2).random((5_000, 20))
    started = time.process_time()
    holm_of_pairs(sign_flip_tests(scores))
    assert time.process_time() - started < 5
