"""Results of further metrics: values with intervals, and scores of single images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from harness.metrics.contract import mean_of
from results.records import Quantity
from results.statistics.significance import Array, Statistics, bootstrap

CLIP_NAMES: Final = ("CLIPScore", "RefCLIPScore")
BERT_NAME: Final = "BERTScore"


@dataclass(frozen=True, slots=True)
class Measured:
    """Values by stored name, and for means over images the score of each image, by stored name and image id."""

    values: dict[str, Quantity]
    per_image: dict[str, dict[int, float]] = field(default_factory=dict)

    def __or__(self, other: Measured) -> Measured:
        """These results and others."""
        return Measured(self.values | other.values, self.per_image | other.per_image)


def not_measured(names: Iterable[str], reason: str, depends_on: str = "") -> Measured:
    """None for all of these metrics, with one reason."""
    return Measured({stored_name(name, depends_on): Quantity(None, reason) for name in names})


def measured(
    statistics: Statistics, ids: Sequence[int], depends_on: str = "", *, means: Iterable[str] = (), unit: str = ""
) -> Measured:
    """Values with 95 % intervals, from statistics with a row for each of `ids`.

    `means` are the metrics that are means over images, whose scores of single images are kept.
    """
    bounds = bootstrap([statistics])
    values = {
        stored_name(name, depends_on): Quantity(value, None, unit, *bounds[name])
        for name, value in statistics.corpus().items()
    }
    by_image = statistics.per_image()
    per_image = {stored_name(name, depends_on): dict(zip(ids, by_image[name].tolist(), strict=True)) for name in means}
    return Measured(values, per_image)


def mean_measured(name: str, scores: Array, ids: Sequence[int], depends_on: str = "", unit: str = "") -> Measured:
    """The mean of the images' scores (N,), with its interval."""
    return measured(mean_of(name, scores), ids, depends_on, means=[name], unit=unit)


def stored_name(name: str, depends_on: str) -> str:
    """A metric's name in the store, which includes the model or list that it depends on."""
    return f"{name} ({depends_on})" if depends_on else name
