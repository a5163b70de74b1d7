"""The scores of a run in long form: one quantity for each split, domain and metric."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal, NamedTuple

from results.metrics import is_more
from results.records import Quantity
from results.runs.facts import is_fact

OVERALL: Final = "overall"
"""The domain of all images of a split."""
Kind = Literal["usual", "further", "fact"]


class ScoreKey(NamedTuple):
    split: str
    domain: str
    metric: str


@cache
def kind_of(metric: str) -> Kind:
    """Whether it is one of the metrics of every run, one of `results.metrics`, or one of facts."""
    if is_more(metric):
        return "further"
    return "fact" if is_fact(metric) else "usual"


@dataclass(slots=True)
class RunScores:
    """Quantities by split, domain and metric, in the order in which they were recorded.

    Example:
        >>> scores = RunScores({ScoreKey("test", OVERALL, "CIDEr-D"): Quantity(1.25)})
        >>> scores.get("test", "CIDEr-D").value
        1.25
        >>> list(scores.metrics("test"))
        ['CIDEr-D']
    """

    rows: dict[ScoreKey, Quantity] = field(default_factory=dict)

    @property
    def splits(self) -> list[str]:
        """The splits that have usual metrics."""
        return list(dict.fromkeys(key.split for key in self.rows if kind_of(key.metric) == "usual"))

    def domains(self, split: str, kind: Kind = "usual") -> list[str]:
        """`OVERALL` and the split's domains that have metrics of this kind."""
        keys = (key for key in self.rows if key.split == split and kind_of(key.metric) == kind)
        return list(dict.fromkeys(key.domain for key in keys))

    def metrics(self, split: str, domain: str = OVERALL, kind: Kind = "usual") -> dict[str, Quantity]:
        return {
            key.metric: quantity
            for key, quantity in self.rows.items()
            if key.split == split and key.domain == domain and kind_of(key.metric) == kind
        }

    def by_domain(self, split: str) -> dict[str, dict[str, Quantity]]:
        """The usual metrics of each domain."""
        return {domain: self.metrics(split, domain) for domain in self.domains(split)}

    def get(self, split: str, metric: str, domain: str = OVERALL) -> Quantity | None:
        return self.rows.get(ScoreKey(split, domain, metric))

    def only(self, metrics: Collection[str]) -> RunScores:
        """Those of these metrics alone."""
        return RunScores({key: quantity for key, quantity in self.rows.items() if key.metric in metrics})
