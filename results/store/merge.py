"""Merging another database: its runs that are missing here, and those that progressed further there."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from results.errors import StoreError
from results.store.engine import resolve_url, show, sqlite_file
from results.store.rows import RUN_PARTS, insert_all
from results.store.schema import (
    AttentionMap,
    Base,
    Caption,
    DatasetRow,
    Epoch,
    HeldOutScore,
    Image,
    ImageInfluences,
    ImageScores,
    RunRow,
    Score,
    SkippedImage,
)
from results.store.store import Store, add_images

_PROGRESS = {"planned": 0, "running": 1, "skipped": 2, "failed": 2, "finished": 3}
_ABSENT = "nothing"
_SAME = 1e-6  # relative: two machines add in different orders


@dataclass(slots=True)
class Merged:
    """What a merge of the database `source` did, by run key.

    `completed` had progressed further there, or had metrics that were not measured here; `kept` as far here, or
    further. `conflicts` says what differs of runs that both have finished; those of this store stay.
    """

    source: str
    datasets: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    conflicts: dict[str, str] = field(default_factory=dict)


def merge(store: Store, other: str | Path) -> Merged:
    """Add the data sets and runs of `other` (a SQLite file or a URL), which is only read. Again changes nothing.

    Data sets are the same by fingerprint, runs by key. Each run is one transaction, so others may write meanwhile, and
    a merge that was killed goes on when it is repeated. Weights and caches stay where they are.
    """
    url = resolve_url(other)
    file = sqlite_file(url)
    own_file = sqlite_file(store.url)
    if url == store.url or (file and own_file and file.exists() and file.samefile(own_file)):
        raise StoreError(f"{show(url)} cannot be merged into itself", "name another database")
    merged = Merged(show(url))
    fingerprints: dict[int, str] = {}
    with Store(url, read_only=True) as source, source.reading() as source_connection:
        for dataset in source_connection.execute(select(DatasetRow).order_by(DatasetRow.id)).mappings().all():
            fingerprints[dataset["id"]] = dataset["fingerprint"]
            with store.writing() as connection:
                if _merge_dataset(connection, source_connection, dataset):
                    merged.datasets.append(dataset["name"])
        for run in source_connection.execute(select(RunRow).order_by(RunRow.id)).mappings().all():
            with store.writing() as connection:
                _merge_run(connection, source_connection, run, fingerprints[run["dataset_id"]], merged)
    return merged


def _merge_dataset(here: Connection, there: Connection, dataset: RowMapping) -> bool:
    """Add a data set, or the images and references that it lacks here; whether anything was added.

    A published copy has the data set's name in place of the folder of its pictures.
    """
    is_this = DatasetRow.fingerprint == dataset["fingerprint"]
    find = select(DatasetRow.id).where(is_this)
    is_new = here.scalar(find) is None
    if is_new:
        here.execute(insert(DatasetRow).values(_without(dataset, "id")))
    else:
        is_published = DatasetRow.root == DatasetRow.name
        here.execute(update(DatasetRow).where(is_this, is_published).values(root=dataset["root"]))
    dataset_id = here.scalars(find).one()
    if is_new:
        skipped = there.execute(select(SkippedImage).where(SkippedImage.dataset_id == dataset["id"])).mappings()
        insert_all(here, SkippedImage, [_without(row, "dataset_id") for row in skipped], dataset_id=dataset_id)
    images = there.execute(select(Image).where(Image.dataset_id == dataset["id"])).mappings()
    return bool(add_images(here, dataset_id, [_without(image, "dataset_id") for image in images])) or is_new


def _merge_run(here: Connection, there: Connection, run: RowMapping, fingerprint: str, merged: Merged) -> None:
    key = run["key"]
    columns = _without(run, "id")
    query = select(RunRow.id, RunRow.status, RunRow.record).where(RunRow.key == key)
    own_run = here.execute(query).mappings().one_or_none()
    if own_run is not None and _PROGRESS[own_run["status"]] >= _PROGRESS[run["status"]]:
        are_finished = own_run["status"] == run["status"] == "finished"
        ours, theirs = (_results(here, own_run["id"]), _results(there, run["id"])) if are_finished else ({}, {})
        if difference := _difference(ours, theirs):
            merged.conflicts[key] = f"{run['model']}, seed {run['seed']}: {difference}"
        asked_at = [(stored["record"].get("card") or {}).get("asked", "") for stored in (own_run, run)]
        if are_finished and asked_at[0] < asked_at[1]:  # captions of a file, which may have held others between
            here.execute(update(RunRow).where(RunRow.id == own_run["id"]).values(record=run["record"]))
        elif are_finished and asked_at[0] > asked_at[1]:
            columns["record"] = own_run["record"]
        is_filled = False
        if are_finished and not difference:
            published = not _has_captions(ours) and _has_captions(theirs)
            if published:  # its configuration has no folders
                columns.pop("dataset_id")
                here.execute(update(RunRow).where(RunRow.id == own_run["id"]).values(columns))
            is_filled = _fill(here, there, own_run["id"], run["id"])
        (merged.completed if is_filled else merged.kept).append(key)
        return
    dataset_id = here.scalars(select(DatasetRow.id).where(DatasetRow.fingerprint == fingerprint)).one()
    columns["dataset_id"] = dataset_id
    if own_run is None:
        here.execute(insert(RunRow).values(columns))
        merged.added.append(key)
    else:
        here.execute(update(RunRow).where(RunRow.id == own_run["id"]).values(columns))
        merged.completed.append(key)
    run_id = here.scalars(select(RunRow.id).where(RunRow.key == key)).one()
    for table in (Epoch, *RUN_PARTS):
        here.execute(delete(table).where(table.run_id == run_id))
        as_stored = table.__table__.primary_key  # splits and metrics are shown in this order
        rows = there.execute(select(table).where(table.run_id == run["id"]).order_by(*as_stored)).mappings()
        insert_all(here, table, [_without(row, "id", "run_id") for row in rows], run_id=run_id)


_NAMED_BY: Final[dict[type[Base], tuple[str, ...]]] = {
    Caption: ("split", "image_id"),
    Score: ("split", "domain", "metric"),
    HeldOutScore: ("split", "metric"),
    ImageScores: ("split", "metric"),
    ImageInfluences: ("split", "metric"),
    AttentionMap: ("split", "image_id"),
}
"""What a run may have elsewhere and lack here, by the columns that name a row. Costs are a machine's."""


