"""Facts of the embedded scenes, as pages and terminals show them: a matrix of models by kinds, and four answers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from reports.tables.boards import apart
from reports.tables.columns import Facets, Titled, score_cell
from reports.tables.contents import Contents
from reports.tables.facts import card, objective
from reports.tables.numbers import domain_order, signed
from reports.tables.table import Cell, Column, Table, table_of
from results.runs.fact_rows import FactTable, fact_table
from results.runs.facts import FACT_METRICS, KINDS, WORDS, fact_metric
from results.runs.leaderboard import Group, Row
from results.runs.run import Run
from results.runs.standings import FLOORS
from results.statistics.architecture import architecture_difference, architecture_mean
from results.statistics.significance import Array
from results.store.store import Store

WITH_POSITIONS: Final = ("dlct", "gcn_lstm", "image_transformer", "object_relation_transformer", "puret", "rstnet")
"""Models that read where boxes lie, most of them as a graph of how they lie to each other."""
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
_UNKNOWN: Final = "not known"


def kinds_of(group: Group) -> list[str]:
    """The kinds of facts that rows of the group have."""
    measured = {name for row in (*group.rows, *group.references) for name in row.facts.get("overall", {})}
    return [kind for kind in KINDS if fact_metric("F", kind) in measured]


def judged_by(group: Group, runs: Mapping[str, Run]) -> str:
    """What facts of photographs are judged by, "" of drawn scenes."""
    of_runs = (runs[row.keys[0]].facts.get(group.split, {}).get("overall", {}) for row in group.rows if row.facts)
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
    """The terminal's short form: F of every kind; None where rows have no facts."""
    if not any(row.facts for row in group.rows):
        return None
    table = table_of(group, fact_columns("F", kinds_of(group)), facets, lambda row: bool(row.facts), badged=False)
    what, shares = "facts", "of stated facts that are true, and of the pictures' facts that are told"
    if any(WORDS in row.facts.get("overall", {}) for row in group.rows):
        what, shares = (
            "words",
            "of a caption's words that a reference has, and of the references' words that captions use",
        )
    return Titled(f"F of {what}", f"F: the harmonic mean of the shares {shares}.", table)


def answers(tables: Sequence[FactTable], runs: Mapping[str, Run]) -> list[tuple[str, str]]:
    """Four questions on what architectures get wrong, each with its answer from the test split, in points of F.

    Intervals are over models and images: the models are taken as drawn from all of their kind. An answer whose interval
    holds zero, or that too few models are there for, is not known. Floors and ablations have no part in it.
    """
    table = next((table for table in tables if table.group.split == "test" and _models(table)), None)
    if table is None:
        return []
    sees = {name: card(runs[row.keys[0]]).visual for name, row in _models(table).items()}
    placed = [name for name in sees if name in WITH_POSITIONS]
    blind_to_places = [name for name in sees if name not in WITH_POSITIONS]
    pooled = [name for name, visual in sees.items() if visual == "pooled"]
    attending = [name for name, visual in sees.items() if visual not in ("pooled", "none", "")]
    relating = _compared(table, "relation", (placed, "that read where boxes lie"), (blind_to_places, "that do not"))
    counting = _compared(table, "count", (attending, "that attend"), (pooled, "of pooled features"))
    return [
        ("Do models with boxes or graphs relate better?", relating),
        ("Do attention models count better than pooled ones?", counting),
        ("Does reward training trade facts for phrases?", _rewarded(tables, runs)),
        ("Which kind has the largest gap to people?", _gap_to_people(table)),
    ]


def _models(table: FactTable) -> dict[str, Row]:
    return {row.model: row for row in table.group.rows if row.model not in FLOORS and "/" not in row.model}


def _numbers(table: FactTable, names: Iterable[str], kind: str) -> Array:
    """Of each model the images' influences on F of a kind, mean over its seeds: (models, images)."""
    rows, place = _models(table), FACT_METRICS.index(fact_metric("F", kind))
    return np.array([table.influences[rows[name].keys[0]][..., place].mean(axis=0) for name in names])


def _compared(table: FactTable, kind: str, first: tuple[list[str], str], second: tuple[list[str], str]) -> str:
    for names, which in (first, second):
        if len(names) < 2:
            return f"{_UNKNOWN}: it takes two models or more {which}, and there are {len(names)}"
    # Models take the place of seeds: they are drawn from all of their kind.
    found = architecture_difference(_numbers(table, first[0], kind), _numbers(table, second[0], kind))
    assert found.low is not None
    assert found.high is not None
    sides = " and ".join(f"{len(names)} {which} ({', '.join(names)})" for names, which in (first, second))
    verdict = "yes" if found.low > 0 else "no, worse" if found.high < 0 else _UNKNOWN
    return f"{verdict}: {_points(found.difference, found.low, found.high)} between {sides}"


