"""What the tests of a comparison are over: seeds and images, or images alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from results.comparison.comparison import NO_INTERVAL, ScoreChange, SeedsOfSides, with_tests
from results.statistics.architecture import OVER_IMAGES, OVER_SEEDS
from results.statistics.significance import holm, mean_of_seeds, paired_differences

CIDER = ScoreChange("test", "CIDEr-D", 0.5, 0.7)
BLEU = ScoreChange("test", "BLEU-4", 0.5, 0.7)
BLEU_WITHOUT = replace(BLEU, no_interval=NO_INTERVAL)


def sides(before: list[float], after: list[float], images: int = 30) -> SeedsOfSides:
    """Seeds with these means, whose images deviate from them all alike."""
    offsets = np.linspace(-0.1, 0.1, images)
    one, two = ([dict(enumerate((mean + offsets).tolist())) for mean in means] for means in (before, after))
    return one, two


def test_several_seeds_on_both_sides_are_tested_over_seeds() -> None:
    before, after = [0.4, 0.5, 0.6], [0.6, 0.9]
    [found] = with_tests([(CIDER, sides(before, after))])
    expected = stats.ttest_ind(after, before, equal_var=False)
    bounds = expected.confidence_interval(0.95)
    assert found.over == OVER_SEEDS
    assert found.test is not None
    assert (found.test.difference, found.test.p) == (pytest.approx(0.25), pytest.approx(expected.pvalue))
    assert (found.test.low, found.test.high) == (pytest.approx(bounds.low), pytest.approx(bounds.high))
    assert found.architecture is not None
    assert found.architecture.degrees == pytest.approx(expected.df)


@pytest.mark.parametrize(("before", "after"), [([0.4], [0.6]), ([0.4], [0.6, 0.9]), ([0.4, 0.5], [0.6])])
def test_one_seed_on_a_side_is_tested_over_images(before: list[float], after: list[float]) -> None:
    both = sides(before, after)
    [found] = with_tests([(CIDER, both)])
    [expected] = paired_differences([(mean_of_seeds(both[0]), mean_of_seeds(both[1]))])
    assert (found.over, found.architecture, found.test) == (OVER_IMAGES, None, expected)


def test_a_corpus_score_without_influences_is_tested_over_images() -> None:
    [found] = with_tests([(BLEU_WITHOUT, sides([0.4, 0.5], [0.6, 0.9]))])
    assert (found.over, found.architecture, found.no_interval) == (OVER_IMAGES, None, NO_INTERVAL)


def test_tests_of_both_kinds_are_corrected_together() -> None:
    found = with_tests([(CIDER, sides([0.4, 0.5, 0.7], [0.6, 0.9, 0.8])), (BLEU_WITHOUT, sides([0.4], [0.6]))])
    tests = [score.test for score in found if score.test is not None]
    assert [test.adjusted for test in tests] == holm([test.p for test in tests])
    assert tests[0].p != tests[1].p


def test_two_seeds_have_one_degree_of_freedom_in_a_correction() -> None:
    both = sides([0.4, 0.41], [0.6, 0.62])
    [alone], [first, _] = with_tests([(CIDER, both)]), with_tests([(CIDER, both), (CIDER, both)])
    assert alone.test is not None
    assert first.test is not None
    assert first.architecture is not None
    assert first.architecture.error is not None
    expected = 2 * stats.t.sf(first.test.difference / first.architecture.error, 1)
    assert alone.test.adjusted == alone.test.p == first.test.p < 0.05
    assert first.test.adjusted == pytest.approx(2 * expected)
