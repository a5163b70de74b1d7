"""Results that would be lost, other programs' files harmed, databases with parts missing: nothing is changed."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import URL

from results.errors import StoreError
from results.store.engine import is_in_memory, resolve_url
from results.store.store import Store
from tests.harness.conftest import bench


@pytest.mark.parametrize("db", ["memory.sqlite", "sqlite:////tmp/memory.sqlite", "postgresql://me@host/memory"])
def test_files_and_servers_are_not_in_memory(db: str) -> None:
    assert not is_in_memory(resolve_url(db))
    assert is_in_memory(URL.create("sqlite"))


def _recipes(file: Path, journal: str) -> sqlite3.Connection:
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.execute("INSERT INTO recipes VALUES ('soup')")
    connection.commit()
    return connection


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_other_programs_files_keep_every_byte(tmp_path: Path, journal: str) -> None:
    connection = _recipes(tmp_path / "open.sqlite", journal)
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in tmp_path.glob("open.sqlite*"):  # as a program that was killed leaves it: its log not yet written back
        if not file.name.endswith("-shm"):
            shutil.copy(file, folder)
    connection.close()
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert ("open.sqlite-wal" in before) == (journal == "WAL")
    result = bench("run", "--workspace", tmp_path / "w", "--db", folder / "open.sqlite")
    assert isinstance(result.exception, StoreError)
    assert "holds no captionbench results" in str(result.exception)
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    file = tmp_path / "bench.sqlite"
    file.touch()
    Store(file).close()
    Store(file, read_only=True).close()


def test_a_table_that_is_gone_is_named(tmp_path: Path) -> None:
    file = tmp_path / "bench.sqlite"
    Store(file).close()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE image_influences")
    result = bench("db", "check", "--workspace", tmp_path)
    assert isinstance(result.exception, StoreError)
    assert str(result.exception).startswith(f"the results database {file} is damaged: no such ")
    assert result.exception.hint
