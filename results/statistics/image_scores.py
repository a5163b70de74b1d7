"""The scores of one evaluation of captions, with the numbers of single images that its tests are made of."""

from collections.abc import Mapping
from dataclasses import dataclass

from results.statistics.significance import SUMS


@dataclass(frozen=True, slots=True)
class ImageScores:
    """Scores by metric, fractions; `reasons` say why one is missing.

    Attributes:
        signature: what the scores depend on besides the captions.
        per_image: by metric and image id.
        influences: the same of metrics that are no mean over images: numbers whose mean is the score.
    """

    signature: str
    scores: Mapping[str, float]
    reasons: Mapping[str, str]
    per_image: Mapping[str, Mapping[int, float]]
    influences: Mapping[str, Mapping[int, float]]

    def numbers(self, metric: str) -> Mapping[int, float] | None:
        """A number for each image, whose mean is the score; None where they are not known."""
        if metric in self.influences:
            return self.influences[metric]
        per_image = self.per_image[metric]
        return None if metric in SUMS and len(per_image) > 1 else per_image
