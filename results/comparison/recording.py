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

Layer = Literal["settings", "data", "metrics", "speaks", "starts"]
LAYERS: Final[tuple[Layer, ...]] = ("settings", "data", "metrics", "speaks", "starts")
"""In the order of cause and effect: what an earlier one finds explains what later ones do."""


class Closed(BaseModel):
    """A part of a file: nothing in it that is not known, no NaN and no infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Series(Closed):
    """One quantity at several places, of one model or of all: numbers, or texts that must be equal.

    `each` says what a place is, as "step", "image" or "word". `tolerance` is absolute, for all or a place; `ties` are
    places whose text rounding alone can change, `likely` beginnings of the paths that such a fault mostly lies in.
    """

    layer: Layer
    model: str = ""
    what: str
    each: str
    places: tuple[str, ...]
    values: tuple[float, ...] | tuple[str, ...]
    tolerance: tuple[float, ...] = (0.0,)
    ties: tuple[str, ...] = ()
    likely: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.values) != len(self.places) or len(self.tolerance) not in (1, len(self.places)):
            raise ValueError(f"{self.what}: places, values and tolerances must be of the same number")
        return self

    @property
    def name(self) -> tuple[Layer, str, str]:
        return self.layer, self.model, self.what

    def by_place(self) -> dict[str, float | str]:
        return dict(zip(self.places, self.values, strict=True))

    def with_tolerance(self, others: Iterable[Series]) -> Series:
        """The same, that lets pass what `others` measured under other roundings; what it allows already stays."""
        mine, rounded = self.by_place(), [other.by_place() for other in others if other.name == self.name]
        if any(isinstance(value, str) for value in self.values):
            ties = (place for place, text in mine.items() if any(each.get(place) != text for each in rounded))
            return self.model_copy(update={"ties": tuple(ties)})
        # The largest difference but one: a sampled word, or a jump, that one replica alone has is chance.
        differences = ([_apart(value, each.get(place)) for each in rounded] for place, value in mine.items())
        seen = [sorted((0.0, 0.0, *of_place))[-2] for of_place in differences]
        if self.each == "step":
            ahead = [max(seen[step : step + AHEAD + 1]) for step in range(len(seen))]
            most = list(accumulate(ahead, max))
        else:
            most = [max(seen, default=0.0)]
        allowed = tuple(_short(max(HEADROOM * each, self.tolerance[0]), 2) for each in most)
        return self.model_copy(update={"tolerance": allowed[:1] if len(set(allowed)) == 1 else allowed})


def series(
    layer: Layer,
    model: str,
    what: str,
    each: str,
    found: Mapping[str, float] | Mapping[str, str],
    likely: Sequence[str],
    *,
    rounding: float = 0.0,
) -> Series:
    """A series of numbers or texts by place; `rounding` is what may differ in any case, of the largest number."""
    values = tuple(_short(value, _DIGITS) if isinstance(value, float) else value for value in found.values())
    largest = max((abs(value) for value in values if isinstance(value, float)), default=0.0)
    return Series(
        layer=layer,
        model=model,
        what=what,
        each=each,
        places=tuple(found),
        values=values,
        tolerance=(_short(rounding * largest, 2),),
        likely=tuple(likely),
    )


def _short(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _apart(before: float | str | None, after: float | str | None) -> float:
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

    format: Literal["captionbench-recording-1"] = "captionbench-recording-1"
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
    """One quantity that is not as before: at `place`, the first that differs, and at `places` of `of` in all.

    `size` is how many times the tolerance the first difference is; None where texts differ, or something is there on
    one side alone. `likely` are folders and files that mostly cause such a difference, likeliest first.
    """

    layer: Layer
    model: str
    what: str
    each: str
    place: str
    before: str
    after: str
    places: int
    of: int
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
    broken = {recorded.model for recorded in found.series if recorded.each == "part" and recorded.values != (RUNS,)}
    findings: list[Finding] = []
    ties: list[str] = []
    checked: dict[tuple[Layer, str], int] = {}
    for recorded in sorted(expected.series, key=lambda recorded: LAYERS.index(recorded.layer)):
        checked[recorded.layer, recorded.model] = checked.get((recorded.layer, recorded.model), 0) + 1
        if recorded.name not in now and recorded.model in broken:
            continue  # why it is not there is a finding itself
        if (finding := _finding(recorded, now.get(recorded.name), ties)) is not None:
            findings.append(finding)
    order = list(dict.fromkeys((recorded.layer, recorded.model, _part(recorded.what)) for recorded in expected.series))

    def causes(finding: Finding) -> tuple[int, int, int]:
        """What sorts causes before effects: layers, then models and stages as recorded, then steps."""
        step = int(finding.place) if finding.each == "step" and finding.place.isdecimal() else 0
        return LAYERS.index(finding.layer), order.index((finding.layer, finding.model, _part(finding.what))), step

    findings.sort(key=causes)
    other_platform = sorted(differing(expected.platform, found.platform, UNKNOWN))
    return Judged(tuple(findings), tuple(ties), checked, expected.code, found.code, tuple(other_platform), seconds)


def _part(what: str) -> str:
    """The stage of a series of steps: "xe: loss" is of "xe"."""
    stage, colon, _ = what.partition(": ")
    return stage if colon else ""


def _finding(before: Series, after: Series | None, ties: list[str]) -> Finding | None:
    mine, theirs = before.by_place(), {} if after is None else after.by_place()
    tolerances = dict(zip(before.places, before.tolerance * len(before.places), strict=False))
    differing = []
    for place in dict.fromkeys((*mine, *theirs)):
        value_before, value_after = mine.get(place), theirs.get(place)
        if value_before == value_after or _apart(value_before, value_after) <= tolerances.get(place, 0.0):
            continue
        if place in before.ties and value_after is not None:
            ties.append(f"{before.model}: {before.what} of {before.each} {place} hangs on rounding, and differs")
            continue
        differing.append(place)
    if not differing:
        return None
    first = differing[0]
    value_before, value_after = mine.get(first), theirs.get(first)
    size = (
        _apart(value_before, value_after) / tolerances[first]
        if tolerances.get(first) and _apart(value_before, value_after) < math.inf
        else None
    )
    texts = (
        "none" if value is None else f"{value:.6g}" if isinstance(value, float) else value
        for value in (value_before, value_after)
    )
    where = before.layer, before.model, before.what, before.each, first
    text_before, text_after = texts
    return Finding(*where, text_before, text_after, len(differing), len(before.places), size, before.likely)
