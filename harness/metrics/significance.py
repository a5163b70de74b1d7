"""Which differences are real: intervals, paired tests, Holm's correction and tiers, all from per-image statistics.

Document frequencies stay as they are in every resample: taken anew they would bias CIDEr-D upwards. An interval is over
images; how much a model varies over training seeds it does not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from harness.metrics.contract import Array, Statistics
from harness.metrics.evaluation import Evaluation
from results.statistics import significance
from results.statistics.significance import ALPHA, RESAMPLES, SEED, draws, exchanges, holm, p_value


@dataclass(frozen=True, slots=True)
class Interval:
    """Percentile bootstrap interval of a score."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """First system less second on one metric; `p` by sign flips, `adjusted` by Holm's correction over all tests."""

    first: str
    second: str
    metric: str
    difference: float
    p: float
    adjusted: float


def bootstrap(
    statistics: Sequence[Statistics], *, resamples: int = RESAMPLES, seed: int = SEED, level: float = 0.95
) -> dict[str, Interval]:
    """Intervals of every metric, by resampling images with replacement.

    All `statistics` are of the same images in the same order. Percentile method: Efron and Tibshirani, "An Introduction
    to the Bootstrap", 1993, chapter 13.
    """
    values = np.concatenate([each.values for each in statistics], axis=1)
    totals = [drawn @ values for drawn in draws(len(values), resamples=resamples, seed=seed)]
    outer = [(1 - level) / 2, (1 + level) / 2]
    found = {}
    for metric, scores in _scores(statistics, np.concatenate(totals)).items():
        low, high = np.quantile(scores, outer)
        found[metric] = Interval(float(low), float(high))
    return found


def with_intervals(evaluation: Evaluation, *, resamples: int = RESAMPLES, seed: int = SEED) -> Evaluation:
    """The evaluation with the 95 % interval of every score, over all images and over each domain's."""
    scores = {}
    for group, quantities in evaluation.scores.items():
        statistics = evaluation.statistics.get(group)
        found = bootstrap(statistics, resamples=resamples, seed=seed) if statistics else {}
        scores[group] = {
            metric: replace(quantity, low=found[metric].low, high=found[metric].high) if metric in found else quantity
            for metric, quantity in quantities.items()
        }
    return replace(evaluation, scores=scores)


def paired_test(
    first: Sequence[Statistics], second: Sequence[Statistics], *, resamples: int = RESAMPLES, seed: int = SEED
) -> dict[str, tuple[float, float]]:
    """Difference first - second and two-sided p-value of every metric that both have.

    Approximate randomisation: for each image the two systems' statistics are exchanged or not, which for a metric that
    is a mean flips the sign of the image's difference (Noreen 1989; Riezler and Maxwell 2005).
    """
    names = {name for each in second for name in each.metric.names}
    first = [each for each in first if set(each.metric.names) <= names]
    ours = {each.metric.names: each for each in second}
    second = [ours[each.metric.names] for each in first]
    one = np.concatenate([each.values for each in first], axis=1)
    two = np.concatenate([each.values for each in second], axis=1)
    if one.shape != two.shape:
        raise ValueError(f"systems of different images: {len(one)} and {len(two)}")
    gap, total_one, total_two = two - one, one.sum(axis=0), two.sum(axis=0)
    images = len(one)
    observed = _differences(first, total_one[None], total_two[None])
    extreme = dict.fromkeys(observed, 0)
    for exchanged in exchanges(images, resamples=resamples, seed=seed):
        moved = exchanged @ gap
        for metric, differences in _differences(first, total_one + moved, total_two - moved).items():
            # Rounding must not decide about draws that are as extreme as what was observed.
            extreme[metric] += int((np.abs(differences) >= abs(observed[metric][0]) - 1e-12).sum())
    return {
        metric: (float(observed[metric][0]), p_value(count, images, resamples)) for metric, count in extreme.items()
    }


def compare(
    systems: Mapping[str, Sequence[Statistics]],
    *,
    metrics: Sequence[str] = ("CIDEr-D",),
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> list[Comparison]:
    """Every pair of systems on every metric, corrected for their number."""
    raw = []
    for first, second in combinations(systems, 2):
        found = paired_test(systems[first], systems[second], resamples=resamples, seed=seed)
        raw += [(first, second, metric, *found[metric]) for metric in metrics if metric in found]
    adjusted = holm([p for *_, p in raw])
    return [Comparison(*each, after) for each, after in zip(raw, adjusted, strict=True)]


def tiers(scores: Mapping[str, float], comparisons: Sequence[Comparison], *, alpha: float = ALPHA) -> dict[str, int]:
    """Tier of each system, 1 the best: one that cannot be told from the best of a tier belongs to that tier.

    `comparisons` are of one metric and hold every pair of the systems in `scores`.
    """
    places = {system: place for place, system in enumerate(scores)}
    adjusted = np.ones((len(scores), len(scores)))
    for each in comparisons:
        pair = places[each.first], places[each.second]
        adjusted[pair] = adjusted[pair[::-1]] = each.adjusted
    return dict(zip(scores, significance.tiers(list(scores.values()), adjusted, alpha=alpha), strict=True))


def _scores(statistics: Sequence[Statistics], totals: Array) -> dict[str, NDArray[np.float64]]:
    """Scores by metric of (R, K) sums, K the columns of all statistics side by side."""
    found: dict[str, NDArray[np.float64]] = {}
    column = 0
    for each in statistics:
        width = each.values.shape[1]
        scores = each.metric.score(totals[:, column : column + width])
        found.update(zip(each.metric.names, scores.T, strict=True))
        column += width
    return found


def _differences(statistics: Sequence[Statistics], one: Array, two: Array) -> dict[str, NDArray[np.float64]]:
    first, second = _scores(statistics, one), _scores(statistics, two)
    return {metric: first[metric] - second[metric] for metric in first}
