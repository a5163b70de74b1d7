"""Which release the tables of a database are of, and how new ones are made; no Alembic here."""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy import URL, Connection, insert, inspect, select

from results.errors import StoreError
from results.store.engine import show, sqlite_file
from results.store.schema import RELEASE, REVISION, Base

_FIRST: Final = (1, 0, 0)
"""The release whose tables are the oldest that can be upgraded; earlier versions were tried out, never released."""

_REVISION = re.compile(r"v(\d+)_(\d+)_(\d+)")


def stored_revision(connection: Connection) -> str | None:
    """The revision of a store's tables; None where the database holds no captionbench results."""
    tables = set(inspect(connection).get_table_names())
    if REVISION.name in tables and not tables.isdisjoint(Base.metadata.tables):
        return connection.scalar(select(REVISION.c.version_num))
    return None


def release(revision: str) -> str:
    """The version of captionbench that brought a revision, as its name says: "0.2.0" for v0_2_0."""
    return revision.removeprefix("v").replace("_", ".")


def is_older(revision: str, url: URL) -> bool:
    """Whether tables of a revision need an upgrade; StoreError where one before 1.0, or a newer one, wrote them."""
    found, own = _REVISION.fullmatch(revision), _REVISION.fullmatch(RELEASE)
    if found is None or own is None:
        raise StoreError(
            f"the results database {show(url)} is of the revision {revision!r}, which no release of captionbench has",
            "install the captionbench that wrote it, or name another database",
        )
    versions = [tuple(map(int, match.groups())) for match in (found, own)]
    if versions[0] < _FIRST:
        raise StoreError(
            f"the results database {show(url)} was written by captionbench {release(revision)}, before 1.0, "
            "whose tables this one does not read",
            "run the benchmark again with another --workspace or --db, or use the captionbench that wrote it",
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
    """The error where a database holds something else than results, or nothing."""
    return StoreError(
        f"the database {show(url)} holds no captionbench results",
        "name the bench.sqlite of a workspace, or a file that does not exist yet"
        if sqlite_file(url)
        else "name a database that `bench run` wrote to, or an empty one",
    )
