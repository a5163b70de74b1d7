"""`--out` on what is not a regular file: nothing is replaced, and what cannot be written is one sentence."""

import json
import os
import shutil
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import URL

from harness.cli.output import deliver
from harness.utils.errors import BenchError
from results.errors import StoreError
from results.store.engine import is_in_memory, resolve_url
from results.store.store import Store
from tests.harness.conftest import bench, bench_or_raise

Words = list[str]


@pytest.fixture
def evaluate(tmp_path: Path) -> Words:
    """The words of a `bench evaluate` of one caption, without `--out`."""
    references = {
        "images": [{"id": 1}, {"id": 2}],
        "annotations": [{"id": i, "image_id": i, "caption": "a red ball"} for i in (1, 2)],
    }
    predictions = [{"image_id": i, "caption": "a red ball"} for i in (1, 2)]
    for name, content in (("references", references), ("predictions", predictions)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    files = [str(tmp_path / "predictions.json"), "--references", str(tmp_path / "references.json")]
    return ["evaluate", *files, "--no-meteor"]


def refused(*words: object) -> BenchError:
    """The error of `bench WORDS`."""
    result = bench(*words)
    assert isinstance(result.exception, BenchError), result.stdout
    return result.exception


def test_a_full_device_stays_and_is_named(tmp_path: Path, evaluate: Words) -> None:
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    error = refused(*evaluate, "--out", link)
    assert str(error) == f"cannot write --out {link}: No space left on device"
    assert error.hint is not None
    assert "free some space" in error.hint
    assert link.is_symlink()
    assert stat.S_ISCHR(link.stat().st_mode)


def test_links_are_followed_and_stay(tmp_path: Path, evaluate: Words) -> None:
    (tmp_path / "kept").mkdir()
    target, link = tmp_path / "kept" / "scores.json", tmp_path / "link.json"
    link.symlink_to(target)
    for words in ([], ["--force"]):  # where the link leads nowhere yet, and where it leads to a file
        assert bench_or_raise(*evaluate, "--out", link, *words)[0] == 0
        assert link.is_symlink()
        assert not target.is_symlink()
        assert json.loads(target.read_text())
    assert [file.name for file in target.parent.iterdir()] == ["scores.json"]


def test_a_pipe_without_a_reader_does_not_hang(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BenchError, match="nothing reads from it"):
        deliver("text\n", pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_pipe_with_a_reader_gets_the_text(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    writer = os.open(pipe, os.O_WRONLY)  # without one the reader would find the end at once
    text, read = "line\n" * 50_000, []  # more than the pipe holds at once
    thread = threading.Thread(target=lambda: read.append(os.fdopen(reader, "rb").read()))
    thread.start()
    deliver(text, pipe)
    os.close(writer)
    thread.join()
    assert read[0].decode() == text
    assert stat.S_ISFIFO(pipe.stat().st_mode)


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
    assert not list((tmp_path / "w").glob("cache/*")), "it is refused before any work"
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
    result = bench("db", "upgrade", "--workspace", tmp_path)
    assert isinstance(result.exception, StoreError)
    assert str(result.exception).startswith(f"the results database {file} is damaged: no such ")
    assert result.exception.hint
