"""What trained runs gave, as a regression gate expects it: a JSON file small enough to be committed.

The file is trusted no further than its types: unknown keys, other formats, NaN and malformed packs are refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from results.files import read_model
from results.records import Role, without_code
from results.runs.run import Run
from results.statistics.significance import ByImage

FORMAT: Final = "captionbench-baseline-1"
_STEPS: Final = 10_000
UNKNOWN: Final = "unknown"
Row = tuple[Role, str, frozenset[tuple[str, str]]]
"""Equal for the seeds of one model under one set of conditions, whatever code made them."""


class Closed(BaseModel):
    """A part of a file: nothing in it that is not known, no NaN and no infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Strict(Closed, strict=True):
    pass


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
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in fields or type(self).model_fields}
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
    scores: dict[str, float]
    by_image: dict[str, PerImage]
    captions: str = Field(pattern=r"^[0-9a-f]{64}$")


class Spent(_Strict):
    value: float
    unit: str
    low: float | None = None
    high: float | None = None


class BaselineRun(_Strict):
    """One run. `losses` are (stage, epoch, mean training loss), to the last bit; empty where nothing was trained."""

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
        return without_code(self.signature)

    @property
    def who(self) -> tuple[Role, str, int]:
        return self.role, self.model, self.seed

    @property
    def name(self) -> str:
        return f"{self.model} seed {self.seed}"

    @property
    def identity(self) -> tuple[Row, int]:
        """Equal for runs that should give the same results."""
        return row_of(self), self.seed


