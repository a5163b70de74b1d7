"""A regression gate's baseline: the expected results of runs, in a JSON file small enough to be committed.

The file is trusted no further than its types: unknown keys, other formats, NaN and malformed packs are refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from results.errors import StoreError
from results.files import load_json, read_bytes
from results.records import CODE_FIELDS, Role
from results.statistics.paired import ByImage

FORMAT: Final = "captionbench-baseline-1"
_STEPS: Final = 10_000
UNKNOWN: Final = "unknown"
Identity = tuple[Role, str, int, frozenset[tuple[str, str]]]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Platform(_Strict):
    """The platform that bits are compared on; "unknown" equals nothing, not even itself."""

    torch: str
    numpy: str
    os: str
    machine: str
    cpu: str
    threads: str
    device: str
    training: str

    def differs(self, other: Platform, fields: Sequence[str] | None = None) -> list[str]:
        """The fields (None: all) in which two platforms are not known to be equal, each with both values."""
        names = tuple(type(self).model_fields) if fields is None else fields
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        return [f"{name} {one} → {two}" for name, (one, two) in pairs.items() if one != two or one == UNKNOWN]


class PerImage(_Strict):
    """One metric of every image, as two lines of numbers that are short and can be read.

    `ids` is the lowest image id, then each id's distance to the one before. `scores` are ten-thousandths in the order
    of the ids: no image is off by more than 0.005 points of a metric times 100, their mean by less.
    """

    ids: str = Field(pattern=r"^-?\d{1,19}( \d{1,19})*$")
    scores: str = Field(pattern=r"^-?\d{1,15}( -?\d{1,15})*$")

    @model_validator(mode="after")
    def _check(self) -> Self:
        gaps = self.ids.split()
        if len(gaps) != len(self.scores.split()) or 0 in map(int, gaps[1:]):
            raise ValueError("ids and scores must be of the same number, and no id twice")
        return self

    @classmethod
    def pack(cls, scores: ByImage) -> Self:
        """From scores by image id, at least one."""
        ids = sorted(scores)
        gaps = [ids[0], *(after - before for before, after in pairwise(ids))]
        steps = (round(scores[image] * _STEPS) for image in ids)
        return cls(ids=" ".join(map(str, gaps)), scores=" ".join(map(str, steps)))

    def unpack(self) -> dict[int, float]:
        """Back to scores by image id."""
        found, image = {}, 0
        for gap, step in zip(self.ids.split(), self.scores.split(), strict=True):
            image += int(gap)
            found[image] = int(step) / _STEPS
        return found


class SplitResults(_Strict):
    """One split: corpus scores (fractions), scores of the images by metric, and the SHA-256 of all captions."""

    scores: dict[str, float]
    by_image: dict[str, PerImage]
    captions: str = Field(pattern=r"^[0-9a-f]{64}$")


class Spent(_Strict):
    """A cost, with its interval where it was measured with one."""

    value: float
    unit: str
    low: float | None = None
    high: float | None = None


class Run(_Strict):
    """One run: its conditions, code, platform and results.

    `losses` are (stage, epoch, mean training loss), to the last bit; empty for rows that need no training.
    """

    model: str
    role: Role
    seed: int
    signature: dict[str, str]
    code: str
    platform: Platform
    losses: tuple[tuple[int, int, float], ...]
    splits: dict[str, SplitResults]
    costs: dict[str, Spent]

    @property
    def conditions(self) -> dict[str, str]:
        """The signature less what names code: comparing code is what the gate is for."""
        return {name: value for name, value in self.signature.items() if name not in CODE_FIELDS}

    @property
    def who(self) -> tuple[Role, str, int]:
        """Role, model and seed."""
        return self.role, self.model, self.seed

    @property
    def row(self) -> tuple[Role, str, frozenset[tuple[str, str]]]:
        """Equal for the seeds of one model under one set of conditions."""
        return self.role, self.model, frozenset(self.conditions.items())

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"{self.model} seed {self.seed}"

    @property
    def identity(self) -> Identity:
        """Equal for runs that should give the same results."""
        return (*self.who, frozenset(self.conditions.items()))


class Baseline(_Strict):
    """The expected runs, no two of the same identity."""

    format: Literal["captionbench-baseline-1"]
    runs: tuple[Run, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _no_run_twice(self) -> Self:
        if len({run.identity for run in self.runs}) != len(self.runs):
            raise ValueError("a run is there twice")
        return self

    @property
    def metrics(self) -> list[str]:
        """Metrics of which there are scores of images."""
        results = (split for run in self.runs for split in run.splits.values())
        return list(dict.fromkeys(metric for split in results for metric in split.by_image))


def tested_metrics(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Splits and metrics of which a run has the images' scores, each once."""
    splits = ((split, results) for run in runs for split, results in run.splits.items())
    return list(dict.fromkeys((split, metric) for split, results in splits for metric in results.by_image))


def scores_of_seeds(runs: Sequence[Run], split: str, metric: str) -> list[dict[int, float]] | None:
    """The images' scores of each run; None where one of them has none."""
    packed = [run.splits[split].by_image.get(metric) for run in runs if split in run.splits]
    found = [each.unpack() for each in packed if each is not None]
    return found if len(found) == len(runs) else None


def read_baseline(path: Path) -> Baseline:
    """Read and check a baseline.

    Raises:
        StoreError: it cannot be read, is not a baseline, or one of another format; the first fault is named.
    """
    make = f"bench regress --update --baseline {path}"
    hint = f"name another, or move it away and make one from finished runs: {make}"
    try:
        text = read_bytes(path).decode("utf-8")
    except OSError as error:
        missing = f"make it from finished runs: {make}" if isinstance(error, FileNotFoundError) else hint
        raise StoreError(f"cannot read the baseline {path}: {error.strerror}", missing) from error
    except UnicodeDecodeError as error:
        raise StoreError(f"the baseline {path} is not text in UTF-8", hint) from error
    try:
        load_json(text)  # of a key that is there twice, pydantic would take the last
        return Baseline.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        fault = first["msg"].removeprefix("Value error, ")
        raise StoreError(f"{path} is not a baseline: {f'{where}: ' if where else ''}{fault}", hint) from error
    except ValueError as error:
        raise StoreError(f"{path} is not a baseline: {error}", hint) from error


def write_out(baseline: Baseline) -> str:
    """The file's text: keys in a fixed order, one number or line of numbers a line, so that changes can be reviewed."""
    return json.dumps(baseline.model_dump(mode="json", exclude_none=True), indent=1, ensure_ascii=False) + "\n"
