"""The printed numbers, read once and checked field by field, and their footnotes."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple

import yaml

from results.errors import StoreError

Objective = Literal["XE", "RL"]
Backbone = Literal["frozen", "trained"]
METRICS = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
SPLITS = ("karpathy-test", "karpathy-val", "coco-online-c5", "coco-online-c40", "nocaps-val")
SPLIT_IMAGES = {"karpathy-test": 5000, "karpathy-val": 5000, "nocaps-val": 4500}
DOMAINS = ("in", "near", "out", "all")
_SERVER_DOMAINS = {"in-domain": 648, "near-domain": 2938, "out-domain": 914}


class Paper(NamedTuple):
    """Where numbers are printed."""

    title: str
    year: int


PAPERS = {
    "expansionnet_v2": Paper(
        "Exploiting Multiple Sequence Lengths in Fast End to End Training for Image Captioning", 2023
    ),
    "expansionnet_v2_arxiv": Paper(
        "ExpansionNet v2: Block Static Expansion in fast end to end training for Image Captioning", 2022
    ),
    "expansionnet_v1": Paper(
        "ExpansionNet: exploring the sequence length bottleneck in the Transformer for Image Captioning", 2022
    ),
    "image_transformer": Paper("Image Captioning through Image Transformer", 2020),
    "light_cgru": Paper("Bringing back simplicity and lightliness into neural image captioning", 2018),
    "x_linear": Paper("X-Linear Attention Networks for Image Captioning", 2020),
}


@dataclass(frozen=True, slots=True)
class PublishedScore:
    """One printed number with its conditions; None where the paper does not state one.

    `model` is the table's row, under one name in all papers; `variant` distinguishes the rows of one model. Scores
    (`METRICS`) are in percent, as printed; `note` says what the paper implies but does not state.
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
    lines = resources.files(__package__).joinpath("published.csv").read_text(encoding="utf-8").splitlines()
    return tuple(map(_score, csv.DictReader(lines)))


def _score(row: dict[str, Any]) -> PublishedScore:
    size = row.pop("ensemble")
    blank: dict[str, Any] = {name: row.pop(name) or None for name in ("features", "backbone", "objective")}
    blank |= {name: row.pop(name) or None for name in ("split", "domain")}
    return PublishedScore(
        ensemble=None if size == "" else size != "no",
        ensemble_size=int(size) if size.isdecimal() else None,
        beam=int(beam) if (beam := row.pop("beam")) else None,
        value=float(row.pop("value")),
        **blank,
        **row,
    )


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
class Footnote:
    """What a reader should know of some printed numbers: those of the named papers' tables, models and metrics.

    `where` are "paper, table" as `PublishedScore.source` writes them; empty fields stand for every one.
    """

    text: str
    where: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    objective: str = ""

    def concerns(self, score: PublishedScore) -> bool:
        return (
            (not self.where or score.source in self.where)
            and (not self.models or score.model in self.models)
            and (not self.variants or score.variant in self.variants)
            and (not self.metrics or score.metric in self.metrics)
            and self.objective in {"", score.objective}
        )


def footnotes(score: PublishedScore) -> list[Footnote]:
    return [footnote for footnote in _footnotes() if footnote.concerns(score)]


def domain_footnote(images: Mapping[str, int]) -> Footnote | None:
    """The footnote of scores of nocaps by domain where the domains are other images than the printed ones'.

    The server's validation domains and those that copies of the annotations state are not the same.

    Args:
        images: how many each domain has here, by name ("in-domain", "near-domain", "out-domain"); 0: not known.
    """
    if images == _SERVER_DOMAINS:
        return None
    here, there = (
        ", ".join(f"{count:,} {name}" for name, count in counts.items()) for counts in (images, _SERVER_DOMAINS)
    )
    told = f"are of other images here: {here}" if all(images.values()) else "may differ here"
    return Footnote(
        f"Domains {told}; printed scores by domain are of the nocaps server's {there}, but for ExpansionNet v2's, "
        "which fit the annotations' (docs/evaluation.md)."
    )


@cache
def _footnotes() -> tuple[Footnote, ...]:
    return tuple(Footnote(**frozen(entry)) for entry in stored("footnotes.yaml"))


def stored(name: str) -> Any:
    return yaml.safe_load(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


def frozen(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