class Baseline(_Strict):
    """The expected runs, no two of the same identity."""

    format: Literal["captionbench-baseline-1"]
    runs: tuple[BaselineRun, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _no_run_twice(self) -> Self:
        if len({run.identity for run in self.runs}) != len(self.runs):
            raise ValueError("a run is there twice")
        return self

    @property
    def metrics(self) -> list[str]:
        return list(dict.fromkeys(metric for _, metric in tested_metrics(self.runs)))


def tested_metrics(runs: Sequence[BaselineRun]) -> list[tuple[str, str]]:
    """Splits and metrics of which a run has the images' scores, each once."""
    splits = ((split, results) for run in runs for split, results in run.splits.items())
    return list(dict.fromkeys((split, metric) for split, results in splits for metric in results.by_image))


def scores_of_seeds(runs: Sequence[BaselineRun], split: str, metric: str) -> list[dict[int, float]] | None:
    packed = [run.splits[split].by_image.get(metric) for run in runs if split in run.splits]
    found = [each.unpack() for each in packed if each is not None]
    return found if len(found) == len(runs) else None


def read_baseline(path: Path) -> Baseline:
    make = f"bench regress --update --train --baseline {path.parent}"
    return read_model(Baseline, path, "baseline", f"make it from finished runs, and move what is there away: {make}")


def write_out(baseline: Baseline) -> str:
    """The file's text: keys in a fixed order, one number or line of numbers a line, so that changes can be reviewed."""
    return json.dumps(baseline.model_dump(mode="json", exclude_none=True), indent=1, ensure_ascii=False) + "\n"


def row_of(run: Run | BaselineRun) -> Row:
    return run.role, run.model, frozenset(without_code(run.conditions).items())


def newest_runs(runs: Iterable[Run]) -> list[Run]:
    """The newest of the runs that should give the same results, whatever code made them."""
    newest: dict[object, Run] = {}
    for run in runs:
        identity = row_of(run), run.seed
        if identity not in newest or newest[identity].ended <= run.ended:
            newest[identity] = run
    return list(newest.values())


def baseline_of(runs: Iterable[Run], metrics: Collection[str], unfinished: Iterable[Run] = ()) -> Baseline | None:
    """The newest runs, none where an `unfinished` one of the same conditions ended later; None where none is left."""
    ended = [*runs, *(run for run in unfinished if run.finished_at is not None)]
    held = tuple(run_of(run, metrics) for run in newest_runs(ended) if run.status == "finished")
    return Baseline(format=FORMAT, runs=held) if held else None


def compare_baselines(
    old: Baseline, new: Baseline
) -> tuple[list[BaselineRun], list[BaselineRun], list[tuple[BaselineRun, list[str]]]]:
    """The runs that a new baseline adds, those that it drops, and those of other conditions with the fields."""
    before, after = ({run.identity: run for run in baseline.runs} for baseline in (old, new))
    fresh = [run for identity, run in after.items() if identity not in before]
    dropped, changed = [], []
    for run in (run for identity, run in before.items() if identity not in after):
        successor = next((other for other in fresh if other.who == run.who), None)
        if successor is None:
            dropped.append(run)
        else:
            fresh.remove(successor)
            changed.append((run, differing(run.conditions, successor.conditions)))
    return fresh, dropped, changed


def differing(one: Mapping[str, str], other: Mapping[str, str], absent: str = "none") -> list[str]:
    """The fields in which two signatures differ, each with both values."""
    pairs = {name: (one.get(name, absent), other.get(name, absent)) for name in dict.fromkeys((*one, *other))}
    return [f"{name} {before} → {after}" for name, (before, after) in pairs.items() if before != after]


def distinguishing(runs: Sequence[Run]) -> list[str]:
    """By run, the conditions that distinguish it from others of its model, on one line: one where that is enough."""
    found = []
    for run in runs:
        rivals = [other.conditions for other in runs if (other.role, other.model) == (run.role, run.model)]
        names = dict.fromkeys(name for conditions in rivals for name in without_code(conditions))
        values = {name: {conditions.get(name, "none") for conditions in rivals} for name in names}
        alone = [name for name in names if len(values[name]) == len(rivals) > 1]
        shortest = sorted(alone, key=lambda name: max(map(len, values[name])))[:1]
        chosen = shortest or [name for name in names if len(values[name]) > 1]
        found.append(", ".join(f"{name}: {run.conditions.get(name, 'none')}" for name in chosen))
    return found


def run_of(run: Run, metrics: Collection[str] = ()) -> BaselineRun:
    splits = {}
    for split, domains in run.scores.items():
        scores = {name: score.value for name, score in domains["overall"].items() if score.value is not None}
        of_images = {name: of for name, of in run.by_image.get(split, {}).items() if name in metrics and of}
        packed = {name: PerImage.pack(of) for name, of in of_images.items()}
        captions = sorted(run.captions.get(split, {}).items())
        listed = json.dumps(captions, ensure_ascii=True, separators=(",", ":")).encode()
        splits[split] = SplitResults(scores=scores, by_image=packed, captions=hashlib.sha256(listed).hexdigest())
    costs = {
        name: Spent(value=cost.value, unit=cost.unit, low=cost.low, high=cost.high)
        for name, cost in run.costs.items()
        if cost.value is not None
    }
    return BaselineRun(
        model=run.model,
        role=run.role,
        seed=run.seed,
        signature=run.conditions,
        code=run.made_by,
        platform=_platform(run.environment),
        losses=tuple((epoch.stage, epoch.epoch, epoch.train_loss) for epoch in run.epochs),
        splits=splits,
        costs=costs,
    )


def _platform(environment: Mapping[str, Any]) -> Platform:
    packages, training = (
        value if isinstance(value := environment.get(name), dict) else {} for name in ("packages", "training")
    )
    device = environment.get("device")
    if isinstance(device, dict):
        device = " ".join(str(device[field]) for field in ("type", "name") if field in device)
    known = {name: packages.get(name) for name in ("torch", "numpy")}
    known |= {name: environment.get(name) for name in ("os", "machine", "cpu", "threads")} | {"device": device}
    told = {name: UNKNOWN if value is None else str(value) for name, value in known.items()}
    return Platform(**told, training=", ".join(f"{name} {value}" for name, value in training.items()) or "none")
