"""What models get wrong, as pages and terminals show it: a matrix of models by kinds of facts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reports.columns import Cell, Column, score_cell
from reports.numbers import domain_order
from reports.tables.contents import Contents
from reports.tables.leaderboards import Facets, Titled
from reports.tables.table import Table, table_of
from results.runs.fact_rows import fact_table
from results.runs.facts import KINDS, WORDS, fact_metric
from results.runs.leaderboard import Group, Row
from results.runs.run import Run
from results.store.store import Store

MEANING: Final = {
    "precision": "of what captions state, the share that is true",
    "recall": "of what the pictures show, the share that captions tell; people leave much out, too",
    "F": "the harmonic mean of both",
}
WORD_MEANING: Final = {
    "precision": "of the words of a kind that captions use, the share that a reference has, too",
    "recall": "of the words of a kind that half of the references use, the share that captions use, too",
    "F": MEANING["F"],
}


def kinds_of(group: Group) -> list[str]:
    """The kinds of facts that rows of the group have."""
    measured = {name for row in (*group.rows, *group.references) for name in row.facts.get("overall", {})}
    return [kind for kind in KINDS if fact_metric("F", kind) in measured]


def judged_by(group: Group, runs: Mapping[str, Run]) -> str:
    """What facts of photographs are judged by, "" of drawn scenes."""
    of_runs = (runs[row.keys[0]].scores.metrics(group.split, kind="fact") for row in group.rows if row.facts)
    return ", or ".join(dict.fromkeys(facts[WORDS].unit for facts in of_runs if WORDS in facts))


def fact_columns(measure: str, kinds: Sequence[str], domains: Sequence[str] = ("overall",)) -> list[Column]:
    """A column for every kind of fact, or for each of its domains; what its numbers mean stands beside the table."""

    def column(kind: str, domain: str) -> Column:
        def read(row: Row, _: Group) -> Cell:
            cell = score_cell(row.facts.get(domain, {}).get(fact_metric(measure, kind)))
            return replace(cell, note=cell.note.removesuffix(f": {kind}"))  # which the column names

        return Column(kind, read, "", kind, key=fact_metric(measure, kind))

    return [column(kind, domain) for kind in kinds for domain in domains]


def what_is_wrong(group: Group, facets: Facets) -> Titled | None:
    """The terminal's short form: F of every kind; None if rows have no facts."""
    if not any(row.facts for row in group.rows):
        return None
    table = table_of(group, fact_columns("F", kinds_of(group)), facets, lambda row: bool(row.facts), badged=False)
    unit = "facts"
    shares = "of stated facts that are true, and of the pictures' facts that are told"
    if any(WORDS in row.facts.get("overall", {}) for row in group.rows):
        unit = "words"
        shares = "of a caption's words that a reference has, and of the references' words that captions use"
    return Titled(f"F of {unit}", f"F: the harmonic mean of the shares {shares}.", table)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Models by kinds, or by kinds and `domains`; cells lead to the gallery at `address` where that is not empty."""

    title: str
    meaning: str
    table: Table
    kinds: Sequence[str]
    address: str = ""
    domains: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class FactSection:
    """The matrices of one group; of photographs, `judged_by` says by what."""

    id: str
    title: str
    track: str
    details: str
    matrices: Sequence[Matrix]
    leading: Mapping[str, frozenset[str]]
    judged_by: str


def fact_sections(store: Store, contents: Contents, galleries: Mapping[tuple[str, str], str]) -> list[FactSection]:
    """A section a group that has facts."""
    tables = [
        table_of_facts for group in contents.groups if (table_of_facts := fact_table(store, group, contents.runs))
    ]
    sections: list[FactSection] = []
    for index, table_of_facts in enumerate(tables, start=1):
        group = table_of_facts.group
        images = table_of_facts.images
        kinds = kinds_of(group)
        by = judged_by(group, contents.runs)
        meanings = WORD_MEANING if by else MEANING
        columns = {measure: fact_columns(measure, kinds) for measure in meanings}
        matrices = [
            Matrix(measure.capitalize(), meaning, table_of(group, columns[measure], {}, badged=False), kinds)
            for measure, meaning in meanings.items()
        ]
        matrices[0] = replace(matrices[0], address=galleries.get((group.fingerprint, group.split), ""))
        if domains := domain_order(name for name in images if name != "overall"):
            table = table_of(group, fact_columns("precision", kinds, domains), {}, badged=False)
            domain_names = [f"{name.removesuffix('-domain')}, {images[name]}" for name in domains]
            meaning = f"{meanings['precision']}, by the domain of the picture"
            matrices.insert(1, Matrix("By domain", meaning, table, kinds, domains=domain_names))
        heading = f"facts-{index}", contents.title(group), group.track, contents.details(group)
        sections.append(FactSection(*heading, matrices, table_of_facts.leading, by))
    return sections
