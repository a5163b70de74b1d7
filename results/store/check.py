"""Whether a database is sound: SQLite's own checks, and every row of every table read once."""

from collections.abc import Iterator
from contextlib import suppress

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from results.errors import StoreError
from results.store.schema import Base, DatasetRow, RunRow

_UNREADABLE = (ValueError, TypeError, DBAPIError)
"""What is raised for values that are no JSON, no time, no packed scores and no UTF-8."""

HINT = (
    "restore the database from a copy; or delete the runs that are named, and `bench run` makes them anew: "
    "PRAGMA foreign_keys = ON; DELETE FROM runs WHERE key = 'KEY';"
)


def problems(connection: Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        for (problem,) in connection.exec_driver_sql("PRAGMA integrity_check"):
            if problem != "ok":
                yield problem
        orphans = {(table, parent) for table, _, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check")}
        for table, parent in sorted(orphans):
            yield f"{table} has rows that refer to missing rows of {parent}"
    yield from _unreadable(connection)


def refuse_damaged_row(connection: Connection, error: Exception) -> None:
    """StoreError that names the row, where the error is of a query that met a row that cannot be read."""
    if isinstance(error, _UNREADABLE) and (not isinstance(error, DBAPIError) or "decode" in str(error)):
        for problem in _unreadable(connection):
            raise StoreError(
                f"{problem}, a damaged row of the results database", f"`bench db upgrade` lists all of them; {HINT}"
            ) from error


def _unreadable(connection: Connection) -> Iterator[str]:
    """Whose rows cannot be read, and why; those of a run or a data set in one table are read together."""
    for table in Base.metadata.sorted_tables:
        name = "run_id" if "run_id" in table.c else "dataset_id" if table.c[0].name == "dataset_id" else "id"
        for owner in connection.scalars(select(table.c[name]).distinct().order_by(table.c[name])).all():
            try:
                connection.execute(select(table).where(table.c[name] == owner)).all()
            except _UNREADABLE as error:
                of_run = name == "run_id" or table is RunRow.__table__
                whose = None
                column = RunRow.key if of_run else DatasetRow.name
                with suppress(DBAPIError):
                    whose = connection.scalar(select(column).where(column.class_.id == owner))
                kind = "run" if of_run else "data set"
                owner_name = f"{kind} {whose}" if whose else f"{kind} number {owner}"
                reason = str(error.orig if isinstance(error, DBAPIError) else error).splitlines()[0]
                yield f"{table.name} of the {owner_name} cannot be read: {reason}"
