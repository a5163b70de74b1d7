"""Opening the database: its URL, how transactions begin on SQLite and PostgreSQL, and error messages."""

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, make_url
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.pool import ConnectionPoolEntry

from results.errors import StoreError, install_extra
from results.files import check_regular

BUSY_TIMEOUT_S = 30.0

_WRITES = "store_writes"

RESTORE: Final = "restore it from a copy, or move it away to start a new store"

# SQLite's own names of its error codes (sqlite3.Error.sqlite_errorname), by prefix; {wait} is the busy timeout.
_SQLITE_MEANINGS: Final = {
    "SQLITE_NOTADB": ("is not a SQLite database", "name another file, or move this one away to start a new store"),
    "SQLITE_CORRUPT": ("is damaged", RESTORE),
    "SQLITE_READONLY": ("cannot be written to", "check the permissions of the file and of its folder"),
    "SQLITE_PERM": ("cannot be accessed", "check the permissions of the file and of its folder"),
    "SQLITE_CANTOPEN": ("cannot be opened", "check that it is a file and that its folder may be read and written"),
    "SQLITE_BUSY": (
        "is locked by another process and stayed so for {wait:.0f} s",
        "wait for the other program that writes to it, or end it, then repeat the command",
    ),
    "SQLITE_FULL": ("cannot grow: the disk is full", "free some space, then repeat the command: it continues"),
    "SQLITE_IOERR": ("cannot be read or written: the disk reports an error", "check the disk and its free space"),
}

ASK_S = 0.002, 0.01
"""How often a writer asks for the lock, at least and at most: by chance, but the first as often as the last."""

_MISSING: Final = ("no such table", "no such column")

_DRIVER: Final = "postgresql+psycopg"
_NO_DRIVER: Final = f"install PostgreSQL's driver: {install_extra('postgres')}"

_NO_CONNECTION = "08000"  # what the driver gives no SQLSTATE for

# SQLSTATE by prefix; {wait} is how long a write waits.
_POSTGRESQL_MEANINGS: Final = {
    "08": (
        "cannot be reached",
        "check that the server runs, and the host, port, user, password and database of the URL; "
        "`createdb NAME` makes a database",
    ),
    "57P": ("was shut down by its server", "repeat the command when the server runs again: it continues"),
    "28": ("refuses the user or the password", "check both in --db or BENCH_DB"),
    "3D000": ("does not exist", "make it with `createdb NAME`, or name another in --db or BENCH_DB"),
    "42501": ("may not be written by this user", "grant the user CREATE on the schema, or name another user"),
    "42P01": ("is damaged", RESTORE),
    "42703": ("is damaged", RESTORE),
    "25006": ("cannot be written to: the server is read-only", "name the server that takes writes"),
    "55P03": (
        "is locked by another process and stayed so for {wait:.0f} s",
        "wait for the other program that writes to it, or end it, then repeat the command",
    ),
    "53100": ("cannot grow: the server's disk is full", "free some space there, then repeat the command: it continues"),
}

_ONE_WRITER = 0x63617074  # a number of our own among the database's advisory locks


def resolve_url(url_or_path: str | Path | URL) -> URL:
    """A SQLAlchemy URL as it is, anything else as the path of a SQLite file."""
    if isinstance(url_or_path, URL):
        return url_or_path
    if isinstance(url_or_path, str) and "://" in url_or_path:
        try:
            url = make_url(url_or_path)
        except (exc.ArgumentError, ValueError) as error:
            raise StoreError(
                "the database URL cannot be understood", "write a path, or driver://user@host/name"
            ) from error
        return url.set(drivername=_DRIVER) if url.drivername in {"postgres", "postgresql"} else url
    return URL.create("sqlite", database=str(url_or_path))


