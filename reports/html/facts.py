"""The page of what models get wrong: for each group matrices of models by kinds of facts, and four answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reports.tables.boards import apart
from reports.tables.contents import Contents
from reports.tables.numbers import domain_order
from reports.tables.scene_facts import MEANING, answers, fact_columns
from reports.tables.table import Table, table_of
from results.runs.fact_rows import fact_table
from results.runs.facts import MEASURES
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class Matrix:
    """Models by kinds, or by kinds and `domains`; cells lead to the gallery at `address` where that is not empty."""

    title: str
    meaning: str
    table: Table
    address: str = ""
    domains: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class FactSection:
    id: str
    title: str
    track: str
    apart: str
    matrices: Sequence[Matrix]
    leading: Mapping[str, frozenset[str]]


def fact_sections(
    store: Store, contents: Contents, galleries: Mapping[tuple[str, str], str]
) -> tuple[list[FactSection], list[tuple[str, str]]]:
    """A section a group that has facts, and the answers to four questions."""
    tables = [found for group in contents.groups if (found := fact_table(store, group, contents.runs))]
    sections: list[FactSection] = []
    for number, (group, leading, images) in enumerate(((t.group, t.leading, t.images) for t in tables), start=1):
        file = galleries.get((group.fingerprint, group.split), "")
        matrices = [
            Matrix(measure.capitalize(), MEANING[measure], table_of(group, fact_columns(measure), {}, badged=False))
            for measure in MEASURES
        ]
        matrices[0] = replace(matrices[0], address=file)
        if domains := domain_order(name for name in images if name != "overall"):
            table = table_of(group, fact_columns("precision", domains), {}, badged=False)
            named = [f"{name.removesuffix('-domain')}, {images[name]}" for name in domains]
            meaning = f"{MEANING['precision']}, by the domain of the picture"
            matrices.insert(1, Matrix("By domain", meaning, table, domains=named))
        title = contents.title(group)
        sections.append(FactSection(f"facts-{number}", title, group.track, apart(group), matrices, leading))
    return sections, answers(tables, contents.runs)
