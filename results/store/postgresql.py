"""PostgreSQL: its driver, how a write transaction begins, and error messages."""

from __future__ import annotations

from sqlalchemy import Connection

from results.errors import install_extra

DRIVER = "postgresql+psycopg"
NO_DRIVER = f"install PostgreSQL's driver: {install_extra('postgres')}"

_NO_CONNECTION = "08000"  # what the driver gives no SQLSTATE for

# SQLSTATE by prefix; {wait} is how long a write waits.
MEANINGS = {
    "08": (
        "cannot be reached",
        "check that the server runs, and the host, port, user, password and database of the URL; "
        "`createdb NAME` makes a database",
    ),
    "57P": ("was shut down by its server", "repeat the command when the server runs again: it continues"),
    "28": ("refuses the user or the password", "check both in --db or BENCH_DB"),
    "3D000": ("does not exist", "make it with `createdb NAME`, or name another in --db or BENCH_DB"),
    "42501": ("may not be written by this user", "grant the user CREATE on the schema, or name another user"),
    "42P01": ("is damaged", "`bench db info` lists what is missing"),
    "42703": ("is damaged", "`bench db info` lists what is missing"),
    "25006": ("cannot be written to: the server is read-only", "name the server that takes writes"),
    "55P03": (
        "is locked by another process and stayed so for {wait:.0f} s",
        "wait for the other program that writes to it, or end it, then repeat the command",
    ),
    "53100": ("cannot grow: the server's disk is full", "free some space there, then repeat the command: it continues"),
}

_ONE_WRITER = 0x63617074  # a number of our own among the database's advisory locks


def state(cause: BaseException | None) -> str:
    """The SQLSTATE of a driver's error; empty for errors that are none of the server's."""
    lost = type(cause).__name__ == "OperationalError" and type(cause).__module__.startswith("psycopg")
    return getattr(cause, "sqlstate", None) or (_NO_CONNECTION if lost else "")


def begin_writing(connection: Connection, timeout_s: float) -> None:
    """Let one transaction write at a time, as SQLite does: what a write looked up still holds when it inserts."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(timeout_s * 1000)}")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ONE_WRITER})")
