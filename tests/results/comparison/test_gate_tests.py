"""The gate's tests: what they are over, the words they end in, and the smallest fall that they find."""

from __future__ import annotations

import numpy as np
import pytest

from results.comparison.gate import IDENTICAL, Scores, Settings, Tested, gate_tests
from results.statistics.architecture import OVER_IMAGES, OVER_SEEDS, architecture_difference
from results.statistics.power import detectable_at_best, detectable_from
from results.statistics.significance import Array, paired_differences

SETTINGS = Settings(tolerance={"CIDEr-D": 5.0})


def scores(before: Array, after: Array) -> Scores:
    """Of arrays (S, N), in points."""
    one, two = ([dict(enumerate((seed / 100).tolist(), 1)) for seed in side] for side in (before, after))
    return Scores("test", "CIDEr-D", (one, two))


def drawn(generator: np.random.Generator, seeds: int, deviation: float, images: int = 200) -> Array:
    """Scores (S, N) in points: the images' own effects are shared by all seeds and sides."""
    shared = np.linspace(-80, 80, images)
    effects = deviation * generator.standard_normal((seeds, 1))
    return 100 + shared + effects + 20 * generator.standard_normal((seeds, images))


def result_of(before: Array, after: Array) -> Tested:
    return gate_tests([scores(before, after)], SETTINGS)[0]


def test_several_seeds_are_tested_by_the_architecture_estimator() -> None:
    generator = np.random.default_rng(1)
    before, after = drawn(generator, 3, 4), drawn(generator, 3, 4)
    found, expected = result_of(before, after), architecture_difference(after / 100, before / 100)
    assert (found.over, found.architecture) == (OVER_SEEDS, expected)
    assert (found.difference.low, found.difference.high, found.difference.p) == (
        expected.low,
        expected.high,
        expected.p,
    )
    assert found.detectable == pytest.approx(detectable_from(before, after) / 100)
    among = gate_tests([scores(before, after)] * 3, SETTINGS)[0]
    assert among.detectable == pytest.approx(detectable_from(before, after, tests=3) / 100)


def test_one_seed_keeps_the_paired_test_over_images() -> None:
    generator = np.random.default_rng(1)
    pair = scores(drawn(generator, 1, 4), drawn(generator, 1, 4))
    [found] = gate_tests([pair], SETTINGS)
    [expected] = paired_differences([(pair.sides[0][0], pair.sides[1][0])])
    assert (found.over, found.architecture, found.difference) == (OVER_IMAGES, None, expected)
    gap = np.array(list(pair.sides[1][0].values())) - np.array(list(pair.sides[0][0].values()))
    assert found.detectable == pytest.approx(detectable_at_best(200, gap.std(ddof=1)))


@pytest.mark.parametrize("seeds", [1, 3])
def test_identical_scores_are_as_before_without_a_test(seeds: int) -> None:
    same = drawn(np.random.default_rng(1), seeds, 4)
    found = result_of(same, same)
    assert (found.verdict, found.over, found.detectable, found.architecture) == ("same", IDENTICAL, None, None)
    assert (found.difference.difference, found.difference.low, found.difference.high) == (0, 0, 0)


def test_equal_means_of_other_seeds_are_not_as_before() -> None:
    before = drawn(np.random.default_rng(1), 3, 4)
    [found] = gate_tests([scores(before, before[::-1])], Settings())
    assert (found.verdict, found.difference.difference) == ("undecided", pytest.approx(0))


@pytest.mark.parametrize(
    ("seeds", "deviation", "change", "verdict"),
    [
        (10, 1, -1.0, "within"),
        (2, 8, -1.0, "undecided"),
        (10, 1, -20.0, "regressed"),
        (10, 1, +20.0, "improved"),
        (1, 0, +1.0, "within"),
    ],
)
def test_the_interval_decides_what_is_not_significant(
    seeds: int, deviation: float, change: float, verdict: str
) -> None:
    generator = np.random.default_rng(3)
    before = drawn(generator, seeds, deviation)
    found = result_of(before, drawn(generator, seeds, deviation) + change)
    assert found.verdict == verdict
    assert (100 * found.difference.low > -5) == (verdict in ("within", "improved"))


def test_five_images_exclude_nothing() -> None:
    before = drawn(np.random.default_rng(1), 1, 0, images=5)
    found = result_of(before, before + 0.01)
    assert (found.verdict, found.detectable) == ("undecided", None)
