"""What a commit computes before training turns chaotic: recorded, stored, and compared up to rounding.

Training multiplies differences of rounding until runs of one commit differ by many points, but its first steps, and
captions of fixed weights, do not. So these are judged on any machine, within tolerances that were measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from results.comparison.conditions import UNKNOWN, differing
from results.files import read_model

FILE: Final = "recording.json"
HEADROOM: Final = 20.0
AHEAD: Final = 4
"""A tolerance is `HEADROOM` times what rounding was seen to change. Of steps it is the most up to `AHEAD` steps later,
since the step at which a difference jumps is itself chance."""
RUNS: Final = "it runs"  # what is recorded of a part that could be; else why it could not
_DIGITS: Final = 9

Layer = Literal["settings", "data", "metrics", "inference", "first_steps"]
LAYERS: Final[tuple[Layer, ...]] = ("settings", "data", "metrics", "inference", "first_steps")
"""In the order of cause and effect: what an earlier one finds explains what later ones do."""


class Closed(BaseModel):
    """A part of a file: nothing in it that is not known, no NaN and no infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Series(Closed):
    """One quantity at several positions, of one model or of all: numbers, or texts that must be equal.

    `axis` says what a position is, such as "step", "image" or "word". `tolerance` is absolute, for all positions or for
    each. `ties` are positions whose text can change by rounding alone. `likely` are the beginnings of the paths in
    which such a fault mostly lies.
    """

    layer: Layer
    model: str = ""
    quantity: str
    axis: str
    positions: tuple[str, ...]
    values: tuple[float, ...] | tuple[str, ...]
    tolerance: tuple[float, ...] = (0.0,)
    ties: tuple[str, ...] = ()
    likely: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.values) != len(self.positions) or len(self.tolerance) not in (1, len(self.positions)):
            raise ValueError(f"{self.quantity}: positions, values and tolerances must be of the same number")
        return self

    @property
    def name(self) -> tuple[Layer, str, str]:
        return self.layer, self.model, self.quantity

    def by_position(self) -> dict[str, float | str]:
        return dict(zip(self.positions, self.values, strict=True))

    def with_tolerance(self, replicas: Iterable[Series]) -> Series:
        """The same series, which tolerates what `replicas` measured with other roundings, and what it tolerated."""
        values = self.by_position()
        replica_values = [replica.by_position() for replica in replicas if replica.name == self.name]
        if any(isinstance(value, str) for value in self.values):
            ties = [
                position
                for position, text in values.items()
                if any(replica.get(position) != text for replica in replica_values)
            ]
            return self.model_copy(update={"ties": tuple(ties)})
        # The second largest difference: a sampled word, or a jump, of a single replica is chance.
        changes = []
        for position, value in values.items():
            differences = sorted(_difference(value, replica.get(position)) for replica in replica_values)
            changes.append([0.0, 0.0, *differences][-2])
        if self.axis == "step":
            ahead = [max(changes[step : step + AHEAD + 1]) for step in range(len(changes))]
            largest = list(accumulate(ahead, max))
        else:
            largest = [max(changes, default=0.0)]
        tolerance = tuple(_short(max(HEADROOM * change, self.tolerance[0]), 2) for change in largest)
        if len(set(tolerance)) == 1:
            tolerance = tolerance[:1]
        return self.model_copy(update={"tolerance": tolerance})


def series(
    layer: Layer,
    model: str,
    quantity: str,
    axis: str,
    values_by_position: Mapping[str, float] | Mapping[str, str],
    likely: Sequence[str],
    *,
    rounding: float = 0.0,
) -> Series:
    """A series of numbers or texts by position; `rounding` is what may differ in any case, of the largest number."""
    values = tuple(
        _short(value, _DIGITS) if isinstance(value, float) else value for value in values_by_position.values()
    )
    largest = max((abs(value) for value in values if isinstance(value, float)), default=0.0)
    return Series(
        layer=layer,
        model=model,
        quantity=quantity,
        axis=axis,
        positions=tuple(values_by_position),
        values=values,
        tolerance=(_short(rounding * largest, 2),),
        likely=tuple(likely),
    )


