"""The result of a regression gate: rows of models with their tests, costs and reasons, and the exit code they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from results.statistics.paired import Difference
from results.statistics.significance import ALPHA, RESAMPLES

TOLERANCE: Final = 0.5
"""The least effect that counts, in points of a metric times 100."""

Status = Literal["same", "improved", "changed", "slower", "regressed", "missing", "refused"]
Verdict = Literal["same", "improved", "regressed"]
Exact = Literal["equal", "different", "not comparable here", "not judged"]
BLOCKING: Final = frozenset({"changed", "slower", "regressed", "missing"})


@dataclass(frozen=True, slots=True)
class Settings:
    """What the gate's result depends on.

    `tolerance` by metric, in points, where it is not `TOLERANCE`. `exact`: a changed bit fails. `strict_timing`: so
    does a time that is this many times as long; None: times are only reported.
    """

    tolerance: Mapping[str, float] = field(default_factory=dict)
    exact: bool = True
    strict_timing: float | None = None

    def least(self, metric: str) -> float:
        """The least effect on `metric`, in points."""
        return self.tolerance.get(metric, TOLERANCE)


@dataclass(frozen=True, slots=True)
class Tested:
    """One metric on one split, over the mean of a row's seeds."""

    split: str
    metric: str
    difference: Difference
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class CostChange:
    """A cost's mean over seeds. `ratio` is after by before, `slowdown` the same turned so that more is slower.

    `ratio` is None where nothing was spent before, `slowdown` for what is no time. `apart`: the intervals do not
    overlap, where both sides were measured with one.
    """

    name: str
    unit: str
    before: float
    after: float
    ratio: float | None
    slowdown: float | None
    apart: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One model under one set of conditions, over its expected seeds, and its result.

    `exact` is the result of the deterministic class. `reasons` are sentences for why the row fails or could not
    be judged, `notes` say what blocks nothing.
    """

    model: str
    role: str
    seeds: tuple[int, ...]
    status: Status
    exact: Exact
    tests: tuple[Tested, ...] = ()
    costs: tuple[CostChange, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GateResult:
    """All rows in the baseline's order; `fresh` names runs that the baseline does not hold.

    `before` and `after` are the code that made each side, `tests` the number of tests corrected together.
    """

    rows: tuple[Row, ...]
    fresh: tuple[str, ...]
    settings: Settings
    before: str
    after: str
    tests: int
    resamples: int = RESAMPLES
    alpha: float = ALPHA

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows that block."""
        return tuple(row for row in self.rows if row.status in BLOCKING)

    @property
    def refused(self) -> tuple[Row, ...]:
        """The rows that could not be judged."""
        return tuple(row for row in self.rows if row.status == "refused")

    @property
    def exit_code(self) -> int:
        """1 for a regression or something missing, 2 where something could not be judged, else 0."""
        return 1 if self.failed else 2 if self.refused else 0
