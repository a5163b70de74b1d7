"""Opening: every way in which a database cannot be used ends in a message that names it and says what to do."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, event

import results.store.engine
from results import ImageRecord, Store, StoreError
from tests.results.runs.conftest import url

__all__ = ["url"]  # files alone: what may be wrong with them


@contextmanager
def pragma(statement: str) -> Iterator[None]:
    """Run a statement on every new connection."""

    def on_connect(connection: sqlite3.Connection, _entry: object) -> None:
        connection.execute(statement)

    event.listen(Engine, "connect", on_connect)
    try:
        yield
    finally:
        event.remove(Engine, "connect", on_connect)


def refused(named: str | URL, *words: str, **options: Any) -> None:
    """Opening must fail with one line that holds the words and no password, and with a hint."""
    with pytest.raises(StoreError) as caught:
        Store(named, **options)
    for word in words:
        assert word in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_a_new_file_has_write_ahead_log_and_foreign_keys(tmp_path: Path) -> None:
    with Store(tmp_path / "bench.sqlite") as store, store.reading() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
        }
    assert settings == {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 30_000, "synchronous": 2}
    assert [file.name for file in tmp_path.iterdir()] == ["bench.sqlite"], "closing leaves one file"


@pytest.mark.parametrize("name", ["plain.sqlite", "a b#c?d%20.db", "file:x", "ünïcode"])
def test_names_of_files_are_taken_literally(tmp_path: Path, make: Any, name: str) -> None:
    with Store(tmp_path / name) as store:
        store.record_dataset(make.dataset())
        store.plan([make.spec()])
    assert (tmp_path / name).is_file()
    with Store(str(tmp_path / name), read_only=True) as store:
        assert store.status("blind-1") == "planned"


def test_not_a_database(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("these are only notes\n" * 200)
    for read_only in (False, True):
        refused(str(file), str(file), "not a SQLite database", read_only=read_only)
    assert file.read_text() == "these are only notes\n" * 200


def test_a_database_of_something_else(tmp_path: Path) -> None:
    file = tmp_path / "other.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    for options in ({}, {"read_only": True}, {"create": False}):
        refused(str(file), str(file), "no captionbench results", **options)


def test_what_is_missing(tmp_path: Path) -> None:
    refused(str(tmp_path / "no" / "bench.sqlite"), f"no folder {tmp_path / 'no'}")
    for options in ({"create": False}, {"read_only": True}):
        refused(str(tmp_path / "bench.sqlite"), f"no results database at {tmp_path / 'bench.sqlite'}", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    refused(str(tmp_path), f"{tmp_path} is a folder")


def test_urls_that_lead_nowhere() -> None:
    refused("mydatabase://x", "driver", "mydatabase://x")
    refused("://", "URL")
    refused("mydatabase://me:secret@host/name", "driver")


def test_read_only(tmp_path: Path, make: Any) -> None:
    file = tmp_path / "bench.sqlite"
    with Store(file) as store:
        store.record_dataset(make.dataset())
    before = file.read_bytes()
    with Store(file, read_only=True) as store:
        with pytest.raises(StoreError, match="opened read-only"):
            store.plan([make.spec()])
        assert store.status("blind-1") is None
    assert file.read_bytes() == before


def test_a_store_that_may_not_be_written(tmp_path: Path, make: Any) -> None:
    file = tmp_path / "bench.sqlite"
    Store(file).close()
    with (
        pragma("PRAGMA query_only = ON"),
        Store(file, create=False) as store,
        pytest.raises(StoreError, match="cannot be written to") as caught,
    ):
        store.record_dataset(make.dataset())
    assert "permissions" in (caught.value.hint or "")


def test_a_full_disk_leaves_the_store_as_it_was(store: Store, make: Any, tmp_path: Path) -> None:
    images = tuple(ImageRecord(number, "x" * 500, "test", ("a" * 500,)) for number in range(1000))
    with (
        pragma("PRAGMA max_page_count = 60"),
        Store(tmp_path / "bench.sqlite") as other,
        pytest.raises(StoreError, match="disk is full"),
    ):
        other.record_dataset(make.dataset("large", images=images))
    store.plan([make.spec()])
    with pytest.raises(StoreError, match="never recorded"):
        store.plan([make.spec("other", dataset="large")])


def test_a_locked_database(store: Store, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results.store.engine, "BUSY_TIMEOUT_S", 0.05)
    other = sqlite3.connect(tmp_path / "bench.sqlite", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked by another process") as caught:
            Store(tmp_path / "bench.sqlite")
        assert caught.value.hint
        with Store(tmp_path / "bench.sqlite", read_only=True) as reader:
            assert reader.status("blind-1") is None
    finally:
        other.close()
    store.plan([make.spec()])


def test_a_writer_asks_for_the_lock_as_often_late_as_early(
    store: Store, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sqlite3.connect(tmp_path / "bench.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 40:
            other.execute("COMMIT")

    monkeypatch.setattr(results.store.engine.time, "sleep", sleep)
    try:
        store.plan([make.spec()])
    finally:
        other.close()
    assert len(slept) == 40, "it was not SQLite that waited"
    low, high = results.store.engine.ASK_S
    assert low <= min(slept) < max(slept) <= high
    with store.writing() as connection:
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 1000 * results.store.engine.BUSY_TIMEOUT_S
