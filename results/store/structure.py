"""Tables and columns that a database of this release should have and has not."""

from __future__ import annotations

from sqlalchemy import URL, Connection, inspect

from results.errors import StoreError
from results.store.engine import show
from results.store.schema import Base


def missing_parts(connection: Connection) -> list[str]:
    """What is missing of this release's tables, as "table costs" and "column runs.code"."""
    inspector = inspect(connection)
    present = set(inspector.get_table_names())
    missing = []
    for table in Base.metadata.sorted_tables:
        if table.name not in present:
            missing.append(f"table {table.name}")
            continue
        columns = {column["name"] for column in inspector.get_columns(table.name)}
        missing += [f"column {table.name}.{column.name}" for column in table.columns if column.name not in columns]
    return missing


def ensure_complete(connection: Connection, url: URL) -> None:
    """StoreError that names what is missing of this release's tables, where anything is."""
    missing = missing_parts(connection)
    if missing:
        raise StoreError(f"the results database {show(url)} is damaged: it has no {', no '.join(missing)}", RESTORE)


RESTORE = "restore it from a copy, or move it away and start a new one"
