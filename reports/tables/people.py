"""Models compared with people: scored against the same references, one less an image than on the leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.tables.table_values import Notes, score_value
from reports.tables.tables import SHORT, Heading, Line, Table, badges, differences
from results.runs.leaderboard import Group, Row

TITLE = "Against the same references as people"
_METRICS = ("CIDEr-D", "BLEU-4", "METEOR", "ROUGE-L")
_MAY_DIFFER = {"nrefs", "heldout", "track", "v"}  # of the results revision, which may not differ, any release is


@dataclass(frozen=True, slots=True)
class People:
    """The table, `human` first and then the models, best first, and what it is in two sentences."""

    note: str
    table: Table


def beside_people(group: Group) -> People | None:
    """The group's models beside `human`; None where either lacks scores against one reference less."""
    people = [row for row in group.references if row.model == "human" and row.held_out and _scored_alike(row)]
    models = sorted((row for row in group.rows if row.held_out), key=_cider, reverse=True)
    if not people or not models:
        return None
    number = _of_split(people[0].differs.get("nrefs") or group.signature.get("nrefs", ""), group.split)
    note = (
        f"Against {number} references per image: the mean over leaving out each of its references in turn. "
        "The captions of human are the references left out."
    )
    return People(note, _table([*people, *models], group))


def _scored_alike(row: Row) -> bool:
    return {name for name, value in row.differs.items() if value not in (None, "none")} <= _MAY_DIFFER


def _of_split(nrefs: str, split: str) -> str:
    """The number of references in a signature's field, which names splits that have different ones."""
    by_split = dict(part.split("=", 1) for part in nrefs.split(",")) if "=" in nrefs else {}
    return by_split.get(split, nrefs)


def _cider(row: Row) -> float:
    spread = row.held_out.get("CIDEr-D")
    return float("-inf") if spread is None or spread.mean is None else spread.mean


def _table(rows: Sequence[Row], group: Group) -> Table:
    notes = Notes()
    headings = (
        Heading(
            name,
            SHORT.get(name, name),
            f"{name} against one reference fewer, times 100; more is better",
            barred=name == _METRICS[0],
        )
        for name in _METRICS
    )
    lines = (
        Line(
            row.model,
            "" if row.role == "reference" else differences(row.differs),
            tuple(zip(row.seeds, row.keys, strict=True)),
            tuple(score_value(row.held_out.get(name), notes) for name in _METRICS),
            badges=badges(row, group, notes),
        )
        for row in rows
    )
    return Table(tuple(headings), tuple(lines), (), notes)