def sqlite_file(url: URL) -> Path | None:
    """The file of a SQLite URL; None for other databases and for a store in memory."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database))


def is_in_memory(url: URL) -> bool:
    """Whether a SQLite URL names no file, so that its results end with the process."""
    if url.get_backend_name() != "sqlite":
        return False
    database = url.database or ""
    if "uri" in url.query:
        return ":memory:" in database or url.query.get("mode") == "memory"
    return database in {"", ":memory:"}


def show(url: URL) -> str:
    file = sqlite_file(url)
    return str(file) if file else url.render_as_string(hide_password=True)


def check_file(url: URL, *, create: bool) -> None:
    """Raise StoreError where a SQLite file is a folder or is missing; to be created, it needs a folder."""
    file = sqlite_file(url)
    if file is None:
        return
    try:
        check_regular(file)
    except FileNotFoundError as error:
        if not create:
            raise StoreError(
                f"no results database at {file}", "run `bench run` first, or name another workspace"
            ) from error
    except IsADirectoryError as error:
        raise StoreError(
            f"the results database {file} is a folder", f"name a file, as {file / 'bench.sqlite'}"
        ) from error
    except OSError as error:  # SQLite would wait for a pipe, and read a device
        raise StoreError(
            f"the results database {file} cannot be opened: {error.strerror}", "name another file"
        ) from error
    if not file.parent.is_dir():
        raise StoreError(f"no folder {file.parent} for the results database", f"create it: mkdir -p {file.parent}")


def open_engine(url: URL, *, read_only: bool, foreign_keys: bool = True) -> Engine:
    """An engine whose transactions are explicit; those that only read see one instant.

    On SQLite every connection has a busy timeout and, unless a migration says otherwise, checks foreign keys.
    """
    backend = url.get_backend_name()
    file = sqlite_file(url)
    # A connection may have been idle through hours of training: check that it is still open before it is used.
    options: dict[str, Any] = {"pool_pre_ping": True}
    if backend == "sqlite":
        options = {"connect_args": {"timeout": BUSY_TIMEOUT_S}}
    elif backend == "postgresql":
        options |= {"isolation_level": "REPEATABLE READ", "execution_options": {"postgresql_readonly": read_only}}
    if file is not None and read_only:
        # Where the file's folder cannot be written either, no log can appear beside it.
        path = file.absolute()
        frozen = not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
        database = f"{path.as_uri()}?mode=ro"
        if frozen:
            database += "&immutable=1"
        url = url.set(database=database, query={"uri": "true"})
    try:
        engine = create_engine(url, **options)
    except (exc.NoSuchModuleError, ModuleNotFoundError) as error:
        hint = _NO_DRIVER if backend == "postgresql" else "install the driver that the URL names"
        raise StoreError(f"no driver for the database {show(url)}: {error}", hint) from error
    if backend == "sqlite":
        # A migration that rebuilds a table would delete, by cascade, rows that refer to it.
        event.listen(engine, "connect", partial(_set_pragmas, foreign_keys="ON" if foreign_keys else "OFF"))
    event.listen(engine, "begin", _begin)
    return engine


def writing(engine: Engine) -> Engine:
    """The same pool, whose transactions write one at a time: none can fail half-way because it gets no lock."""
    options: dict[str, Any] = {_WRITES: True}
    if engine.dialect.name == "postgresql":
        # Each statement sees what was committed before it, so also what another wrote while this one waited.
        options["isolation_level"] = "READ COMMITTED"
    return engine.execution_options(**options)


def use_write_ahead_log(engine: Engine) -> None:
    """On SQLite, let readers and one writer work side by side; other databases do anyway.

    It is kept in the file, so once is enough. SQLite does not wait for other processes here whatever the busy timeout,
    so this waits itself.
    """
    if engine.dialect.name == "sqlite":
        with closing(engine.raw_connection()) as raw:
            _execute_patiently(raw.cursor(), "PRAGMA journal_mode = WAL")


def _execute_patiently(on: sqlite3.Connection | DBAPICursor, statement: str) -> None:
    """Execute it once no other process holds the lock; that error where one does until the busy timeout."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            on.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(*ASK_S))


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
    first_line = next(iter(str(cause).splitlines()), "unknown error")
    code = getattr(cause, "sqlite_errorname", "")
    meanings = _SQLITE_MEANINGS
    detail = ""
    if not code:
        lost = type(cause).__name__ == "OperationalError" and type(cause).__module__.startswith("psycopg")
        code = getattr(cause, "sqlstate", None) or (_NO_CONNECTION if lost else "")
        meanings = _POSTGRESQL_MEANINGS
        detail = f": {first_line}"
    for prefix, (meaning, hint) in meanings.items():
        if code.startswith(prefix):
            return f"the results database {name} {meaning.format(wait=BUSY_TIMEOUT_S)}{detail}", hint
    if first_line.startswith(_MISSING):
        return f"the results database {name} is damaged: {first_line}", RESTORE
    return f"the results database {name} refused: {first_line}", None


def _begin(connection: Connection) -> None:
    for_writing = bool(connection.get_execution_options().get(_WRITES, False))
    if connection.dialect.name == "sqlite" and not for_writing:
        connection.exec_driver_sql("BEGIN")
    elif connection.dialect.name == "sqlite":
        _begin_writing(connection)
    elif connection.dialect.name == "postgresql" and for_writing:
        # One transaction writes at a time, as on SQLite: what a write looked up still holds when it inserts.
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(BUSY_TIMEOUT_S * 1000)}")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ONE_WRITER})")


def _set_pragmas(connection: sqlite3.Connection, _entry: ConnectionPoolEntry, *, foreign_keys: str) -> None:
    """Make a new connection check foreign keys or not, and never lose what it reported as stored."""
    connection.isolation_level = None  # the driver opens no transactions by itself: `begin` does
    connection.execute(f"PRAGMA foreign_keys = {foreign_keys}")
    # FULL: what was reported as stored survives a power cut too; writes are few, so the extra sync costs nothing.
    connection.execute("PRAGMA synchronous = FULL")


def _begin_writing(connection: Connection) -> None:
    """Take SQLite's write lock at once, so that no transaction that writes can fail half-way.

    It waits for the lock itself. SQLite's own waiting asks ever more rarely, every 0.1 s in the end, so that of many
    writers those that have just come are served, and one that has waited long waits on: for half a minute, with 64.
    """
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    raw.execute("PRAGMA busy_timeout = 0")
    try:
        _execute_patiently(raw, "BEGIN IMMEDIATE")
    finally:
        raw.execute(f"PRAGMA busy_timeout = {round(1000 * BUSY_TIMEOUT_S)}")
