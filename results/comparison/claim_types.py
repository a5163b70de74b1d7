"""A paper's claim as data, two sets of runs, a metric and a direction; and what stored runs say of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from results.comparison.comparison_types import ScoreChange
from results.runs.finished_runs import FinishedRun

Verdict = Literal["supported", "contradicted", "cannot be told", "not comparable", "no runs"]
UNTESTABLE: Final[tuple[Verdict, ...]] = ("not comparable", "no runs")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Runs(_Strict):
    """A set of stored runs: models by name or shell pattern, and the filters that they must pass.

    `preset` and `schedule` are names, `stages` those of the schedule's stages, in order; `data` is a data set's name or
    fingerprint. `signature` has shell patterns for fields of the signature; a field that a run lacks is "none".
    """

    models: tuple[str, ...] = Field(min_length=1)
    preset: str | None = None
    schedule: str | None = None
    stages: tuple[str, ...] | None = None
    data: str | None = None
    signature: dict[str, str] = Field(default_factory=dict)

    def has(self, run: FinishedRun) -> bool:
        """Whether a run belongs to the set."""
        preset = run.config.get("preset", {})
        schedule = preset.get("schedule", {})
        named = (
            (self.preset, preset.get("name")),
            (self.schedule, schedule.get("name")),
            (self.stages, tuple(stage.get("name") for stage in schedule.get("stages", ()))),
        )
        return (
            run.role == "model"
            and any(fnmatchcase(run.model, pattern) for pattern in self.models)
            and all(wanted in (None, found) for wanted, found in named)
            and self.data in (None, run.dataset, run.fingerprint)
            and all(fnmatchcase(run.conditions.get(name, "none"), own) for name, own in self.signature.items())
        )

    def described(self) -> str:
        """Models and filters on one line."""
        filters = {"preset": self.preset, "schedule": self.schedule, "data": self.data, **self.signature}
        filters |= {"stages": "+".join(self.stages)} if self.stages else {}
        shown = ", ".join(f"{name} {value}" for name, value in filters.items() if value is not None)
        return f"{', '.join(self.models)}{f' ({shown})' * bool(shown)}"


class Sides(_Strict):
    """The runs of which something is claimed, and those that they are compared with."""

    runs: Runs
    than: Runs


class Published(_Strict):
    """What the paper prints: `runs` less `than` in points, and of a claim of an order the same of `after`."""

    difference: float
    after: float | None = None
    metric: str
    table: str


class Claim(Sides):
    """One claim: `runs` score higher (or lower) than `than`; or their order is another `after`.

    `after` are the same two models, later trained on, say. `varies` names the fields of the signature in which compared
    runs may differ, since they are what is claimed about. `commands` make the runs.
    """

    sentence: str = Field(min_length=1)
    paper: str
    published: Published
    metric: str = "CIDEr-D"
    split: str = "test"
    direction: Literal["higher", "lower", "reversed"] = "higher"
    after: Sides | None = None
    varies: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        order = self.direction == "reversed"
        if order != (self.after is not None) or order != (self.published.after is not None):
            raise ValueError("direction: reversed, after, and published.after belong together")
        return self

    def sides(self) -> Iterator[Sides]:
        """The two sets that are compared, and those of `after`."""
        yield self
        if self.after is not None:
            yield self.after


class ClaimFile(_Strict):
    """The claims of a file."""

    claims: tuple[Claim, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Finding:
    """Two rows compared: models and seeds of either side, and the score's difference with its test.

    `why` says what forbids a verdict, as that a side was still learning; None where nothing does. `said` are remarks.
    """

    models: tuple[str, str]
    seeds: tuple[tuple[int, ...], tuple[int, ...]]
    score: ScoreChange
    why: str | None = None
    said: tuple[str, ...] = ()

    @property
    def difference(self) -> float | None:
        """As a fraction; None where a side has no score."""
        if self.score.before is None or self.score.after is None:
            return None
        return self.score.after - self.score.before


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A claim on one data set under one set of conditions; without findings where it has no runs to compare.

    `number` is the claim's, from 1. `data` and `conditions` say where: those of the first finding's runs.
    """

    number: int
    claim: Claim
    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...] = ()
    data: str = ""
    conditions: tuple[tuple[str, Any], ...] = ()
