"""Differences over seeds and images: against independent computations, by their laws, and by simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from results.statistics.architecture import (
    NEEDS_IMAGES,
    NEEDS_SEEDS,
    architecture_difference,
    difference_of_means,
    summary,
    t_quantile,
)
from results.statistics.estimate import Estimate
from results.statistics.significance import Array
from tests.results.statistics.simulated import simulated

SEEDS = st.integers(2, 6)


def drawn(seed: int, seeds: int = 3, images: int = 40) -> Array:
    return np.random.default_rng(seed).normal(50, 10, (seeds, images))


def test_without_image_variance_it_is_welchs_t() -> None:
    one, two = [1.0, 4.0, 2.0], [7.0, 3.0, 9.0, 8.0]
    found = architecture_difference(*(np.repeat(np.array(side)[:, None], 20, axis=1) for side in (one, two)))
    expected = stats.ttest_ind(one, two, equal_var=False)
    bounds = expected.confidence_interval(0.95)
    assert (found.estimate.p, found.degrees) == (pytest.approx(expected.pvalue), pytest.approx(expected.df))
    assert (found.estimate.low, found.estimate.high) == (pytest.approx(bounds.low), pytest.approx(bounds.high))


def test_without_seed_variance_it_is_the_paired_t() -> None:
    one, two = drawn(0, 1), drawn(1, 1)
    found = architecture_difference(np.repeat(one, 3, axis=0), np.repeat(two, 2, axis=0))
    expected = stats.ttest_rel(one[0], two[0])
    bounds = expected.confidence_interval(0.95)
    assert (found.estimate.p, found.degrees) == (pytest.approx(expected.pvalue), pytest.approx(39))
    assert (found.estimate.low, found.estimate.high) == (pytest.approx(bounds.low), pytest.approx(bounds.high))


def test_variances_are_those_of_a_two_way_analysis() -> None:
    scores = drawn(3, 4, 25)
    mean, seed, image = scores.mean(), scores.mean(axis=1), scores.mean(axis=0)
    residual = sum(
        (scores[row, column] - seed[row] - image[column] + mean) ** 2 for row in range(4) for column in range(25)
    )
    found = summary(scores)
    assert found.between == pytest.approx(stats.sem(seed) ** 2)
    assert found.interaction == pytest.approx(residual / (3 * 24) / (4 * 25))


@settings(max_examples=30)
@given(st.integers(0, 10_000), SEEDS, SEEDS)
def test_exchanging_the_models_negates_the_difference(seed: int, one: int, two: int) -> None:
    sides = drawn(seed, one), drawn(seed + 1, two)
    there, back = architecture_difference(*sides).estimate, architecture_difference(*sides[::-1]).estimate.negated()
    assert (there.value, there.low, there.high, there.p) == pytest.approx((back.value, back.low, back.high, back.p))


@settings(max_examples=30)
@given(st.integers(0, 10_000), SEEDS, SEEDS)
def test_degrees_lie_between_the_smaller_side_and_images(seed: int, one: int, two: int) -> None:
    found = architecture_difference(drawn(seed, one), drawn(seed + 1, two))
    assert found.degrees is not None
    assert min(one, two) - 1 <= found.degrees + 1e-9
    assert found.degrees <= 39 + 1e-9


@settings(max_examples=30)
@given(st.integers(0, 10_000), SEEDS)
def test_a_model_does_not_differ_from_itself(seed: int, seeds: int) -> None:
    found = architecture_difference(drawn(seed, seeds), drawn(seed, seeds)).estimate
    assert (found.value, found.p) == (0, 1)


def test_scores_that_never_vary_decide_at_once() -> None:
    ones = np.ones((2, 5))
    same, other = (architecture_difference(ones, side).estimate for side in (ones, 2 * ones))
    assert (same.p, same.low, same.high) == (1, 0, 0)
    assert (other.p, other.low, other.high) == (0, -1, -1)


@pytest.mark.parametrize(
    ("one", "two", "reason"),
    [((1, 9), (3, 9), NEEDS_SEEDS), ((3, 9), (1, 9), NEEDS_SEEDS), ((2, 1), (2, 1), NEEDS_IMAGES)],
)
def test_too_few_seeds_or_images_give_no_interval(one: tuple[int, int], two: tuple[int, int], reason: str) -> None:
    found = architecture_difference(np.ones(one), np.zeros(two))
    assert found.estimate == Estimate(1, n=one[1], reason=reason)
    assert (found.error, found.degrees) == (None, None)


@pytest.mark.parametrize("other", [(3, 8), (3, 0), (9,)])
def test_scores_of_other_images_are_an_error(other: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="same images"):
        architecture_difference(np.ones((3, 9)), np.ones(other))


@pytest.mark.parametrize("deviation", [2.0, 4.0, 15.0])
@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_intervals_cover_the_true_difference(seeds: int, deviation: float) -> None:
    first, second = simulated(np.random.default_rng(7), 1000, (seeds, seeds), (deviation, deviation))
    found = difference_of_means(summary(first), summary(second))
    halves = [t_quantile(0.95, degrees) for degrees in found.degrees.tolist()] * found.error
    covered = float(np.mean(np.abs(found.difference) <= halves))
    assert 0.945 <= covered <= 0.975, "at most 5.5 % are false; 0.5 % more than 97, the error of 1,000 trials"
