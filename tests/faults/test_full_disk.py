"""A disk that fills up in the middle of a training, a report or a merge, and a kill in a merge: nothing is lost."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import func, select

from reports.errors import ReportError
from reports.html.report import write_report
from results import ImageRecord, Store, StoreError
from results.store.merge import merge
from results.store.schema import Caption, ImageScores, RunRow
from tests.results.conftest import Make

RUNS = 12


@contextmanager
def no_file_beyond(limit: int) -> Iterator[None]:
    """The system lets no file of this process grow beyond `limit` bytes, as a full disk would not."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of some hundred kilobytes, of twelve finished runs."""
    file = tmp_path_factory.mktemp("source") / "bench.sqlite"
    images = tuple(ImageRecord(i, f"test/{i}.png", "test", ("a ball " * 20,)) for i in (1, 2, 30))
    with Store(file) as store:
        store.record_dataset(Make.dataset(images=images))
        for seed in range(RUNS):
            spec = Make.spec("blind", seed, config={"seed": seed, "note": "x" * 20_000})
            store.plan([spec])
            store.begin(spec.key, {})
            store.record_epoch(spec.key, Make.epoch(1))
            store.finish(spec.key, Make.outcome(seed / 10))
    return file


def runs_of(file: Path) -> dict[str, tuple[str, int, int]]:
    """By key, the status of each run and how many captions and scores of images it has; the file is sound."""
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    with Store(file, read_only=True) as store, store.reading() as reading:
        found = {}
        for run in reading.execute(select(RunRow.id, RunRow.key, RunRow.status)).all():
            parts = [
                reading.scalar(select(func.count()).select_from(table).where(table.run_id == run.id))
                for table in (Caption, ImageScores)
            ]
            found[run.key] = (run.status, *parts)
        return found


def test_a_merge_onto_a_full_disk_keeps_whole_runs(tmp_path: Path, source: Path) -> None:
    target, wanted = tmp_path / "bench.sqlite", runs_of(source)
    assert len(wanted) == RUNS
    with Store(target) as store:
        room = 250_000 + max(file.stat().st_size for file in tmp_path.iterdir())
        with no_file_beyond(room), pytest.raises(StoreError, match=r"disk|written") as caught:
            merge(store, source)
        assert str(target) in str(caught.value)
    first = runs_of(target)
    assert 0 < len(first) < RUNS
    assert first.items() <= wanted.items()
    with Store(target) as store:
        merged = merge(store, source)
    assert (len(merged.added), len(merged.kept)) == (RUNS - len(first), len(first))
    assert runs_of(target) == wanted


@pytest.mark.parametrize("limit", [0, 2_000, 20_000])
def test_a_report_on_a_full_disk_leaves_the_one_before(tmp_path: Path, source: Path, limit: int) -> None:
    with Store(source, read_only=True) as store:
        page = write_report(store, tmp_path / "report")
        before = page.read_bytes()
        with no_file_beyond(limit), pytest.raises(ReportError) as caught:
            write_report(store, tmp_path / "report")
        assert str(tmp_path / "report") in str(caught.value)
        assert page.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["report"]
