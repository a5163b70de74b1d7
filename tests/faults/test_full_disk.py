"""A disk that fills up in the middle of a training, a report or a merge, and a kill in a merge: nothing is lost."""

import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import func, select

from harness.utils.errors import BenchError
from reports.html.report import write_report
from results import ImageRecord, Store, StoreError
from results.records import EpochRecord
from results.store.merge import merge
from results.store.schema import Caption, ImageScores, RunRow
from tests.harness.conftest import bench_environment
from tests.harness.training.tiny_training import fit_tiny, weights_of
from tests.results.conftest import Make

RUNS = 12
MERGES = """
import sys
import time
from results import Store
from results.store import merge

merge_run = merge._merge_run

def slow(*arguments):
    merge_run(*arguments)
    sys.stdout.write("run\\n")
    sys.stdout.flush()
    time.sleep(0.02)

merge._merge_run = slow
merge.merge(Store(sys.argv[1]), sys.argv[2])
"""


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
            spec = Make.spec("blind", seed, record={"seed": seed, "note": "x" * 20_000})
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


def test_a_killed_merge_goes_on_when_repeated(tmp_path: Path, source: Path) -> None:
    target, wanted = tmp_path / "bench.sqlite", runs_of(source)
    Store(target).close()
    with subprocess.Popen(
        [sys.executable, "-c", MERGES, target, source], env=bench_environment(), stdout=subprocess.PIPE, text=True
    ) as merging:
        assert merging.stdout is not None
        for _ in range(4):
            assert merging.stdout.readline() == "run\n"
        merging.kill()
        assert merging.wait() == -signal.SIGKILL
    first = runs_of(target)
    assert 3 <= len(first) < RUNS
    assert first.items() <= wanted.items()
    with Store(target) as store:
        merge(store, source)
    assert runs_of(target) == wanted
    left = {file.name.removeprefix("bench.sqlite") for file in tmp_path.iterdir()}
    assert left <= {"", "-wal", "-shm"}, "but SQLite's own, which its last reader leaves"


@pytest.mark.parametrize("limit", [0, 2_000, 20_000])
def test_a_report_on_a_full_disk_leaves_the_one_before(tmp_path: Path, source: Path, limit: int) -> None:
    with Store(source, read_only=True) as store:
        page = write_report(store, tmp_path / "report")
        before = page.read_bytes()
        with no_file_beyond(limit), pytest.raises(StoreError) as caught:
            write_report(store, tmp_path / "report")
        assert str(tmp_path / "report") in str(caught.value)
        assert page.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["report"]


def test_a_training_on_a_full_disk_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed: list[EpochRecord] = []
    expected, _ = fit_tiny(tmp_path / "undisturbed", records=undisturbed)
    saves = 0
    save = torch.save

    def full_at_the_third(*arguments: Any, **named: Any) -> None:
        nonlocal saves
        saves += 1
        with no_file_beyond(100 if saves == 3 else resource.RLIM_INFINITY):
            save(*arguments, **named)

    monkeypatch.setattr("torch.save", full_at_the_third)
    resumed: list[EpochRecord] = []
    with pytest.raises(BenchError, match="cannot be written") as caught:
        fit_tiny(tmp_path / "full", records=resumed, interval=0.0)
    assert caught.value.hint
    assert saves == 3
    model, _ = fit_tiny(tmp_path / "full", records=resumed)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights_of(expected).items())
    # The epoch that could not be saved is trained again, and replaces its record in a database.
    losses, again = ({(each.stage, each.epoch): each.train_loss for each in part} for part in (undisturbed, resumed))
    assert again == losses
    assert not list(tmp_path.rglob(".*")), "no temporary file is left"
