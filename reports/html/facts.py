"""The page of what models get wrong: matrices of models by kinds of facts, as the template draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.tables.boards import apart
from reports.tables.contents import Contents
from reports.tables.numbers import DASH, bounds, domain_order, percent
from reports.tables.scene_facts import MEANING, answers
from results.runs.fact_rows import FactTable, fact_table
from results.runs.facts import KINDS, MEASURES, fact_metric
from results.runs.leaderboard import Row
from results.runs.spreads import Spread
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class Square:
    """One cell: the share as text, how dark it is, its interval, and whether no model is surely better."""

    text: str
    dark: int
    interval: str
    leading: bool


@dataclass(frozen=True, slots=True)
class Matrix:
    """Models by kinds, or by kinds and `domains`; `linked` to the gallery where `address` is not empty."""

    title: str
    meaning: str
    lines: Sequence[tuple[str, bool, Sequence[Square]]]
    domains: Sequence[str] = ()
    address: str = ""


@dataclass(frozen=True, slots=True)
class FactSection:
    """The matrices of one group."""

    id: str
    title: str
    track: str
    apart: str
    matrices: Sequence[Matrix]


def fact_sections(
    store: Store, contents: Contents, galleries: Mapping[tuple[str, str], str]
) -> tuple[list[FactSection], list[tuple[str, str]]]:
    """A section a group that has facts, and the answers to four questions.

    Args:
        galleries: the file of the gallery by data set's fingerprint and split.
    """
    tables = [found for group in contents.groups if (found := fact_table(store, group, contents.runs))]
    sections: list[FactSection] = []
    for table in tables:
        group = table.group
        file = galleries.get((group.fingerprint, group.split), "")
        matrices = [
            Matrix(
                measure.capitalize(), MEANING[measure], _lines(table, measure), address=file * (measure == "precision")
            )
            for measure in MEASURES
        ]
        if domains := domain_order(name for name in table.images if name != "overall"):
            named = [f"{name.removesuffix('-domain')}, {table.images[name]}" for name in domains]
            meaning = f"{MEANING['precision']}, by the domain of the picture"
            matrices.insert(1, Matrix("By domain", meaning, _lines(table, "precision", domains), named))
        sections.append(
            FactSection(f"facts-{len(sections) + 1}", contents.title(group), group.track, apart(group), matrices)
        )
    return sections, answers(tables, contents.runs)


def _lines(
    table: FactTable, measure: str, domains: Sequence[str] = ("overall",)
) -> list[tuple[str, bool, list[Square]]]:
    """Model, whether it is a reference, and its cells."""
    metrics = [fact_metric(measure, kind) for kind in KINDS]

    def squares(row: Row) -> list[Square]:
        return [_square(table, row, metric, domain) for metric in metrics for domain in domains]

    rows = (*table.group.rows, *table.group.references)
    return [(row.model, row.role == "reference", squares(row)) for row in rows]


def _square(table: FactTable, row: Row, metric: str, domain: str) -> Square:
    spread: Spread | None = row.facts[domain].get(metric)
    if spread is None or spread.mean is None:
        return Square(DASH, 0, (spread.reason if spread else None) or "not measured", False)
    leading = domain == "overall" and row.keys[0] in table.leading[metric]
    within = bounds(spread.low, spread.high, percent) if domain == "overall" else ""
    return Square(percent(spread.mean), round(10 * (1 - spread.mean)), within, leading)
