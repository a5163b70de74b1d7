"""Reading every value of every row once, to find what is damaged."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Table

from results.store.damage import Damage, LeftOut, Owner
from results.store.raw_rows import raw_rows, undecoded_text
from results.store.schema import Base, DatasetRow, Image, RunRow, SkippedImage
from results.store.value_checks import check_of

_DATASETS, _RUNS, _IMAGES, _SKIPPED = (
    table.__table__.name  # type: ignore[attr-defined]
    for table in (DatasetRow, RunRow, Image, SkippedImage)
)
HEADS = frozenset({_DATASETS, _RUNS})
"""The tables of data sets and runs themselves, which are read in no time."""


@dataclass(slots=True)
class Scan:
    """What was found: `left_out` with all the damage, and how many `rows` were read, by table."""

    left_out: LeftOut
    rows: dict[str, int]


@dataclass(slots=True)
class _Known:
    """Data sets and runs by id: their names for messages, and the data set of each run."""

    datasets: dict[Any, str] = field(default_factory=dict)
    runs: dict[Any, str] = field(default_factory=dict)
    dataset_of: dict[Any, Any] = field(default_factory=dict)


def scan(connection: Connection, tables: Collection[str] | None = None) -> Scan:
    """Check every value of these tables (None: of all).

    Values must be of their column's type, JSON of its shape, blobs as they are packed, and each row's run or data set
    must be there.
    """
    found: dict[Hashable, Damage] = {}
    known, counts = _Known(), {}
    with undecoded_text(connection):
        for table in Base.metadata.sorted_tables:
            needed = tables is None or table.name in tables or table.name in HEADS
            if needed:
                counts[table.name] = _scan_table(connection, table, known, found)
    return Scan(_left_out(tuple(found.values()), known), counts)


def _scan_table(connection: Connection, table: Table, known: _Known, found: dict[Hashable, Damage]) -> int:
    checks = [(place, column, check_of(column)) for place, column in enumerate(table.columns)]
    keys = [place for place, column, _ in checks if column.primary_key and column.name not in {"id", "run_id"}]
    parent = next((place for place, column, _ in checks if column.name in {"run_id", "dataset_id"}), None)
    count = 0
    for row in raw_rows(connection, table):
        count += 1
        if table.name in HEADS:
            _remember(table, row, known)
        wrong = [(column.name, why) for place, column, check in checks if (why := check(row[place])) is not None]
        if parent is not None and row[parent] not in (known.datasets if _of_dataset(table) else known.runs):
            wrong.append((checks[parent][1].name, "names nothing that is there"))
        if table.name == _RUNS and row.status == "finished" and row.finished_at is None:
            wrong.append(("finished_at", "is missing"))
        for column, why in wrong:
            at = ", ".join(_shown(row[place]) for place in keys)
            damage = Damage(_owner(table, row, known), table.name, column, why, at)
            same = (damage.owner, table.name, column, why)
            found[same] = replace(found[same], rows=found[same].rows + 1) if same in found else damage
    return count


def _of_dataset(table: Table) -> bool:
    return table.name in {_RUNS, _IMAGES, _SKIPPED}


def _remember(table: Table, row: Any, known: _Known) -> None:
    if table.name == _DATASETS:
        known.datasets[row.id] = _shown(row.name)
    else:
        known.runs[row.id] = f"{_shown(row.key)} ({_shown(row.model)})"
        known.dataset_of[row.id] = row.dataset_id


def _owner(table: Table, row: Any, known: _Known) -> Owner:
    if table.name == _DATASETS:
        return Owner("data set", (row.id,), known.datasets[row.id])
    if table.name == _RUNS:
        return Owner("run", (row.id,), known.runs[row.id])
    if _of_dataset(table):
        name = known.datasets.get(row.dataset_id, f"number {row.dataset_id}")
        if table.name == _IMAGES:
            return Owner("image", (row.dataset_id, row.image_id), f"{_shown(row.image_id)} of {name}")
        return Owner("skipped images", (row.dataset_id,), f"of {name}")
    if row.run_id in known.runs:
        return Owner("run", (row.run_id,), known.runs[row.run_id])
    return Owner("rows without a run", (table.name, row.run_id), f"in {table.name}, of run number {row.run_id}")


def _shown(value: object) -> str:
    """A value for messages, which may itself be damaged."""
    return str(value).encode("utf-8", "backslashreplace").decode()[:80]


def _left_out(damage: Sequence[Damage], known: _Known) -> LeftOut:
    def ids(kind: str) -> list[tuple[Any, ...]]:
        return [each.owner.id for each in damage if each.owner.kind == kind]

    datasets = frozenset(each[0] for each in ids("data set"))
    with_them = {run for run, dataset in known.dataset_of.items() if dataset in datasets}
    return LeftOut(
        damage=tuple(damage),
        runs=frozenset(each[0] for each in ids("run")) | with_them,
        datasets=datasets,
        images=frozenset((each[0], each[1]) for each in ids("image")),
        skipped=frozenset(each[0] for each in ids("skipped images")),
    )
