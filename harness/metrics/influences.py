"""The influence of each image on a corpus score, so that BLEU and METEOR are tested over images as means are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.metrics.contract import Array, Statistics
from results.statistics.significance import SUMS

CORPUS_METRICS: Final = SUMS
"""Metrics that have influences: their score is a function of summed statistics, and no mean over images."""


def influences(statistics: Statistics) -> Array:
    """Jackknife pseudo-values of the corpus scores, (N, metrics), whose mean over images is the corpus score.

    With statistics x of sum T and the score f, image i has f(T) + (N - 1) (mean over j of f(T - x_j) - f(T - x_i)).
    Their variance by N is the jackknife's variance of the score: Tukey, "Bias and Confidence in Not-Quite Large
    Samples", Annals of Mathematical Statistics 1958; Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
    chapter 11. Centred on the score, not on Quenouille's estimate of its bias.
    There are two images or more: without its only one a corpus has no score.
    """
    images = len(statistics.values)
    total = statistics.values.sum(axis=0)
    without = statistics.metric.score(total - statistics.values)
    found: Array = statistics.metric.score(total) + (images - 1) * (without.mean(axis=0) - without)
    return found


def influences_by_image(statistics: Sequence[Statistics], ids: Sequence[int]) -> dict[str, dict[int, float]]:
    """Those on `CORPUS_METRICS`, by metric and id; `ids` are of the rows of the statistics. A single image has none."""
    if len(ids) < 2:
        return {}
    return {
        metric: dict(zip(ids, values.tolist(), strict=True))
        for each in statistics
        if set(each.metric.names) <= set(CORPUS_METRICS)
        for metric, values in zip(each.metric.names, influences(each).T, strict=True)
    }
