"""Opening the database: its URL, how transactions begin, and error messages."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, make_url

from results.errors import StoreError
from results.files import check_regular
from results.store import postgresql, sqlite

BUSY_TIMEOUT_S = 30.0
"""How long a write waits for other processes' writes before it gives up."""

_WRITES = "store_writes"


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
        return url.set(drivername=postgresql.DRIVER) if url.drivername in {"postgres", "postgresql"} else url
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
    """How messages name the store: the path, or the URL without its password."""
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
        url = url.set(database=sqlite.read_only_uri(file), query={"uri": "true"})
    try:
        engine = create_engine(url, **options)
    except (exc.NoSuchModuleError, ModuleNotFoundError) as error:
        hint = postgresql.NO_DRIVER if backend == "postgresql" else "install the driver that the URL names"
        raise StoreError(f"no driver for the database {show(url)}: {error}", hint) from error
    if backend == "sqlite":
        event.listen(engine, "connect", sqlite.set_pragmas)
        if not foreign_keys:
            event.listen(engine, "connect", sqlite.leave_foreign_keys)
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
    """On SQLite, let readers and one writer work side by side; other databases do anyway."""
    if engine.dialect.name == "sqlite":
        sqlite.use_write_ahead_log(engine, BUSY_TIMEOUT_S)


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
    code, meanings, detail = getattr(cause, "sqlite_errorname", ""), sqlite.MEANINGS, ""
    if not code:
        code, meanings, detail = postgresql.state(cause), postgresql.MEANINGS, f": {first_line}"
    for prefix, (meaning, hint) in meanings.items():
        if code.startswith(prefix):
            return f"the results database {name} {meaning.format(wait=BUSY_TIMEOUT_S)}{detail}", hint
    if first_line.startswith(sqlite.MISSING):
        return f"the results database {name} is damaged: {first_line}", "`bench db info` lists what is missing"
    return f"the results database {name} refused: {first_line}", None


def _begin(connection: Connection) -> None:
    for_writing = bool(connection.get_execution_options().get(_WRITES, False))
    if connection.dialect.name == "sqlite":
        sqlite.begin(connection, writing=for_writing, timeout_s=BUSY_TIMEOUT_S)
    elif connection.dialect.name == "postgresql" and for_writing:
        postgresql.begin_writing(connection, BUSY_TIMEOUT_S)
