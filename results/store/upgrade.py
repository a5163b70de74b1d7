"""Bringing a database of an older release up to the tables of this one."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, Connection

from results.errors import StoreError
from results.store import migrations
from results.store.engine import check_file, open_engine, resolve_url, show, translated, writing
from results.store.revisions import is_older, no_results, stored_revision
from results.store.schema import RELEASE
from results.store.structure import ensure_complete


def revision_of(url_or_path: str | Path | URL) -> str:
    """The revision of a database's tables, whatever release wrote them; StoreError where it holds no results."""
    url = resolve_url(url_or_path)
    check_file(url, create=False)
    engine = open_engine(url, read_only=True)
    try:
        with translated(url), engine.connect() as connection:
            revision = stored_revision(connection)
    finally:
        engine.dispose()
    if revision is None:
        raise no_results(url)
    return revision


def upgrade(url_or_path: str | Path | URL) -> str:
    """Change the tables to this release's, in one transaction: wholly or not at all. Gives the revision found.

    Raises:
        StoreError: no results there, or those of a newer release; a table or column is missing; or the database
            refuses.
    """
    url = resolve_url(url_or_path)
    check_file(url, create=False)
    engine = open_engine(url, read_only=False, foreign_keys=False)
    try:
        with translated(url), writing(engine).begin() as connection:
            found = stored_revision(connection)
            if found is None:
                raise no_results(url)
            if is_older(found, url):
                _migrate(connection)
                if connection.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").all():
                    raise StoreError(
                        f"the results database {show(url)} has rows that refer to missing rows; it is left unchanged",
                        "restore it from a copy, or start a new one and merge it: bench db merge",
                    )
            ensure_complete(connection, url)
    finally:
        engine.dispose()
    return found


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, RELEASE)
