"""Shared parts of metrics. A metric is sufficient statistics per image, from whose sum follows the corpus score.

Scores of splits, domains and single images, bootstrap resamples and permutations are all computed from these
statistics, without the captions.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from harness.data.formats.ids import named
from harness.utils.errors import BenchError
from results.statistics.significance import Array, Metric, Statistics

OVERALL: Final = "overall"
OTHER_CIDER_D: Final = {"all": "CIDEr-D (df:domain)", "subset": "CIDEr-D (df:split)"}


def mean_of(name: str, scores: Array) -> Statistics:
    """Statistics of a metric that is the mean of one score per image, (N,): the score and a one."""
    return Statistics(Metric((name,), _mean), np.column_stack([scores, np.ones_like(scores)]))


def _mean(totals: Array) -> Array:
    return totals[..., :1] / totals[..., 1:]


def require_same_images(references: Iterable[int], candidates: Iterable[int]) -> None:
    """BenchError where captions and references have different image ids."""
    reference_ids = set(references)
    candidate_ids = set(candidates)
    unmatched = {
        "with references but no caption": reference_ids - candidate_ids,
        "with a caption but no references": candidate_ids - reference_ids,
    }
    problems = [named(list(map(str, sorted(ids))), description) for description, ids in unmatched.items() if ids]
    if problems:
        raise BenchError(
            f"captions and references are of different images: {'; '.join(problems)}",
            hint="give exactly one caption for every image of the split that is scored",
        )
