"""Where results would be lost, or another program's file harmed: refused before anything is written."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import URL

from harness.utils.errors import BenchError
from results.errors import StoreError
from results.store.engine import is_in_memory, resolve_url
from results.store.store import Store
from tests.harness.conftest import bench


@pytest.mark.parametrize(
    "db",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite+pysqlite://",
        ":memory:",
        "sqlite:///file::memory:?uri=true",
        "sqlite:///file:a?mode=memory&uri=true",
    ],
)
def test_databases_in_memory_are_refused(tmp_path: Path, db: str) -> None:
    result = bench("run", "--workspace", tmp_path / "w", "--db", db)
    assert isinstance(result.exception, BenchError)
    assert str(result.exception).startswith(f"--db {db} is a database in memory")
    by_environment = bench("report", env={"BENCH_DB": db})
    assert "in memory" in str(by_environment.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("db", ["memory.sqlite", "sqlite:////tmp/memory.sqlite", "postgresql://me@host/memory"])
def test_files_and_servers_are_not_in_memory(db: str) -> None:
    assert not is_in_memory(resolve_url(db))
    assert is_in_memory(URL.create("sqlite"))


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["run", "--workspace", ""], "--workspace"),
        (["report", "-w", " "], "--workspace"),
        (["run", "--db", ""], "--db"),
        (["db", "info", "--db", " "], "--db"),
        (["run", "--backbone", ""], "--backbone"),
        (["data", "features", "scenes", "--backbone", ""], "--backbone"),
        (["flops", "--backbone", ""], "--backbone"),
        (["import-weights", "m", "c.pth", "--vocabulary", "v", "--backbone", ""], "--backbone"),
        (["caption", "a.png", "--run", ""], "--run"),
    ],
)
def test_empty_values_are_refused(words: list[str], option: str) -> None:
    result = bench(*words)
    assert isinstance(result.exception, BenchError), result.output
    assert str(result.exception) == f"{option} is empty"
    assert result.exception.hint


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