def _rewarded(tables: Sequence[FactTable], runs: Mapping[str, Run]) -> str:
    """Of models trained with and without rewards, alike but for the schedule: the change of F, over all kinds."""

    def conditions(table: FactTable) -> dict[str, str]:
        changing = ("schedule", "reward", "trainlen")
        return {name: value for name, value in table.group.signature.items() if name not in changing}

    def rewarded(table: FactTable) -> bool:
        return any("SCST" in objective(runs[row.keys[0]]) for row in _models(table).values())

    for after in (table for table in tables if rewarded(table)):
        for before in (table for table in tables if not rewarded(table) and table.group.split == after.group.split):
            both = [name for name in _models(before) if name in _models(after)]
            if conditions(before) != conditions(after) or len(both) < 2:
                continue
            sides = [np.array([_numbers(table, both, kind) for kind in KINDS]) for table in (after, before)]
            changes = sides[0] - sides[1]  # (kinds, models, images)
            rows = ([_models(table)[name] for name in both] for table in (after, before))
            cider = [np.mean([row.mean("CIDEr-D") or 0.0 for row in of]) for of in rows]
            by_kind = ", ".join(f"{kind} {_bounded(change)}" for kind, change in zip(KINDS, changes, strict=True))
            bounds = architecture_mean(changes.mean(axis=0)) or (-1.0, 1.0)
            verdict = "yes" if bounds[1] < 0 else "no" if bounds[0] > 0 else _UNKNOWN
            return (
                f"{verdict}: F over all kinds {_bounded(changes.mean(axis=0))}, while CIDEr-D changes by "
                f"{signed(float(cider[0] - cider[1]))} ({', '.join(both)}); by kind {by_kind}"
            )
    return f"{_UNKNOWN}: no two models were trained with and without rewards, alike but for the schedule"


def _gap_to_people(table: FactTable) -> str:
    """The kind at which people are furthest above the models, and whether surely."""
    human = next((row for row in table.group.references if row.model == "human"), None)
    names = list(_models(table))
    if human is None or len(names) < 2:
        return f"{_UNKNOWN}: it takes human and two models"
    people = table.influences[human.keys[0]].mean(axis=0)
    gaps = {}
    for kind in KINDS:
        gaps[kind] = people[:, FACT_METRICS.index(fact_metric("F", kind))] - _numbers(table, names, kind)
    ordered = sorted(KINDS, key=lambda kind: -gaps[kind].mean())
    # The first against each other kind, by Bonferroni.
    beyond = [architecture_mean(gaps[ordered[0]] - gaps[kind], 1 - 0.05 / (len(KINDS) - 1)) for kind in ordered[1:]]
    sure = [kind for kind, bounds in zip(ordered[1:], beyond, strict=True) if bounds is not None and bounds[0] > 0]
    verdict = ordered[0] if len(sure) == len(beyond) else f"{_UNKNOWN}, perhaps {ordered[0]}"
    said = ", ".join(f"{kind} {_bounded(gaps[kind])}" for kind in ordered)
    return f"{verdict}: people's F less the mean of {len(names)} models, {said}"


def _bounded(values: Array) -> str:
    bounds = architecture_mean(values)
    return signed(values.mean()) if bounds is None else _points(values.mean(), *bounds)


def _points(value: float, low: float, high: float) -> str:
    return f"{signed(value)} (95 % {signed(low)} to {signed(high)})"


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
    apart: str
    matrices: Sequence[Matrix]
    leading: Mapping[str, frozenset[str]]
    judged_by: str


def fact_sections(
    store: Store, contents: Contents, galleries: Mapping[tuple[str, str], str]
) -> tuple[list[FactSection], list[tuple[str, str]]]:
    """A section a group that has facts, and the answers to four questions."""
    tables = [found for group in contents.groups if (found := fact_table(store, group, contents.runs))]
    sections: list[FactSection] = []
    for number, found in enumerate(tables, start=1):
        group, images = found.group, found.images
        kinds, by = kinds_of(group), judged_by(group, contents.runs)
        meanings = WORD_MEANING if by else MEANING
        columns = {measure: fact_columns(measure, kinds) for measure in meanings}
        matrices = [
            Matrix(measure.capitalize(), meaning, table_of(group, columns[measure], {}, badged=False), kinds)
            for measure, meaning in meanings.items()
        ]
        matrices[0] = replace(matrices[0], address=galleries.get((group.fingerprint, group.split), ""))
        if domains := domain_order(name for name in images if name != "overall"):
            table = table_of(group, fact_columns("precision", kinds, domains), {}, badged=False)
            named = [f"{name.removesuffix('-domain')}, {images[name]}" for name in domains]
            meaning = f"{meanings['precision']}, by the domain of the picture"
            matrices.insert(1, Matrix("By domain", meaning, table, kinds, domains=named))
        place = f"facts-{number}", contents.title(group), group.track, apart(group)
        sections.append(FactSection(*place, matrices, found.leading, by))
    drawn = [found for found, section in zip(tables, sections, strict=True) if not section.judged_by]
    return sections, answers(drawn, contents.runs)
