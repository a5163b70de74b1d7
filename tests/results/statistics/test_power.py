"""Power over seeds and images: against trials of the very test, and by its laws."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import stdtrit

from results.statistics.architecture import difference_of_means, joint_degrees, summary
from results.statistics.power import (
    MAX_SEEDS,
    POWER,
    detectable,
    detectable_at_best,
    deviation_bounds,
    least_images,
    least_seeds,
    seed_deviation_over,
)
from results.statistics.significance import sign_flip_columns
from tests.results.statistics.simulated import IMAGES, INTERACTION_DEVIATION, MODEL_IMAGE_DEVIATION, simulated

DEVIATION = st.floats(0.1, 50)
IMAGE_DEVIATION = MODEL_IMAGE_DEVIATION * 2**0.5


@pytest.mark.parametrize(
    ("seeds", "deviation", "tests"), [*product([2, 3, 5, 10], [2.0, 6.0, 15.0], [1]), *product([2, 3, 5], [6.0], [6])]
)
def test_four_of_five_trials_find_the_difference(seeds: int, deviation: float, tests: int) -> None:
    """Of several tests: as `bench regress` judges the row that fell, where no other test found anything."""
    generator = np.random.default_rng(7)
    of_means = float(np.hypot(deviation, INTERACTION_DEVIATION / IMAGES**0.5))
    difference = detectable(seeds, IMAGES, of_means, IMAGE_DEVIATION, tests)
    power = []
    for _ in range(4):
        one, two = simulated(generator, 250, (seeds, seeds), (deviation, deviation))
        found = difference_of_means(summary(one), summary(two))
        degrees = [joint_degrees(each, (seeds, seeds), tests) for each in found.degrees.tolist()]
        power.append(np.abs(found.difference + difference) > stdtrit(degrees, 1 - 0.025 / tests) * found.error)
    assert np.mean(power) == pytest.approx(POWER, abs=0.04 if tests == 1 else 0.05)


@pytest.mark.parametrize("images", [100, 1200])
@pytest.mark.parametrize("own", [0.0, 4.0])
def test_the_interaction_falls_with_the_images(images: int, own: float) -> None:
    """Planned from deviations over `IMAGES` images, found four times in five over fewer and more."""
    generator = np.random.default_rng(17)
    of_means = seed_deviation_over(
        images, float(np.hypot(own, INTERACTION_DEVIATION / IMAGES**0.5)), INTERACTION_DEVIATION, IMAGES
    )
    difference = detectable(3, images, of_means, IMAGE_DEVIATION)
    power = []
    for _ in range(8):
        one, two = simulated(generator, 100, (3, 3), (own, own), images)
        found = difference_of_means(summary(one), summary(two))
        power.append(np.abs(found.difference + difference) > stdtrit(found.degrees, 0.975) * found.error)
    assert np.mean(power) == pytest.approx(POWER, abs=0.04)


def test_no_images_lower_a_seeds_own_effect() -> None:
    assert seed_deviation_over(10**9, 5.0, 40.0, 100) == pytest.approx(3.0, abs=0.01)
    assert seed_deviation_over(100, 5.0, 40.0, 100) == pytest.approx(5.0)
    assert seed_deviation_over(400, 3.0, 40.0, 100) == 1.5  # all of it is the interaction


def test_a_paired_test_over_images_finds_what_it_detects() -> None:
    """The sign-flip test of one seed, skewed scores, one of six tests."""
    generator, images, tests = np.random.default_rng(13), 300, 6
    differences = 40 * (generator.standard_exponential((images, 400)) - generator.standard_exponential((images, 400)))
    size = detectable_at_best(images, float(differences.std(ddof=1)), tests)
    assert np.mean(sign_flip_columns(differences - size) < 0.05 / tests) == pytest.approx(POWER, abs=0.05)


def test_without_seed_variance_it_is_the_paired_t_tests() -> None:
    found = detectable_at_best(200, 30.0)
    assert stats.nct.sf(stats.t.ppf(0.975, 199), 199, found / (30.0 / 200**0.5)) == pytest.approx(POWER, abs=0.002)
    assert detectable(2, 200, 0.0, 30.0) == found
    assert detectable(2, 200, 0.0, 0.0) == 0


@settings(max_examples=15)
@given(st.integers(2, 40), st.integers(30, 5000), DEVIATION, DEVIATION)
def test_more_seeds_never_detect_less(seeds: int, images: int, seed: float, image: float) -> None:
    fewer, more = (detectable(count, images, seed, image) for count in (seeds, seeds + 1))
    assert detectable_at_best(images, image) <= more <= fewer


@settings(max_examples=15)
@given(st.integers(4, 40), st.integers(30, 5000), st.integers(1, 5000), DEVIATION, DEVIATION)
def test_from_four_seeds_more_images_never_detect_less(
    seeds: int, images: int, added: int, seed: float, image: float
) -> None:
    fewer, more = (detectable(seeds, count, seed, image) for count in (images, images + added))
    assert more <= fewer * (1 + 1e-9)
    assert detectable_at_best(images + added, image) < detectable_at_best(images, image)


@settings(max_examples=15)
@given(st.floats(0.1, 50), DEVIATION, DEVIATION)
def test_fewest_seeds_are_just_enough(points: float, seed: float, image: float) -> None:
    found = least_seeds(points, 500, seed, image)
    if found is None:
        assert detectable(MAX_SEEDS, 500, seed, image) > points
        return
    assert detectable(found, 500, seed, image) <= points
    assert found == 2 or detectable(found - 1, 500, seed, image) > points


@pytest.mark.parametrize(("points", "image"), [(1.0, 40.0), (0.2, 7.0), (900.0, 0.5)])
def test_fewest_images_are_just_enough(points: float, image: float) -> None:
    found = least_images(points, image)
    assert detectable_at_best(found, image) <= points
    assert found == 2 or detectable_at_best(found - 1, image) > points


def test_bounds_of_a_deviation_cover_it() -> None:
    estimated = np.random.default_rng(3).normal(0, 6, (2000, 4)).std(axis=1, ddof=1)
    inside = [low <= 6 <= high for low, high in (deviation_bounds(each, 3) for each in estimated.tolist())]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(("seeds", "images"), [(1, 100), (0, 100), (3, 1)])
def test_one_seed_or_image_detects_nothing(seeds: int, images: int) -> None:
    with pytest.raises(ValueError, match="two"):
        detectable(seeds, images, 1.0, 1.0)
