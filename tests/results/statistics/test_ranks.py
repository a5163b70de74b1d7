"""Ranks of a table: laws that hold for any scores, and three in a row."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import stdtr

from results.statistics.architecture import (
    NO_JOINT_INTERVAL,
    architecture_difference,
    rank_models,
    summary,
    table_variances,
)
from results.statistics.significance import Array, holm, sign_flip_columns
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
    found = rank_models([*table, table[0]]).ranks
    assert found[0] == found[-1]
    assert found[0][0] != found[0][1]


@settings(max_examples=30)
@given(DRAWS, MODELS, SEEDS)
def test_a_model_better_on_every_image_and_seed_is_alone(seed: int, models: int, seeds: int) -> None:
    table = drawn(seed, models, seeds)
    winner = np.max([scores.max(axis=0) for scores in table], axis=0) + np.linspace(1e4, 1.0001e4, seeds)[:, None]
    found = rank_models([*table, winner]).ranks
    assert found[-1] == (1, 1)
    assert all(best >= 2 for best, _ in found[:-1])


def test_three_in_a_row_overlap_where_only_the_ends_differ() -> None:
    base = drawn(1, 3, 4, spread=0)
    step = next(step for step in np.linspace(0, 100, 400) if _ends_alone([base[0] + 2 * step, base[1] + step, base[2]]))
    assert rank_models([base[0] + 2 * step, base[1] + step, base[2]]).ranks == [(1, 2), (1, 3), (2, 3)]


@settings(max_examples=30)
@given(DRAWS, MODELS, st.integers(3, 5))
def test_a_place_holds_the_rank_of_the_mean(seed: int, models: int, seeds: int) -> None:
    table = drawn(seed, models, seeds, spread=20)
    means = [scores.mean() for scores in table]
    for mean, (best, worst) in zip(means, rank_models(table).ranks, strict=True):
        assert best <= 1 + sum(other > mean for other in means) <= worst


@settings(max_examples=30)
@given(DRAWS, MODELS, SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_the_table_changes_nothing(seed: int, models: int, seeds: int, random: object) -> None:
    table = drawn(seed, models, seeds, spread=20)
    order = list(range(models))
    random.shuffle(order)  # type: ignore[attr-defined]
    found, moved = rank_models(table).ranks, rank_models([table[index] for index in order]).ranks
    assert [found[index] for index in order] == moved


def test_the_correction_is_holms_over_all_pairs() -> None:
    table = drawn(3, 4, 4, spread=10)
    pairs = rank_models(table).pairs
    gaps, errors = (np.array([getattr(pair, name) for pair in pairs]) for name in ("difference", "error"))
    alone = [architecture_difference(*pair) for pair in combinations(table, 2)]
    assert gaps == pytest.approx([pair.estimate.value for pair in alone])
    assert np.all(errors >= [0.999 * (pair.error or 0.0) for pair in alone]), "variances are borrowed upwards only"
    own = holm([float(p) for p in 2 * stdtr([pair.degrees for pair in pairs], -np.abs(gaps) / errors)])
    assert [pair.estimate.p for pair in pairs] == pytest.approx(own)


def test_two_models_are_placed_by_their_own_interval() -> None:
    table = drawn(3, 2, 2)
    [pair], _, variances = rank_models(table)
    alone = architecture_difference(*table).estimate
    assert (pair.estimate.low, pair.estimate.high, pair.estimate.p) == pytest.approx((alone.low, alone.high, alone.p))
    assert variances is None


def test_single_captions_are_placed_by_sign_flips_over_images() -> None:
    generator = np.random.default_rng(5)
    images = generator.normal(1.0, 0.5, (1, 400))
    models = [images + generator.normal(gap, 0.4, (1, 400)) for gap in (0.0, 0.005, 0.3)]
    found = rank_models(models)
    gaps = np.array([models[a][0] - models[b][0] for a, b in ((0, 1), (0, 2), (1, 2))])
    assert [pair.estimate.p for pair in found.pairs] == holm(sign_flip_columns(gaps.T).tolist()), "as bench compare"
    by_t = stats.ttest_1samp(gaps, 0, axis=1).confidence_interval(1 - 0.05 / 3)
    ends = np.array([(pair.estimate.low, pair.estimate.high) for pair in found.pairs]).T
    assert ends == pytest.approx(np.array(by_t), abs=0.01), "of so many images both tests agree"
    assert found.ranks == [(2, 3), (2, 3), (1, 1)]
    assert found.variances is None
    seeds, more_images = found.pairs[0].needed(1, 400, 0.0)
    assert seeds is None
    assert more_images is not None
    assert more_images > 400


def test_six_images_decide_a_pair_but_no_table_of_three() -> None:
    better = np.arange(6.0)[None] + [[1.0, 2.0, 1.5, 3.0, 1.0, 9.0]]
    models = [better, np.arange(6.0)[None], np.arange(6.0)[None] - 1]
    [pair] = rank_models(models[:2]).pairs
    assert (pair.estimate.p, pair.estimate.low, pair.estimate.high) == (2 / 64, 1.0, 9.0)
    pairs = rank_models(models).pairs
    assert {pair.estimate.p for pair in pairs} == {6 / 64}
    assert {(pair.estimate.low, pair.estimate.reason) for pair in pairs} == {(None, NO_JOINT_INTERVAL)}
    assert all(pair.needed(1, 6, 0.0)[1] is not None for pair in pairs)


def test_a_table_of_two_seeds_borrows_nothing() -> None:
    assert rank_models(drawn(3, 6, 2)).variances is None
    assert rank_models(drawn(3, 6, 3)).variances is not None


@settings(max_examples=30)
@given(DRAWS, st.integers(3, 12), st.integers(3, 5))
def test_variances_are_borrowed_upwards_only(seed: int, models: int, seeds: int) -> None:
    found = [summary(scores) for scores in drawn(seed, models, seeds)]
    between, interaction = np.array([each.between for each in found]), np.array([each.interaction for each in found])
    table = table_variances(between, interaction, seeds)
    assert np.all(table.between >= np.maximum(between, interaction))
    assert np.all(table.degrees >= seeds - 1)
    assert np.all(table.degrees <= models * (seeds - 1))
    assert 0 <= table.prior_df <= 30
    assert table_variances(4 * between, 4 * interaction, seeds).between == pytest.approx(4 * table.between, rel=1e-9)


def test_the_table_s_variance_is_limma_s() -> None:
    """As `limma::squeezeVar` shrinks variances of two degrees of freedom each, with 30 of the table."""
    table = table_variances(np.array([1.0, 2.0, 4.0, 8.0]), np.zeros(4), 3)
    # The log variances vary less than three seeds of equal models would have them vary: the prior has most degrees.
    assert table.prior_df == pytest.approx(30)
    logs = np.log([1, 2, 4, 8]) + np.euler_gamma  # digamma(1) = -gamma, log(1) = 0
    common = np.exp(logs.mean() + 2.674343 - np.log(15))  # digamma(15)
    shrunk = (30 * common + 2 * np.array([1, 2, 4, 8])) / 32
    assert table.between == pytest.approx(np.maximum(shrunk, [1, 2, 4, 8]), rel=1e-5)
    assert table.degrees == pytest.approx([8] * 4), "no more than all models have together"


def test_widely_unequal_deviations_lend_no_degrees_of_freedom() -> None:
    table = table_variances(np.array([1.0, 1.1, 0.9, 400.0, 410.0, 395.0]), np.zeros(6), 5)
    assert table.bartlett_p < 1e-6
    assert table.degrees == pytest.approx([4] * 6)


def test_what_is_lent_fades_where_deviations_differ_more_than_chance_has_them_differ() -> None:
    of_table = [
        table_variances(np.array([1.0, 1.0, 1.0, 1.0, 1.0, spread]), np.zeros(6), 5) for spread in (9, 10, 12, 20)
    ]
    assert [found.bartlett_p < 0.05 for found in of_table] == [False, True, True, True]
    prior = [float(found.prior_df) for found in of_table]
    assert prior == sorted(prior, reverse=True)
    for found in of_table[1:]:
        assert found.degrees == pytest.approx([4 + found.prior_df] * 6)
        assert 0 < found.prior_df < 30 * found.bartlett_p / 0.05


@pytest.mark.parametrize(
    ("seeds", "deviations", "at_most"),
    [
        (2, (2.0, 15.0), 0.05),
        (3, (6.0, 6.0), 0.06),
        (3, (3.0, 9.0), 0.1),
        (3, (2.0, 15.0), 0.1),
        (5, (2.0, 15.0), 0.06),
    ],
)
def test_equal_models_are_seldom_told_apart(seeds: int, deviations: tuple[float, float], at_most: float) -> None:
    """At most as often as `docs/statistics.md` says, and two standard deviations of as many trials."""
    trials = 150
    table = simulated(np.random.default_rng(5), trials, [seeds] * 8, [*deviations] * 4)
    wrong = [
        any(ranks != (1, 8) for ranks in rank_models([each[trial] for each in table]).ranks) for trial in range(trials)
    ]
    assert sum(wrong) <= at_most * trials


def test_three_seeds_of_a_table_tell_what_three_seeds_of_two_models_do_not() -> None:
    """Ten models a step apart, of which no two alone differ significantly after a correction for 45 pairs."""
    generator = np.random.default_rng(1)
    told, alone = 0, 0
    for _ in range(20):
        table = [
            scores[0] + 10 * number
            for number, scores in enumerate(simulated(generator, 1, [3] * 10, [5.0] * 10, images=600))
        ]
        told += sum(pair.better is False for pair in rank_models(table).pairs)
        alone += sum((architecture_difference(*pair).estimate.p or 1) < 0.05 / 45 for pair in combinations(table, 2))
    assert told > 1.4 * alone


@settings(max_examples=30)
@given(DRAWS, st.integers(3, 6), st.integers(3, 5))
def test_what_would_tell_is_more_than_there_is(seed: int, models: int, seeds: int) -> None:
    for pair in rank_models(drawn(seed, models, seeds)).pairs:
        needed = pair.needed(seeds, 50, margin=1.0)
        if pair.better is None and not pair.same_within(1.0):
            assert all(count is None or count >= own for count, own in zip(needed, (2, 50), strict=True))


def _ends_alone(table: list[Array]) -> bool:
    return [pair.better for pair in rank_models(table).pairs] == [None, True, None]
