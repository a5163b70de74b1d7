"""SQLite: pragmas, transactions, write-ahead log, and error messages."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.pool import ConnectionPoolEntry

# SQLite's own names of its error codes (sqlite3.Error.sqlite_errorname), by prefix; {wait} is the busy timeout.
MEANINGS = {
    "SQLITE_NOTADB": ("is not a SQLite database", "name another file, or move this one away to start a new store"),
    "SQLITE_CORRUPT": ("is damaged", "restore it from a copy, or move it away to start a new store"),
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

MISSING = ("no such table", "no such column")
"""How SQLite begins messages about tables and columns that are not there; it has no code for them."""


def set_pragmas(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    """Make a new connection check foreign keys and never lose what it reported as stored."""
    connection.isolation_level = None  # the driver opens no transactions by itself: `begin` does
    connection.execute("PRAGMA foreign_keys = ON")
    # FULL: what was reported as stored survives a power cut too; writes are few, so the extra sync costs nothing.
    connection.execute("PRAGMA synchronous = FULL")


def leave_foreign_keys(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    """Stop checking foreign keys: a migration that rebuilds a table would delete, by cascade, rows that refer to it."""
    connection.execute("PRAGMA foreign_keys = OFF")


def begin(connection: Connection, *, writing: bool, timeout_s: float) -> None:
    """Open a transaction; one that writes takes the write lock at once, so that it cannot fail half-way.

    It waits for the lock itself. SQLite's own waiting asks ever more rarely, every 0.1 s in the end, so that of many
    writers those that have just come are served, and one that has waited long waits on: for half a minute, with 64.
    """
    if not writing:
        connection.exec_driver_sql("BEGIN")
        return
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    deadline = time.monotonic() + timeout_s
    raw.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                raw.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(*ASK_S))
    finally:
        raw.execute(f"PRAGMA busy_timeout = {round(1000 * timeout_s)}")


def read_only_uri(file: Path) -> str:
    """SQLite's URI of a file that is never written; where its folder cannot be either, no log can appear beside it."""
    absolute = file.absolute()
    frozen = not os.access(absolute.parent, os.W_OK) and not absolute.with_name(absolute.name + "-wal").exists()
    return f"{absolute.as_uri()}?mode=ro" + ("&immutable=1" if frozen else "")


def use_write_ahead_log(engine: Engine, timeout_s: float) -> None:
    """Let readers and one writer work side by side; kept in the file, so once is enough.

    SQLite does not wait for other processes here whatever the busy timeout, so this waits itself.
    """
    deadline = time.monotonic() + timeout_s
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
