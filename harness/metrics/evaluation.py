"""Result of an evaluation: the scores of one system on one split, their intervals, and the statistics behind both."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from harness.metrics.contract import Statistics
from results.records import Quantity
from results.statistics.significance import RESAMPLES, SEED, bootstrap

METRICS: Final = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
"""The metrics of every evaluation, in the order of display, as fractions."""

OVERALL: Final = "overall"
"""Key of the scores over all images."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of one system on one split.

    `scores[domain][metric]` has `OVERALL` and every metric of `METRICS`, and each domain's CIDEr-D with the other
    document frequencies too (`harness.metrics.contract.OTHER_CIDER_D`); one that could not be computed is NULL with
    a reason and has no entry in `per_image[metric][image_id]`. `seconds` is the time spent by step. `domains` holds
    the images of each domain. `statistics` are the input of significance tests: for `OVERALL` a row for each of `ids`,
    for each domain a row for each of its images; empty without any score. `influences[metric][image_id]` are those of
    `harness.metrics.influences` on the scores of `OVERALL`; empty for a single image.
    """

    scores: dict[str, dict[str, Quantity]]
    per_image: dict[str, dict[int, float]]
    tokenizer: str
    seconds: dict[str, float]
    ids: tuple[int, ...] = ()
    statistics: dict[str, tuple[Statistics, ...]] = field(default_factory=dict)
    domains: dict[str, list[int]] = field(default_factory=dict)
    influences: dict[str, dict[int, float]] = field(default_factory=dict)


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
