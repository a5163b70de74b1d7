"""What metrics are: sufficient statistics per image, whose sum over images gives the corpus score.

Scores of splits, domains and single images, bootstrap resamples and permutations are all computed from these
statistics, without the captions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from harness.data.formats import named
from harness.utils.errors import BenchError

Array = NDArray[np.float64]

METRICS: Final = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
OVERALL: Final = "overall"
OTHER_CIDER_D: Final = {"all": "CIDEr-D (df:domain)", "subset": "CIDEr-D (df:split)"}


@dataclass(slots=True)
class Metric:
    """A metric, or several that share their statistics (BLEU-1 to 4).

    `score` gives corpus scores from summed statistics: (..., K) -> (..., len(names)), as fractions.
    """

    names: tuple[str, ...]
    score: Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Sufficient statistics of one system: `values` (N, K) float64, a row per image."""

    metric: Metric
    values: Array

    def corpus(self) -> dict[str, float]:
        """Scores over all rows together, by name."""
        return dict(zip(self.metric.names, self.metric.score(self.values.sum(axis=0)).tolist(), strict=True))

    def of(self, rows: Sequence[int]) -> Self:
        """The statistics of a subset of the images."""
        return replace(self, values=self.values[rows])

    def per_image(self) -> dict[str, Array]:
        """Scores of each image alone, by name: (N,) each."""
        return dict(zip(self.metric.names, self.metric.score(self.values).T, strict=True))


def mean_of(name: str, scores: Array) -> Statistics:
    """Statistics of a metric that is the mean of one score per image, (N,): the score and a one."""
    return Statistics(Metric((name,), _mean), np.column_stack([scores, np.ones_like(scores)]))


def _mean(totals: Array) -> Array:
    return totals[..., :1] / totals[..., 1:]


def require_same_images(references: Iterable[int], candidates: Iterable[int]) -> None:
    """BenchError where the two hold other image ids; it names the first ten of each and counts all."""
    wanted, given = set(references), set(candidates)
    apart = {"with references but no caption": wanted - given, "with a caption but no references": given - wanted}
    problems = [named([str(image_id) for image_id in sorted(ids)], what) for what, ids in apart.items() if ids]
    if problems:
        raise BenchError(
            f"captions and references are of different images: {'; '.join(problems)}",
            hint="give exactly one caption for every image of the split that is scored",
        )
