"""Rows as the database holds them, not decoded: what cannot be decoded can still be looked at, and copied."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import JSON, Column, ColumnElement, Connection, CursorResult, Table, Text, cast, select, type_coerce
from sqlalchemy.types import NullType

from results.store.columns import UtcDateTime


@contextmanager
def undecoded_text(connection: Connection) -> Iterator[None]:
    """Let SQLite give text that is not UTF-8 too, as strings with surrogate escapes."""
    driver = connection.connection.dbapi_connection
    if not isinstance(driver, sqlite3.Connection):
        yield
        return
    driver.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    try:
        yield
    finally:
        driver.text_factory = str


def raw_rows(connection: Connection, table: Table, *where: ColumnElement[bool]) -> CursorResult[Any]:
    """All columns of a table's rows, in its order, as SQLite holds them: JSON and times are text on servers too."""
    columns = [_raw(column, connection.dialect.name) for column in table.columns]
    return connection.execute(select(*columns).select_from(table).where(*where))


def _raw(column: Column[Any], dialect: str) -> ColumnElement[Any]:
    if dialect != "sqlite" and isinstance(column.type, JSON | UtcDateTime):
        return cast(column, Text).label(column.name)
    return type_coerce(column, NullType()).label(column.name)


def insert_raw(target: sqlite3.Connection, table: Table, rows: Sequence[Sequence[Any]]) -> None:
    """Insert raw rows into a SQLite table, every byte as it was; NaN, which SQLite has not, as the text "NaN"."""
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    for row in rows:
        marks = ", ".join("CAST(? AS TEXT)" if _is_escaped(value) else "?" for value in row)
        statement = f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})'  # noqa: S608 - names of the schema alone
        target.execute(statement, [_bound(value) for value in row])


def _is_escaped(value: object) -> bool:
    return isinstance(value, str) and not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value)


def _bound(value: object) -> object:
    if _is_escaped(value):
        assert isinstance(value, str)
        return value.encode("utf-8", "surrogateescape")
    return "NaN" if value != value else value
