"""What a database holds: counts of rows and runs, its release and size, whatever release wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, func, inspect, select

from results.store.engine import check_file, open_engine, resolve_url, show, sqlite_file, translated
from results.store.revisions import how_to_upgrade, is_older, no_results, release, stored_revision
from results.store.schema import Base, RunRow
from results.store.structure import missing_parts


@dataclass(frozen=True, slots=True)
class Information:
    """`rows` counts by table, `runs` by status; `bytes` is None where the database is no file.

    `upgrade` is what to type where the tables are of an older release, else None. `missing` are tables and columns of
    this release that are not there, and may not be; empty for older releases.
    """

    name: str
    backend: str
    release: str
    upgrade: str | None
    rows: dict[str, int]
    runs: dict[str, int]
    bytes: int | None
    missing: tuple[str, ...] = ()


def describe(url_or_path: str | Path | URL) -> Information:
    """Describe a database of this release or an older one.

    Raises:
        StoreError: no results there, or those of a newer release.
    """
    url = resolve_url(url_or_path)
    check_file(url, create=False)
    engine = open_engine(url, read_only=True)
    try:
        with translated(url), engine.connect() as connection:
            revision = stored_revision(connection)
            if revision is None:
                raise no_results(url)
            older = is_older(revision, url)
            missing = () if older else tuple(missing_parts(connection))
            present = set(inspect(connection).get_table_names())
            tables = [table for table in Base.metadata.sorted_tables if table.name in present]
            rows = {table.name: connection.scalar(select(func.count()).select_from(table)) or 0 for table in tables}
            by_status = select(RunRow.status, func.count()).group_by(RunRow.status).order_by(RunRow.status)
            known = RunRow.__tablename__ in rows and "column runs.status" not in missing
            runs = dict(connection.execute(by_status).all()) if known else {}
    finally:
        engine.dispose()
    file = sqlite_file(url)
    return Information(
        name=show(url),
        backend=url.get_backend_name(),
        release=release(revision),
        upgrade=how_to_upgrade(url) if older else None,
        rows=rows,
        runs=runs,
        bytes=None if file is None else file.stat().st_size,
        missing=missing,
    )
