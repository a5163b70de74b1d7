"""Moving damaged rows out of a database, into a file of their own that keeps every byte of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, false, or_, tuple_

from results.store.damage import LeftOut
from results.store.raw_rows import insert_raw, raw_rows, undecoded_text
from results.store.scan import Scan, scan
from results.store.schema import Base, DatasetRow, Image, RunRow, SkippedImage
from results.store.store import Store


def set_aside(store: Store, folder: Path) -> tuple[Scan, Path | None]:
    """Move everything that is damaged into `folder/bench.damaged-DATE.sqlite`; gives the damage, and the file.

    A run is moved with all its rows, a data set with its images and runs; the rows of data sets whose runs are moved
    are copied, so that the file is a store, which `bench db merge` brings back once it is repaired. One transaction:
    the file is complete before anything is deleted, and after an error nothing is. None where nothing is damaged.

    Raises:
        StoreError: the database cannot be written.
        OSError: the file cannot be written.
    """
    with store.writing() as connection:
        found = scan(connection)
        if not found.left_out:
            return found, None
        chosen = _chosen(found.left_out)
        file = folder / f"bench.damaged-{datetime.now(UTC):%Y%m%d-%H%M%S}.sqlite"
        try:
            _copy(connection, chosen, found.left_out, file)
            for table, condition in reversed(chosen.items()):
                connection.execute(delete(table).where(condition))
        except BaseException:
            file.unlink(missing_ok=True)
            raise
    store.left_out = LeftOut()
    return found, file


def _chosen(left_out: LeftOut) -> dict[Table, ColumnElement[bool]]:
    """The condition on the rows to move, by table, parents first."""
    orphans = [owner.id for owner in left_out.owners if owner.kind == "rows without a run"]
    chosen: dict[Table, ColumnElement[bool]] = {}
    for table in Base.metadata.sorted_tables:
        if table is DatasetRow.__table__:
            chosen[table] = table.c.id.in_(left_out.datasets)
        elif table is RunRow.__table__:
            chosen[table] = table.c.id.in_(left_out.runs)
        elif table is SkippedImage.__table__:
            chosen[table] = table.c.dataset_id.in_(left_out.datasets | left_out.skipped)
        elif table is Image.__table__:
            single = tuple_(table.c.dataset_id, table.c.image_id).in_(sorted(left_out.images, key=repr))
            chosen[table] = or_(table.c.dataset_id.in_(left_out.datasets), single if left_out.images else false())
        else:
            without_run = {run for name, run in orphans if name == table.name}
            chosen[table] = table.c.run_id.in_(left_out.runs | without_run)
    return chosen


def _copy(connection: Connection, chosen: dict[Table, ColumnElement[bool]], left_out: LeftOut, file: Path) -> None:
    """Write the chosen rows and the data sets of chosen runs; the file appears whole or not at all."""
    part = file.with_name(f".{file.name}.part")
    try:
        Store(part).close()
        with closing(sqlite3.connect(part)) as target, undecoded_text(connection):
            target.execute("PRAGMA journal_mode = DELETE")
            target.execute("PRAGMA ignore_check_constraints = ON")
            runs = RunRow.__table__
            assert isinstance(runs, Table)
            of_runs: Collection[Any] = {
                row.dataset_id for row in raw_rows(connection, runs, runs.c.id.in_(left_out.runs))
            }
            for table, condition in chosen.items():
                wanted = or_(condition, table.c.id.in_(of_runs)) if table is DatasetRow.__table__ else condition
                insert_raw(target, table, raw_rows(connection, table, wanted).all())
            target.commit()
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
