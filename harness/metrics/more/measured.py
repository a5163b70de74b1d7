"""What a metric of `results.metrics` found: values with intervals, and scores of single images."""

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
    """`values` by stored name; `per_image[name][image_id]` of those that are means over images."""

    values: dict[str, Quantity]
    per_image: dict[str, dict[int, float]] = field(default_factory=dict)

    def __or__(self, other: Measured) -> Measured:
        """Both together."""
        return Measured(self.values | other.values, self.per_image | other.per_image)


def not_measured(names: Iterable[str], reason: str, depends_on: str = "") -> Measured:
    """NULL for all of these, with one reason."""
    return Measured({stored_name(name, depends_on): Quantity(None, reason) for name in names})


def measured(
    statistics: Statistics, ids: Sequence[int], depends_on: str = "", *, means: Iterable[str] = (), unit: str = ""
) -> Measured:
    """Values with 95 % intervals, of a row for each of `ids`; those of `means` over images are kept by image."""
    bounds = bootstrap([statistics])
    values = {
        stored_name(name, depends_on): Quantity(value, None, unit, *bounds[name])
        for name, value in statistics.corpus().items()
    }
    by_image = statistics.per_image()
    kept = {stored_name(name, depends_on): dict(zip(ids, by_image[name].tolist(), strict=True)) for name in means}
    return Measured(values, kept)


def mean_measured(name: str, scores: Array, ids: Sequence[int], depends_on: str = "", unit: str = "") -> Measured:
    """The mean of one score (N,) of each image."""
    return measured(mean_of(name, scores), ids, depends_on, means=[name], unit=unit)


def stored_name(name: str, depends_on: str) -> str:
    """A metric's name in the store, with the model or list that it depends on."""
    return f"{name} ({depends_on})" if depends_on else name
