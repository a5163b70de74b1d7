"""Agreement with people against scipy's Kendall's tau, against counting, and its intervals against the bootstrap."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from results.statistics.agreement import NO_RATINGS, TAU_B, TAU_C, differences, pairs_of_images, pairwise_accuracy, taus
from results.statistics.estimate import Estimate

GENERATOR = np.random.default_rng(7)
IMAGES = np.repeat(np.arange(120), 5)
QUALITY = GENERATOR.normal(size=600) + GENERATOR.normal(size=120)[IMAGES]
RATINGS = np.clip(np.round(QUALITY + 2.5), 1, 4)
GOOD = np.round(QUALITY + GENERATOR.normal(size=600), 1)
BAD = np.round(QUALITY + 3 * GENERATOR.normal(size=600), 1)


@pytest.mark.parametrize("scores", [GOOD, BAD, -GOOD])
def test_taus_are_those_of_scipy(scores: np.ndarray) -> None:
    found = taus(scores, RATINGS, IMAGES)
    for name, variant in ((TAU_B, "b"), (TAU_C, "c")):
        assert found[name].estimate.value == pytest.approx(
            kendalltau(scores, RATINGS, variant=variant).statistic, abs=1e-12
        )


def test_taus_on_flickr8k_expert_are_those_that_papers_print() -> None:
    """Tau-c: Hessel et al. 2021, Table 1; tau-b: PAC-S's code and arXiv:2512.21582, Table 1; BLEU-1 has none."""
    of_captions = np.load(Path(__file__).parents[2] / "fixtures/evaluation/flickr8k_expert_ranks.npz")
    rated = np.repeat(np.arange(5664), 3)
    printed = {
        "BLEU-1": (32.3, None),
        "BLEU-4": (30.8, 30.6),
        "ROUGE-L": (32.3, 32.1),
        "METEOR": (41.8, 41.5),
        "CIDEr-D": (43.9, 43.6),
    }
    for metric, both in printed.items():
        scores = of_captions[metric][rated].astype(float)
        found = taus(scores, of_captions["ratings"].ravel().astype(float), of_captions["images"][rated].astype(int))
        for name, wanted in zip((TAU_C, TAU_B), both, strict=True):
            value = found[name].estimate.value
            assert value is not None
            assert wanted in (None, round(100 * value, 1)), (metric, name)


def test_intervals_are_as_wide_as_those_of_images_drawn_anew() -> None:
    found, drawn = taus(GOOD, RATINGS, IMAGES), []
    for _ in range(400):
        rows = (5 * GENERATOR.integers(0, 120, 120)[:, None] + np.arange(5)).ravel()
        own = taus(GOOD[rows], RATINGS[rows], IMAGES)
        drawn.append([own[name].estimate.value for name in (TAU_B, TAU_C)])
    for name, values in zip((TAU_B, TAU_C), np.array(drawn).T, strict=True):
        interval = found[name].estimate
        assert interval.low is not None
        assert interval.high is not None
        assert (interval.high - interval.low) / 2 / 1.96 == pytest.approx(values.std(), rel=0.15)


def test_accuracy_is_that_of_pairs_of_one_image() -> None:
    pairs = pairs_of_images(RATINGS, IMAGES)
    points = [
        (np.sign((GOOD[a] - GOOD[b]) * (RATINGS[a] - RATINGS[b])) + 1) / 2
        for a, b in combinations(range(600), 2)
        if IMAGES[a] == IMAGES[b] and RATINGS[a] != RATINGS[b]
    ]
    accuracy = pairwise_accuracy(GOOD, *pairs).estimate
    assert accuracy.value is not None
    assert (len(pairs[0]), accuracy.value) == (len(points), pytest.approx(np.mean(points)))
    assert accuracy.low is not None
    assert accuracy.high is not None
    assert accuracy.low < accuracy.value < accuracy.high
    unrated = pairwise_accuracy(GOOD, *pairs_of_images(np.ones(600), IMAGES)).estimate
    assert (unrated.value, unrated.low, unrated.reason) == (None, None, NO_RATINGS)


def test_metrics_that_agree_more_are_told_apart() -> None:
    found = {name: taus(of, RATINGS, IMAGES)[TAU_C] for name, of in (("good", GOOD), ("bad", BAD), ("again", GOOD))}
    gaps = differences(found)
    good, bad = (found[name].estimate.value for name in ("good", "bad"))
    assert good is not None
    assert bad is not None
    assert gaps["good", "bad"].value == good - bad
    assert (gaps["good", "bad"].p or 1.0) < 1e-6
    assert gaps["good", "again"] == Estimate(0.0, p=1.0, n=120)
