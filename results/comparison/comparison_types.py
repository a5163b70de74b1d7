"""What a comparison of runs finds: pairs of sides, with changes of scores, costs and captions."""

from __future__ import annotations

from dataclasses import dataclass

from results.comparison.gate_result import CostChange
from results.records import ImageRecord
from results.statistics.architecture import ArchitectureDifference
from results.statistics.paired import Difference


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a pair: a model's runs over seeds, and the code that ran."""

    model: str
    role: str
    seeds: tuple[int, ...]
    keys: tuple[str, ...]
    code: str


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """One metric of one split, fractions, means over seeds; None with a reason where a side has none.

    `test` is of the images' scores, or of their influences where the metric is no mean of these; None with a reason
    too. Where a run has no influences, the single images' scores are tested, whose interval is not that of the change:
    `no_interval` says so. `over` says what the test and its interval are over, see `OVER_IMAGES` and `OVER_SEEDS`; of
    the latter, `architecture` has standard error and degrees of freedom.
    """

    split: str
    metric: str
    before: float | None
    after: float | None
    test: Difference | None = None
    reason: str | None = None
    no_interval: str | None = None
    over: str | None = None
    architecture: ArchitectureDifference | None = None


@dataclass(frozen=True, slots=True)
class CaptionChange:
    """An image whose caption differs, with its CIDEr-D on either side, fractions."""

    model: str
    split: str
    image: ImageRecord
    before: str
    after: str
    score_before: float
    score_after: float

    @property
    def change(self) -> float:
        """After less before."""
        return self.score_after - self.score_before


@dataclass(frozen=True, slots=True)
class Differing:
    """How many of a split's captions differ, and how many of these score better and worse."""

    split: str
    of: int
    captions: int
    better: int
    worse: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides that are compared.

    `conditions` are the fields of the signature that differ, the release aside; `settings` those of the configuration,
    where both sides are of one model. `hardware` is in what the machines differ, so that times have no
    ratio. `captions` are those that changed most, of `caption_seeds` before and after.
    `apart` are the conditions that distinguish the first side from that of other pairs of its model.
    """

    before: Side
    after: Side
    conditions: tuple[str, ...]
    settings: tuple[str, ...]
    scores: tuple[ScoreChange, ...]
    costs: tuple[CostChange, ...]
    hardware: tuple[str, ...]
    differing: tuple[Differing, ...]
    captions: tuple[CaptionChange, ...]
    caption_seeds: tuple[int, int]
    apart: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All pairs; `only_before` and `only_after` name runs without a counterpart; `tests` were corrected together."""

    pairs: tuple[Pair, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    tests: int
