"""Sign-flip tests, Holm's correction, and paired tests of many differences: against published numbers and scipy."""

import random
from itertools import product
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from results.statistics import significance
from results.statistics.significance import (
    ImageChanges,
    PairedScores,
    exchanges,
    holm,
    image_means,
    is_exact,
    paired_differences,
    sign_flip_columns,
    sign_flip_pairs,
)

# Heights of Darwin's 15 pairs of maize plants, crossed less self-fertilised, in eighths of an inch. Fisher ("The Design
# of Experiments", 1935, section 21) counted that 1,726 of the 32,768 ways to give them signs make a sum as far from 0.
MAIZE = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]) / 8
FISHERS = 1_726 / 32_768


def p_of(differences: np.ndarray) -> float:
    return float(sign_flip_columns(differences[:, None])[0])


def test_fishers_exact_p_value_of_darwins_maize(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = p_of(MAIZE)  # 10,000 of the 32,768
    assert drawn == pytest.approx(FISHERS, abs=0.007)
    assert drawn != FISHERS
    monkeypatch.setattr(significance, "RESAMPLES", 2**15)
    assert p_of(MAIZE) == p_of(-MAIZE) == FISHERS


def test_p_values_equal_scipys() -> None:
    differences = np.random.default_rng(3).normal(0, 0.2, (300, 3)) + np.array([0.0, 0.01, 0.03])
    for column, found in zip(differences.T, sign_flip_columns(differences), strict=True):
        theirs = stats.permutation_test(
            (column, np.zeros(len(column))),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples",
            n_resamples=9_999,
            batch=1_000,
            rng=1,
        )
        assert found == pytest.approx(theirs.pvalue, abs=0.02)


@pytest.mark.parametrize(("images", "alpha"), [(10, 0.05), (300, 0.05), (300, 1e-5)])
def test_an_interval_holds_what_the_test_does_not_reject(images: int, alpha: float) -> None:
    scores = np.random.default_rng(9).exponential(1, (images, 3)) + np.array([0, 0.1, 0.5])
    pairs = [(0, 1), (2, 0)]
    p, lows, highs = sign_flip_pairs(scores, pairs, alpha)
    differences = np.array([scores[:, one] - scores[:, two] for one, two in pairs]).T
    assert (p == sign_flip_columns(differences)).all()
    for column, low, high in zip(differences.T, lows, highs, strict=True):
        for end, inwards in ((low, 1e-6), (high, -1e-6)):
            assert p_of(column - end - inwards) > alpha > p_of(column - end + inwards) - 1e-9


def test_few_images_are_exchanged_in_every_way_once() -> None:
    patterns = np.concatenate(list(exchanges(3)))
    assert sorted(map(tuple, patterns.astype(int).tolist())) == sorted(product((0, 1), repeat=3))
    assert p_of(np.array([1.0, 2.0, 3.0])) == 2 / 8
    assert is_exact(13)
    assert not is_exact(14)
    assert not is_exact(5_000)


def test_large_differences_survive_the_correction_for_many_tests() -> None:
    generator = np.random.default_rng(5)
    differences = generator.random((2_000, 60)) - generator.random((2_000, 60)) + 0.002 * np.arange(60)
    p = sign_flip_columns(differences)
    assert 0 < p[-1] < 1e-6, "less than 10,000 draws alone can tell"
    assert holm(p.tolist())[-1] < 1e-4
    assert p[0] > 0.01


def test_hoeffdings_bound_is_above_the_exact_p_value(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = np.full(20, 0.5)  # only all signs alike are as extreme
    monkeypatch.setattr(significance, "RESAMPLES", 100)
    assert p_of(differences) == pytest.approx(2 * np.exp(-10))
    assert 2 * np.exp(-10) > 2 / 2**20


def test_the_seed_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = np.random.default_rng(1).normal(0.05, 1, (100, 4))
    found = sign_flip_columns(differences)
    assert (sign_flip_columns(differences) == found).all()
    monkeypatch.setattr(significance, "SEED", 1)
    assert (sign_flip_columns(differences) != found).any()


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([]) == []


FEW = st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3)), min_size=1, max_size=10)


def scores(seed: int, images: int = 60, gain: float = 0.0) -> dict[int, float]:
    generator = random.Random(seed)
    return {image: generator.uniform(0, 2) + gain for image in range(images)}


def changes(before: dict[int, float], after: dict[int, float]) -> ImageChanges:
    return PairedScores.from_captions(before, after).changes()


@settings(max_examples=30)
@given(FEW)
def test_exchanging_the_sides_negates_only_the_difference(pairs: list[tuple[float, float]]) -> None:
    before, after = (dict(enumerate(side)) for side in zip(*pairs, strict=True))
    (one,), (two,) = paired_differences([changes(before, after)]), paired_differences([changes(after, before)])
    assert one.value == pytest.approx(two.negated().value)
    assert one.p == pytest.approx(two.p)
    assert one.low == pytest.approx(two.negated().low, abs=0.1), "other resamples may bound the other side"


@settings(max_examples=30)
@given(st.lists(st.floats(0, 3), min_size=1, max_size=20))
def test_a_result_does_not_differ_from_itself(side: list[float]) -> None:
    (found,) = paired_differences([changes(dict(enumerate(side)), dict(enumerate(side)))])
    assert (found.value, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_pairs_are_tested_as_each_alone() -> None:
    pairs = [(scores(1), scores(2)), (scores(3), scores(3, gain=0.1)), (scores(4, 30), scores(5, 30, 0.4))]
    alone = [
        float(sign_flip_columns(np.array([[after[image] - before[image]] for image in before]))[0])
        for before, after in pairs
    ]
    found = paired_differences([changes(*pair) for pair in pairs])
    assert [each.p for each in found] == pytest.approx(alone, abs=1e-12)
    assert [each.n for each in found] == [60, 60, 30]


def test_the_interval_covers_the_true_difference_at_its_level() -> None:
    generator = np.random.default_rng(0)
    pairs = []
    for _ in range(200):
        noise = generator.normal(0.3, 1, 100)
        pairs.append((dict.fromkeys(range(100), 0.0), dict(enumerate(noise.tolist()))))
    bounds = [
        (change.low or 0.0, change.high or 0.0) for change in paired_differences([changes(*pair) for pair in pairs])
    ]
    assert 180 <= sum(low <= 0.3 <= high for low, high in bounds) <= 199


@pytest.mark.parametrize("other", [{1: 0.5, 3: 0.5}, {1: 0.5}, {}])
def test_scores_of_other_images_are_no_pair(other: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="different images"):
        PairedScores.from_captions({1: 0.5, 2: 0.5}, other)


@pytest.mark.parametrize("shape", [(1, 3), (2, 0), (0, 2)])
def test_scores_of_other_numbers_of_images_are_no_pair(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="different images"):
        PairedScores(np.arange(2), np.ones((2, 2)), np.ones(shape))


def test_the_mean_of_an_image_is_of_a_sum_that_is_rounded_once() -> None:
    assert image_means(np.array([[1.0, 0.1], [0.0, 0.2], [0.5, 0.3]])).tolist() == [0.5, fmean([0.1, 0.2, 0.3])]