def _fill(here: Connection, there: Connection, own_id: int, run_id: int) -> bool:
    """Take over the results that a finished run lacks here, or has as not measured; whether there were any."""
    is_filled = False
    for table, names in _NAMED_BY.items():
        columns_of: Any = table
        ours = {
            tuple(row[name] for name in names): row
            for row in here.execute(select(table).where(columns_of.run_id == own_id)).mappings()
        }
        as_stored = table.__table__.primary_key
        for row in there.execute(select(table).where(columns_of.run_id == run_id).order_by(*as_stored)).mappings():
            own_row = ours.get(tuple(row[name] for name in names))
            columns = _without(row, "id", "run_id")
            if own_row is None:
                here.execute(insert(table).values({**columns, "run_id": own_id}))
            elif "value" in row and own_row["value"] is None and row["value"] is not None:
                is_row = [getattr(columns_of, name) == row[name] for name in names]
                here.execute(update(table).where(columns_of.run_id == own_id, *is_row).values(columns))
            else:
                continue
            is_filled = True
    return is_filled


def _has_captions(results: dict[tuple[Any, ...], Any]) -> bool:
    return any(len(name) == 2 for name in results)


def _results(connection: Connection, run_id: int) -> dict[tuple[Any, ...], Any]:
    scores = select(Score.split, Score.domain, Score.metric, Score.value).where(Score.run_id == run_id)
    captions = select(Caption.split, Caption.image_id, Caption.caption).where(Caption.run_id == run_id)
    return {tuple(row[:-1]): row[-1] for query in (scores, captions) for row in connection.execute(query)}


def _difference(own: dict[tuple[Any, ...], Any], other: dict[tuple[Any, ...], Any]) -> str | None:
    # A metric that came with a later release is no disagreement, nor is one that was not measured, nor are captions
    # that a published copy lacks.
    # Scores are named by split, domain and metric, captions by split and image.
    own_kinds, their_kinds = ({name[2:] or name[:1] for name in side} for side in (own, other))
    compared = [name for name in {**own, **other} if (name[2:] or name[:1]) in own_kinds & their_kinds]
    pairs = {name: (own.get(name, _ABSENT), other.get(name, _ABSENT)) for name in compared}
    names = [name for name, pair in pairs.items() if None not in pair and not _agree(*pair)]
    if not names:
        return None
    where, *_, metric_or_image = names[0]
    first = (
        f"{metric_or_image} on {where}"
        if isinstance(metric_or_image, str)
        else f"the caption of image {metric_or_image} of {where}"
    )
    own_value, their_value = pairs[names[0]]
    return f"captions or scores that differ: {len(names)}, first {first}: {own_value!r} here, {their_value!r} there"


def _agree(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_SAME)
    return one == other


def _without(row: RowMapping, *columns: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in columns}
