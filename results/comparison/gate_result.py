"""The result of a regression gate: rows of models with their tests, costs and reasons, and the exit code they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from results.statistics.architecture import ArchitectureDifference
from results.statistics.paired import Difference
from results.statistics.significance import ALPHA, RESAMPLES

TOLERANCE: Final = 0.5
"""The least effect that counts, in points of a metric times 100."""
IDENTICAL: Final = "identical scores of every image"
"""What `Tested.over` says where nothing differs, so that there is nothing to test."""

Status = Literal["same", "within", "undecided", "improved", "changed", "slower", "regressed", "missing", "refused"]
Verdict = Literal["same", "within", "undecided", "improved", "regressed"]
Exact = Literal["equal", "different", "not comparable here", "not judged"]
BLOCKING: Final = frozenset({"changed", "slower", "regressed", "missing"})


@dataclass(frozen=True, slots=True)
class Settings:
    """What the gate's result depends on.

    `tolerance` by metric, in points, where it is not `TOLERANCE`. `exact`: a changed bit fails. `strict_timing`: so
    does a time that is this many times as long; None: times are only reported. `require_power`: so does a test that
    cannot exclude a fall of the tolerance.
    """

    tolerance: Mapping[str, float] = field(default_factory=dict)
    exact: bool = True
    strict_timing: float | None = None
    require_power: bool = False

    def least(self, metric: str) -> float:
        """The least effect on `metric`, in points."""
        return self.tolerance.get(metric, TOLERANCE)


@dataclass(frozen=True, slots=True)
class Tested:
    """One metric on one split, over the mean of a row's seeds.

    `verdict`: "same" where every image's scores are identical; "regressed" and "improved" where test and least effect
    agree; else "within" where the interval excludes a fall of the tolerance, and "undecided" where it does not. `over`
    is what the test and its interval are over: `OVER_SEEDS` or `OVER_IMAGES` of `results.statistics.architecture`, or
    `IDENTICAL`; `architecture` has standard error and degrees of freedom of the first. `detectable` is the smallest
    fall, a fraction, that this test finds with a probability of 80 % if no other row has changed; None where
    nothing was tested, or images are too few to say.
    """

    split: str
    metric: str
    difference: Difference
    verdict: Verdict
    over: str
    detectable: float | None = None
    architecture: ArchitectureDifference | None = None


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

    def blocks(self, status: Status) -> bool:
        """Whether a row or test of this status fails the gate."""
        return status in BLOCKING or (status == "undecided" and self.settings.require_power)

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows that block."""
        return tuple(row for row in self.rows if self.blocks(row.status))

    @property
    def undecided(self) -> tuple[Tested, ...]:
        """The tests that found no fall, and could not have excluded one of the tolerance."""
        return tuple(tested for row in self.rows for tested in row.tests if tested.verdict == "undecided")

    @property
    def refused(self) -> tuple[Row, ...]:
        """The rows that could not be judged."""
        return tuple(row for row in self.rows if row.status == "refused")

    @property
    def exit_code(self) -> int:
        """1 for a regression or something missing, 2 where something could not be judged, else 0."""
        return 1 if self.failed else 2 if self.refused else 0
