"""The printed numbers, read once and checked field by field."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, cast, get_args

from results.errors import StoreError

Objective = Literal["XE", "RL"]
Backbone = Literal["frozen", "trained"]
METRICS = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
SPLITS = ("karpathy-test", "karpathy-val", "coco-online-c5", "coco-online-c40", "nocaps-val")
SPLIT_IMAGES = {"karpathy-test": 5000, "karpathy-val": 5000, "nocaps-val": 4500}
DOMAINS = ("in", "near", "out", "all")

_FILE = "published.csv"
_COLUMNS = (
    "paper",
    "table",
    "model",
    "variant",
    "features",
    "backbone",
    "objective",
    "ensemble",
    "beam",
    "split",
    "domain",
    "metric",
    "value",
    "unit",
    "note",
)


@dataclass(frozen=True, slots=True)
class Paper:
    """Where numbers are printed, and what holds for all of its own rows: no two papers share these conditions."""

    title: str
    year: int
    vocabulary: str
    training_images: int


PAPERS = {
    "expansionnet_v2": Paper(
        "Exploiting Multiple Sequence Lengths in Fast End to End Training for Image Captioning",
        2023,
        "10,000 words",
        113_287,
    ),
    "expansionnet_v2_arxiv": Paper(
        "ExpansionNet v2: Block Static Expansion in fast end to end training for Image Captioning",
        2022,
        "10,000 words",
        113_287,
    ),
    "expansionnet_v1": Paper(
        "ExpansionNet: exploring the sequence length bottleneck in the Transformer for Image Captioning",
        2022,
        "10,000 words",
        113_287,
    ),
    "image_transformer": Paper("Image Captioning through Image Transformer", 2020, "10,369 words", 113_287),
    "light_cgru": Paper(
        "Bringing back simplicity and lightliness into neural image captioning", 2018, "5,066 BPE tokens", 82_783
    ),
    "x_linear": Paper("X-Linear Attention Networks for Image Captioning", 2020, "9,487 words", 113_287),
}


@dataclass(frozen=True, slots=True)
class PublishedScore:
    """One printed number with its conditions; None where the paper does not state one.

    `model` is the table's row, under one name in all papers; `variant` distinguishes the rows of one model, "" where it
    has one alone. `ensemble` says whether several models made the captions, `ensemble_size` how many, where printed.
    Scores (`METRICS`) are in percent, as printed; `note` says what the paper implies but does not state.
    """

    paper: str
    table: str
    model: str
    variant: str
    features: str | None
    backbone: Backbone | None
    objective: Objective | None
    ensemble: bool | None
    ensemble_size: int | None
    beam: int | None
    split: str | None
    domain: str | None
    metric: str
    value: float
    unit: str
    note: str

    @property
    def fraction(self) -> float:
        """The score as the store has it: 1.404 for a printed CIDEr-D of 140.4; StoreError for what is not a score."""
        if self.unit != "percent":
            raise StoreError(f"{self.metric} of {self.model} is printed in {self.unit}, which is not a score")
        return self.value / 100

    @property
    def source(self) -> str:
        """Where it is printed: "expansionnet_v2, Table II"."""
        return f"{self.paper}, {self.table}"


@cache
def scores() -> tuple[PublishedScore, ...]:
    """Every printed number, in the order of the file.

    Raises:
        StoreError: a row that breaks the rules of the file, by line and column.
    """
    return read_scores(resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8").splitlines())


def read_scores(lines: Iterable[str]) -> tuple[PublishedScore, ...]:
    """Read and check a table of printed numbers; StoreError names the line and the column that is wrong."""
    reader = csv.DictReader(lines)
    if tuple(reader.fieldnames or ()) != _COLUMNS:
        raise StoreError(f"{_FILE}, line 1: the columns are not {','.join(_COLUMNS)}")
    return tuple(_Line(reader.line_num, row).score() for row in reader)


def printed_rows(chosen: Iterable[PublishedScore]) -> list[dict[str, PublishedScore]]:
    """Numbers as their tables show them: one row for all that share every condition, by metric, in order."""
    rows: dict[tuple[object, ...], dict[str, PublishedScore]] = {}
    for score in chosen:
        where = (score.paper, score.table, score.model, score.variant)
        conditions = (
            score.features,
            score.backbone,
            score.objective,
            score.ensemble,
            score.ensemble_size,
            score.beam,
            score.split,
            score.domain,
        )
        rows.setdefault((*where, *conditions), {})[score.metric] = score
    return list(rows.values())


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    row: dict[str, str]

    def score(self) -> PublishedScore:
        if None in self.row or None in self.row.values():
            raise StoreError(f"{_FILE}, line {self.number}: not {len(_COLUMNS)} columns")
        for column in ("table", "model", "metric", "unit"):
            self._check(column, bool(self.row[column]), "is blank")
        size = self.row["ensemble"]
        metric, unit = self.row["metric"], self.row["unit"]
        self._check("unit", (unit == "percent") == (metric in METRICS), f"does not go with {metric}")
        return PublishedScore(
            paper=cast("str", self._one_of("paper", tuple(PAPERS))),
            table=self.row["table"],
            model=self.row["model"],
            variant=self.row["variant"],
            features=self.row["features"] or None,
            backbone=cast("Backbone | None", self._one_of("backbone", ("", *get_args(Backbone)))),
            objective=cast("Objective | None", self._one_of("objective", ("", *get_args(Objective)))),
            ensemble=None if size == "" else size != "no",
            ensemble_size=None if size in {"", "no", "yes"} else self._whole("ensemble"),
            beam=None if self.row["beam"] == "" else self._whole("beam"),
            split=self._one_of("split", ("", *SPLITS)),
            domain=self._one_of("domain", ("", *DOMAINS)),
            metric=metric,
            value=self._number(),
            unit=unit,
            note=self.row["note"],
        )

    def _one_of(self, column: str, known: tuple[str, ...]) -> str | None:
        self._check(column, self.row[column] in known, f"is not one of {', '.join(filter(None, known))}")
        return self.row[column] or None

    def _whole(self, column: str) -> int:
        self._check(column, self.row[column].isdecimal() and int(self.row[column]) > 0, "is not a positive integer")
        return int(self.row[column])

    def _number(self) -> float:
        try:
            value = float(self.row["value"])
        except ValueError:
            value = math.nan
        self._check("value", math.isfinite(value) and value >= 0, "is not a number")
        return value

    def _check(self, column: str, holds: bool, otherwise: str) -> None:
        if not holds:
            raise StoreError(f"{_FILE}, line {self.number}: {column} {self.row[column]!r} {otherwise}")
