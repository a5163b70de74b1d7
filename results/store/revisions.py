"""Which release the tables of a database are of: making, upgrading and describing them."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import JSON, URL, Connection, Engine, column, func, insert, inspect, select, table

from results.errors import StoreError
from results.store import migrations
from results.store.engine import check_file, open_engine, resolve_url, show, sqlite_file, translated, writing
from results.store.schema import RELEASE, REVISION, Base, RunRow

_FIRST: Final = (1, 0, 0)
"""The release whose tables are the oldest that can be upgraded; earlier versions were tried out, never released."""
_REVISION: Final = re.compile(r"v(\d+)_(\d+)_(\d+)")


def stored_revision(connection: Connection) -> str | None:
    """The revision of a store's tables; None where the database holds no captionbench results."""
    tables = set(inspect(connection).get_table_names())
    if REVISION.name in tables and not tables.isdisjoint(Base.metadata.tables):
        return connection.scalar(select(REVISION.c.version_num))
    return None


def _revision_of(connection: Connection, url: URL) -> str:
    """The revision of the tables; StoreError where there are none of ours."""
    revision = stored_revision(connection)
    if revision is None:
        raise no_results(url)
    return revision


def release(revision: str) -> str:
    """The version of captionbench that brought a revision, as its name says: "1.0.0" for v1_0_0."""
    return revision.removeprefix("v").replace("_", ".")


def is_older(revision: str, url: URL) -> bool:
    """Whether tables of a revision need an upgrade; StoreError where one before 1.0, or a newer one, wrote them."""
    match = _REVISION.fullmatch(revision)
    newest = _REVISION.fullmatch(RELEASE)
    versions = [tuple(map(int, version.groups())) for version in (match, newest) if version]
    if match is None or versions[0] < _FIRST:
        raise StoreError(
            f"the results database {show(url)} is of the tables {revision!r}, which this captionbench does not read",
            "use the captionbench that wrote it, or run the benchmark again with another --workspace or --db",
        )
    if versions[0] > versions[1]:
        raise StoreError(
            f"the results database {show(url)} was written by a newer captionbench, {release(revision)} or later; "
            f"this one knows the tables of {release(RELEASE)}",
            f"install that version: pip install 'captionbench>={release(revision)}'; or name another database",
        )
    return versions[0] < versions[1]


def how_to_upgrade(url: URL) -> str:
    """The command that upgrades this database and no other; a URL may hold a password, which is not repeated."""
    return f"bench db upgrade --db {sqlite_file(url) or 'URL'}"


def ensure_current(connection: Connection, url: URL, *, create: bool) -> None:
    """Make the tables in an empty database if `create`; StoreError where there are none, or other ones than ours."""
    revision = stored_revision(connection)
    if revision is None:
        if not create or inspect(connection).get_table_names():
            raise no_results(url)
        Base.metadata.create_all(connection)
        REVISION.create(connection)
        connection.execute(insert(REVISION).values(version_num=RELEASE))
    elif is_older(revision, url):
        raise StoreError(
            f"the results database {show(url)} was written by captionbench {release(revision)}, whose tables are older",
            f"upgrade it, nothing is lost: {how_to_upgrade(url)}",
        )


def no_results(url: URL) -> StoreError:
    return StoreError(
        f"the database {show(url)} holds no captionbench results",
        "name the bench.sqlite of a workspace, or a file that does not exist yet"
        if sqlite_file(url)
        else "name a database that `bench run` wrote to, or an empty one",
    )


@dataclass(frozen=True, slots=True)
class Information:
    """`rows` counts by table, `runs` by status; `bytes` is None where the database is no file.

    `upgrade` is what to type where the tables are of an older release, else None.
    """

    name: str
    backend: str
    release: str
    upgrade: str | None
    rows: dict[str, int]
    runs: dict[str, int]
    bytes: int | None


def describe(url_or_path: str | Path | URL) -> Information:
    """Describe a database of this release or an older one."""
    url = resolve_url(url_or_path)
    with opened(url, read_only=True) as engine, engine.connect() as connection:
        revision = _revision_of(connection, url)
        older = is_older(revision, url)
        present = set(inspect(connection).get_table_names())
        tables = [table for table in Base.metadata.sorted_tables if table.name in present]
        rows = {table.name: connection.scalar(select(func.count()).select_from(table)) or 0 for table in tables}
        by_status = select(RunRow.status, func.count()).group_by(RunRow.status).order_by(RunRow.status)
        runs = dict(connection.execute(by_status).all())
    file = sqlite_file(url)
    how = how_to_upgrade(url) if older else None
    size = None if file is None else file.stat().st_size
    return Information(show(url), url.get_backend_name(), release(revision), how, rows, runs, size)


@contextmanager
def opened(url: URL, *, read_only: bool) -> Iterator[Engine]:
    """An engine for one look at a database that is there, whatever the release of its tables."""
    check_file(url, create=False)
    engine = open_engine(url, read_only=read_only, foreign_keys=read_only)
    try:
        with translated(url):
            yield engine
    finally:
        engine.dispose()


Convert = Callable[[Mapping[str, Any]], dict[str, Any] | None]
"""Makes a run's configuration of its row in captionbench 1; None where the row does not say how it was executed."""


def upgrade(url_or_path: str | Path | URL, convert: Convert | None = None) -> str:
    """Change the tables to this release's, in one transaction: wholly or not at all. Gives the revision found.

    Without `convert`, rows of captionbench 1 have no configuration: they are read, and not executed.
    """
    url = resolve_url(url_or_path)
    with opened(url, read_only=False) as engine, writing(engine).begin() as connection:
        revision = _revision_of(connection, url)
        if is_older(revision, url):
            _migrate(connection, convert)
            if connection.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").all():
                raise StoreError(
                    f"the results database {show(url)} has rows that refer to missing rows; it is left unchanged",
                    "restore it from a copy, or start a new one and merge it: bench db merge",
                )
    return revision


def count_convertible(url_or_path: str | Path | URL, convert: Convert) -> tuple[str, dict[str, tuple[int, int]]]:
    """The revision of a database, and what `upgrade` would do; nothing is changed.

    Of captionbench 1 by kind: how many finished runs would have a configuration, and how many there are.
    """
    url = resolve_url(url_or_path)
    with opened(url, read_only=True) as engine, engine.connect() as connection:
        revision = _revision_of(connection, url)
        counts: dict[str, tuple[int, int]] = {}
        if not is_older(revision, url):
            return revision, counts
        json_columns = (column(name, JSON) for name in ("config", "signature", "execution"))
        runs = table("runs", *(column(name) for name in ("model", "kind", "seed", "status")), *json_columns)
        for row in connection.execute(select(runs).where(runs.c.status == "finished")).mappings():
            record = row["config"]
            kind = "ensemble" if "members" in record else row["kind"]
            converts = row["execution"] is not None and convert({**row, "record": record, "kind": kind}) is not None
            converted, count = counts.get(kind, (0, 0))
            counts[kind] = converted + converts, count + 1
    return revision, counts


def _migrate(connection: Connection, convert: Convert | None) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["convert"] = convert
    command.upgrade(config, RELEASE)
