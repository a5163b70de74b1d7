"""Opening the database: where it lies, how SQLite is set up, and what its errors mean to a user."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, make_url
from sqlalchemy.pool import ConnectionPoolEntry

from results.errors import StoreError

BUSY_TIMEOUT_S = 30.0
"""How long a write waits for another process's write before it gives up."""

_WRITES = "store_writes"

# SQLite's own names of its error codes (sqlite3.Error.sqlite_errorname), by prefix.
_MEANINGS = {
    "SQLITE_NOTADB": ("is not a SQLite database", "name another file, or move this one away to start a new store"),
    "SQLITE_CORRUPT": ("is damaged", "restore it from a copy, or move it away to start a new store"),
    "SQLITE_READONLY": ("cannot be written to", "check the permissions of the file and of its folder"),
    "SQLITE_PERM": ("cannot be accessed", "check the permissions of the file and of its folder"),
    "SQLITE_CANTOPEN": ("cannot be opened", "check that it is a file and that its folder may be read and written"),
    "SQLITE_BUSY": (
        f"is locked by another process and stayed so for {BUSY_TIMEOUT_S:.0f} s",
        "wait for the other program that writes to it, or end it, then repeat the command",
    ),
    "SQLITE_FULL": ("cannot grow: the disk is full", "free some space, then repeat the command: it continues"),
    "SQLITE_IOERR": ("cannot be read or written: the disk reports an error", "check the disk and its free space"),
}


def resolve_url(url_or_path: str | Path) -> URL:
    """A SQLAlchemy URL as it is, anything else as the path of a SQLite file."""
    if isinstance(url_or_path, str) and "://" in url_or_path:
        try:
            return make_url(url_or_path)
        except exc.ArgumentError as error:
            raise StoreError(
                "the database URL cannot be understood", "write a path, or driver://user@host/name"
            ) from error
    return URL.create("sqlite", database=str(url_or_path))


def sqlite_file(url: URL) -> Path | None:
    """The file of a SQLite URL; None for other databases and for a store in memory."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database))


def show(url: URL) -> str:
    """How messages name the store: the path, or the URL without its password."""
    file = sqlite_file(url)
    return str(file) if file else url.render_as_string(hide_password=True)


def open_engine(url: URL, *, read_only: bool) -> Engine:
    """An engine whose transactions are explicit; on SQLite every connection has foreign keys and a busy timeout."""
    file = sqlite_file(url)
    options: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": BUSY_TIMEOUT_S}
    if file is not None and read_only:
        url = url.set(database=_read_only_uri(file), query={"uri": "true"})
    try:
        engine = create_engine(url, **options)
    except (exc.NoSuchModuleError, ModuleNotFoundError) as error:
        raise StoreError(
            f"no driver for the database {show(url)}: {error}", "install the driver that the URL names"
        ) from error
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _set_pragmas)
        event.listen(engine, "begin", _begin)
    return engine


def writing(engine: Engine) -> Engine:
    """The same pool, whose transactions take the write lock at once: none can fail half-way for want of it."""
    return engine.execution_options(**{_WRITES: True})


def use_write_ahead_log(engine: Engine) -> None:
    """Let readers and one writer work side by side; kept in the file, so once is enough.

    SQLite does not wait for other processes here whatever the busy timeout, so this waits itself.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        raw = engine.raw_connection()
        try:
            raw.cursor().execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
        finally:
            raw.close()
        time.sleep(0.02)


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Turn the database's errors into a `StoreError` that names the store and says what to do."""
    try:
        yield
    except (exc.DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, exc.DBAPIError) else error
        raise StoreError(*_explain(show(url), cause)) from error
    except UnicodeEncodeError as error:
        raise StoreError(
            f"a name with the invalid character {error.object[error.start : error.end]!r} cannot be stored in "
            f"{show(url)}",
            "rename the file or entry that holds it",
        ) from error


def _explain(name: str, cause: BaseException | None) -> tuple[str, str | None]:
    code = getattr(cause, "sqlite_errorname", "")
    for prefix, (meaning, hint) in _MEANINGS.items():
        if code.startswith(prefix):
            return f"the results database {name} {meaning}", hint
    first_line = next(iter(str(cause).splitlines()), "unknown error")
    return f"the results database {name} refused: {first_line}", None


def _read_only_uri(file: Path) -> str:
    """SQLite's URI of a file that is never written; where its folder cannot be either, no log can appear beside it."""
    absolute = file.absolute()
    frozen = not os.access(absolute.parent, os.W_OK) and not absolute.with_name(absolute.name + "-wal").exists()
    return f"{absolute.as_uri()}?mode=ro" + ("&immutable=1" if frozen else "")


def _set_pragmas(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver opens no transactions by itself: `_begin` does
    connection.execute("PRAGMA foreign_keys = ON")
    # FULL: what was reported as stored survives a power cut too; writes are few, so the extra sync costs nothing.
    connection.execute("PRAGMA synchronous = FULL")


def _begin(connection: Connection) -> None:
    immediate = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
