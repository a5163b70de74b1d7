"""Paired tests of many differences at once."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.statistics.significance import mean_of_seeds, paired_differences, sign_flip_columns

FEW = st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3)), min_size=1, max_size=10)


def scores(seed: int, images: int = 60, gain: float = 0.0) -> dict[int, float]:
    generator = random.Random(seed)
    return {image: generator.uniform(0, 2) + gain for image in range(images)}


@settings(max_examples=30)
@given(FEW)
def test_exchanging_the_sides_negates_only_the_difference(pairs: list[tuple[float, float]]) -> None:
    before, after = (dict(enumerate(side)) for side in zip(*pairs, strict=True))
    (one,), (two,) = paired_differences([(before, after)]), paired_differences([(after, before)])
    assert one.difference == pytest.approx(-two.difference)
    assert one.p == pytest.approx(two.p)
    assert one.low == pytest.approx(-two.high, abs=0.1), "other resamples may bound the other side"


@settings(max_examples=30)
@given(st.lists(st.floats(0, 3), min_size=1, max_size=20))
def test_a_result_does_not_differ_from_itself(side: list[float]) -> None:
    (found,) = paired_differences([(dict(enumerate(side)),) * 2])
    assert (found.difference, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_pairs_are_tested_as_each_alone() -> None:
    pairs = [(scores(1), scores(2)), (scores(3), scores(3, gain=0.1)), (scores(4, 30), scores(5, 30, 0.4))]
    alone = [
        float(sign_flip_columns(np.array([[after[image] - before[image]] for image in before]))[0])
        for before, after in pairs
    ]
    found = paired_differences(pairs)
    assert [each.p for each in found] == pytest.approx(alone, abs=1e-12)
    assert [each.images for each in found] == [60, 60, 30]


def test_the_interval_covers_the_true_difference_at_its_level() -> None:
    generator = np.random.default_rng(0)
    pairs = []
    for _ in range(200):
        noise = generator.normal(0.3, 1, 100)
        pairs.append((dict.fromkeys(range(100), 0.0), dict(enumerate(noise.tolist()))))
    covered = sum(each.low <= 0.3 <= each.high for each in paired_differences(pairs))
    assert 180 <= covered <= 199


@pytest.mark.parametrize("other", [{1: 0.5, 3: 0.5}, {1: 0.5}, {}])
def test_scores_of_other_images_are_no_pair(other: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="different images"):
        paired_differences([({1: 0.5, 2: 0.5}, other)])


def test_seeds_are_averaged_over_the_images_that_all_have() -> None:
    assert mean_of_seeds([{1: 1.0, 2: 0.0}, {2: 1.0, 1: 0.0, 3: 9.0}]) == {1: 0.5, 2: 0.5}
