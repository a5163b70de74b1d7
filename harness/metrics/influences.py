"""The influence of each image on a corpus score, so that BLEU and METEOR are tested over images as means are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.metrics.contract import Statistics
from results.statistics.significance import SUMS, pseudo_values

CORPUS_METRICS: Final = SUMS
"""Metrics that have influences: their score is a function of summed statistics, and no mean over images."""


def influences_by_image(statistics: Sequence[Statistics], ids: Sequence[int]) -> dict[str, dict[int, float]]:
    """Those on `CORPUS_METRICS`, by metric and id; `ids` are of the rows of the statistics. A single image has none."""
    if len(ids) < 2:
        return {}
    return {
        metric: dict(zip(ids, values.tolist(), strict=True))
        for each in statistics
        if set(each.metric.names) <= set(CORPUS_METRICS)
        for metric, values in zip(each.metric.names, pseudo_values(each.values, each.metric.score).T, strict=True)
    }
