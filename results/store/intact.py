"""Reading without damaged rows: a query that fails is repeated without the runs whose rows cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, select, true, tuple_

from results.errors import StoreError
from results.store.damage import REMEDY, LeftOut
from results.store.scan import scan
from results.store.schema import DatasetRow, Image, RunRow, SkippedImage
from results.store.store import LEFT_OUT, Store

T = TypeVar("T")


def read_intact(store: Store, read: Callable[[], T]) -> T:
    """What `read` gives; where it fails because rows are damaged, what it gives without their runs.

    An undamaged database is read once, without any check. After an error every row is checked, `Store.left_out` says
    what is damaged, and `read` is called again; it should have no effects before it ends.

    Raises:
        Exception: whatever `read` raises where no row, or no further row, is damaged.
    """
    try:
        return read()
    except Exception as error:
        explained = hasattr(error, "hint") and error.__cause__ is None  # a wrong name, say: no row is to blame
        if explained or isinstance(error, OSError | MemoryError) or not leave_out_damaged(store):
            raise
    return read()


def leave_out_damaged(store: Store, tables: frozenset[str] | None = None) -> bool:
    """Check these tables (None: all) and leave out what is damaged from now on; whether that is anything new."""
    known = store.left_out
    with store.reading() as connection:
        store.left_out = scan(connection, tables).left_out
    return bool(set(store.left_out.damage) - set(known.damage))


def damaged_keys(store: Store) -> set[str]:
    """The keys of the runs that are left out."""
    with store.reading() as connection:
        return set(connection.scalars(select(RunRow.key).where(RunRow.id.in_(store.left_out.runs))))


def refuse_damaged(connection: Connection, key: str) -> None:
    """StoreError where the run of this key is left out."""
    damaged = left_out(connection)
    run_id = connection.scalar(select(RunRow.id).where(RunRow.key == key)) if damaged else None
    if run_id in damaged.runs:
        raise StoreError(f"run {key} is damaged in the results database: {damaged.why_run(run_id)}", REMEDY)


def left_out(connection: Connection) -> LeftOut:
    """What queries on this connection leave out."""
    found = connection.get_execution_options().get(LEFT_OUT)
    return found if isinstance(found, LeftOut) else LeftOut()


def intact_runs(connection: Connection) -> ColumnElement[bool]:
    """The condition on `RunRow` that the run is not left out."""
    runs = left_out(connection).runs
    return RunRow.id.not_in(runs) if runs else true()


def intact_datasets(connection: Connection) -> ColumnElement[bool]:
    """The condition on `DatasetRow` that the data set is not left out."""
    datasets = left_out(connection).datasets
    return DatasetRow.id.not_in(datasets) if datasets else true()


def intact_images(connection: Connection) -> ColumnElement[bool]:
    """The condition on `Image` that neither the image nor its data set is left out."""
    found = left_out(connection)
    images = tuple_(Image.dataset_id, Image.image_id).not_in(sorted(found.images)) if found.images else true()
    return images & (Image.dataset_id.not_in(found.datasets) if found.datasets else true())


def intact_skipped(connection: Connection) -> ColumnElement[bool]:
    """The condition on `SkippedImage` that the data set's list of skipped images is not left out."""
    skipped = left_out(connection).skipped
    return SkippedImage.dataset_id.not_in(skipped) if skipped else true()