def _short(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _difference(before: float | str | None, after: float | str | None) -> float:
    return abs(before - after) if isinstance(before, float) and isinstance(after, float) else math.inf


class Request(Closed):
    """What is recorded: these models under this preset, with `--set`'s changes, and the plug-ins that define them."""

    models: tuple[str, ...] = Field(min_length=1)
    preset: str
    changes: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


class Recording(Closed):
    """All that was recorded, with the code (release and commit) and the platform.

    Recordings of captionbench 1.0 also hold digests of sources as `files`, which are neither used nor written.
    """

    format: Literal["captionbench-recording-2"] = "captionbench-recording-2"
    request: Request
    code: str
    platform: dict[str, str]
    files: dict[str, str] = Field(default_factory=dict, exclude=True)
    series: tuple[Series, ...]

    @classmethod
    def read(cls, folder: Path) -> Self:
        make = f"bench regress --update --baseline {folder}; add --models NAMES, and --plugin for your own"
        return read_model(cls, folder / FILE, "recording", f"make one: {make}")

    def text(self) -> str:
        """The file: each series' lists on a line of their own, so that changes can be reviewed."""
        content = self.model_dump(mode="json")
        content["series"] = [
            {name: value for name, value in recorded.items() if value not in ("", [], [0.0])}
            for recorded in content["series"]
        ]
        return _written(content) + "\n"


def _written(value: object, depth: int = 0) -> str:
    if isinstance(value, dict) and value:
        pad = " " * (depth + 1)
        rows = (f"{pad}{json.dumps(key)}: {_written(item, depth + 1)}" for key, item in value.items())
        return "{\n" + ",\n".join(rows) + f"\n{pad[1:]}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[" + ", ".join(_written(item, depth) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Finding:
    """One quantity that is not as before: first at `position`, and at `differing_count` of `count` positions in all.

    `size` is how many times the tolerance the first difference is; None where texts differ, or something is there on
    one side alone. `likely` are folders and files that mostly cause such a difference, likeliest first.
    """

    layer: Layer
    model: str
    quantity: str
    axis: str
    position: str
    before: str
    after: str
    differing_count: int
    count: int
    size: float | None
    likely: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """What a comparison of two recordings found, first causes first; `checked` counts series by layer and model."""

    findings: tuple[Finding, ...]
    ties: tuple[str, ...]
    checked: dict[tuple[Layer, str], int]
    before: str
    after: str
    other_platform: tuple[str, ...]
    seconds: float


def judge_recording(expected: Recording, found: Recording, seconds: float) -> Judged:
    now = {recorded.name: recorded for recorded in found.series}
    broken = {recorded.model for recorded in found.series if recorded.axis == "part" and recorded.values != (RUNS,)}
    findings: list[Finding] = []
    ties: list[str] = []
    checked: dict[tuple[Layer, str], int] = {}
    for recorded in sorted(expected.series, key=lambda recorded: LAYERS.index(recorded.layer)):
        checked[recorded.layer, recorded.model] = checked.get((recorded.layer, recorded.model), 0) + 1
        if recorded.name not in now and recorded.model in broken:
            continue  # the reason why it is absent is a finding of its own
        finding = _finding(recorded, now.get(recorded.name), ties)
        if finding is not None:
            findings.append(finding)
    order = list(
        dict.fromkeys((recorded.layer, recorded.model, _part(recorded.quantity)) for recorded in expected.series)
    )

    def causes(finding: Finding) -> tuple[int, int, int]:
        """What sorts causes before effects: layers, then models and stages as recorded, then steps."""
        step = int(finding.position) if finding.axis == "step" and finding.position.isdecimal() else 0
        return LAYERS.index(finding.layer), order.index((finding.layer, finding.model, _part(finding.quantity))), step

    findings.sort(key=causes)
    other_platform = sorted(differing(expected.platform, found.platform, UNKNOWN))
    return Judged(tuple(findings), tuple(ties), checked, expected.code, found.code, tuple(other_platform), seconds)


def _part(quantity: str) -> str:
    """The stage of a series of steps: "xe: loss" is of "xe"."""
    stage, colon, _ = quantity.partition(": ")
    return stage if colon else ""


def _finding(before: Series, after: Series | None, ties: list[str]) -> Finding | None:
    values_before = before.by_position()
    values_after = {} if after is None else after.by_position()
    tolerances = dict(zip(before.positions, before.tolerance * len(before.positions), strict=False))
    differing = []
    for position in dict.fromkeys((*values_before, *values_after)):
        value_before = values_before.get(position)
        value_after = values_after.get(position)
        if value_before == value_after or _difference(value_before, value_after) <= tolerances.get(position, 0.0):
            continue
        if position in before.ties and value_after is not None:
            ties.append(
                f"{before.model}: {before.quantity} of {before.axis} {position} depends on rounding, and differs"
            )
            continue
        differing.append(position)
    if not differing:
        return None
    first = differing[0]
    value_before = values_before.get(first)
    value_after = values_after.get(first)
    difference = _difference(value_before, value_after)
    size = None
    if tolerances.get(first) and difference < math.inf:
        size = difference / tolerances[first]
    return Finding(
        layer=before.layer,
        model=before.model,
        quantity=before.quantity,
        axis=before.axis,
        position=first,
        before=_value_text(value_before),
        after=_value_text(value_after),
        differing_count=len(differing),
        count=len(before.positions),
        size=size,
        likely=before.likely,
    )


def _value_text(value: float | str | None) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else value
