"""Damaged rows: commands go on without their run and say so once; `bench db check` finds them and sets them aside."""

from __future__ import annotations

import shutil
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import pytest

import results
from results import DatasetRecord, EpochRecord, ImageRecord, StoreError
from results.store.store import Store
from tests.faults.damage import KEY, WAYS, damage, rows
from tests.harness.cli.conftest import IMAGES, outcome, planned
from tests.harness.conftest import bench, bench_or_raise

MODELS = {"updown": 1.0, "lstm": 0.0, "blind": -9.0}
READING = {
    "report": ("report", "--workspace", "{w}", "--out", "{w}/out"),
    "table": ("report", "--workspace", "{w}", "--terminal"),
    "csv": ("export", "leaderboard", "--workspace", "{w}", "--format", "csv"),
    "json": ("export", "leaderboard", "--workspace", "{w}", "--format", "json"),
    "compare": ("compare", "{w}", "{w}/copy.sqlite"),
    "cost runs": ("cost", "runs", "--workspace", "{w}"),
}
ALL = {"json"}  # the others read what this does
SOME = ("configuration", "junk scores", "text that is not UTF-8")
UNREAD = {("cost runs", "junk scores")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with three finished runs."""
    file = tmp_path_factory.mktemp("whole") / "bench.sqlite"
    images = tuple(ImageRecord(i, f"{i}.png", "test", (f"a ball {i}", "one ball")) for i in IMAGES)
    with Store(file) as store:
        store.record_dataset(DatasetRecord("scenes", "f" * 16, "/pictures", {"test": len(IMAGES)}, images))
        for model, points in MODELS.items():
            store.plan([planned(model, 0, "3")])
            store.record_epoch(f"{model}-s0", EpochRecord(0, "xe", "xe", 0, 30, 0.1, 2.5, None, 9.0, 30.0))
            store.finish(f"{model}-s0", outcome(points, 0, 10.0, None, influences=True))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return file


@pytest.fixture
def place(whole: Path, tmp_path: Path) -> Path:
    """A workspace with a copy of it, and a second copy beside."""
    shutil.copy(whole, tmp_path / "bench.sqlite")
    shutil.copy(whole, tmp_path / "copy.sqlite")
    return tmp_path


def read(name: str, place: Path) -> tuple[str, str]:
    """What a reading command says on stdout and on stderr; it must end well."""
    result = bench(*(word.format(w=place) for word in READING[name]))
    assert result.exit_code == 0, result.exception
    assert "Traceback" not in result.output
    return result.stdout, result.stderr


@pytest.mark.parametrize("name", READING)
def test_whole_databases_are_read_without_a_word(place: Path, name: str) -> None:
    stdout, stderr = read(name, place)
    assert stderr == ""
    assert name == "report" or "updown" in stdout


@pytest.mark.parametrize(("name", "way"), [(name, way) for name in READING for way in (WAYS if name in ALL else SOME)])
def test_a_damaged_run_is_left_out_and_named_once(place: Path, name: str, way: str) -> None:
    statement, why = WAYS[way]
    undamaged = read(name, place)[0] if (name, way) in UNREAD else ""
    damage(place / "bench.sqlite", statement)
    stdout, stderr = read(name, place)
    if not stderr:
        # Nothing that this command reads is damaged: the run must be there in full.
        assert (name, way) in UNREAD
        assert stdout == undamaged
        return
    assert (name, way) not in UNREAD
    assert stderr.count("warning:") == 1
    assert f"1 run is left out, damaged in the results database: run {KEY} (updown): {why}" in stderr
    assert "--set-aside" in stderr
    if name == "report":
        index = (place / "out" / "index.html").read_text()
        assert "Damaged in the results database" in index
        assert f"run {KEY} (updown)" in index
        assert not (place / "out" / "runs" / f"{KEY}.html").exists()
        assert (place / "out" / "runs" / "lstm-s0.html").exists()
    else:
        assert "lstm" in stdout
        assert "updown" not in stdout.replace("Only in B: updown seed 0", "")


def test_a_damaged_run_that_is_asked_for_is_an_error(place: Path) -> None:
    damage(place / "bench.sqlite", WAYS["date"][0])
    with pytest.raises(StoreError, match=f"run {KEY} is damaged in the results database: runs.finished_at is not a"):
        bench_or_raise("compare", KEY, "lstm", "--workspace", str(place))


def test_damage_is_not_blamed_for_a_wrong_name(place: Path) -> None:
    damage(place / "bench.sqlite", WAYS["zeroed scores"][0])
    with pytest.raises(StoreError, match="no run has a score of 'CIDER'"):
        bench_or_raise("report", "--workspace", str(place), "--metric", "CIDER")


def test_frames_leave_a_damaged_run_out_with_one_warning(place: Path) -> None:
    damage(place / "bench.sqlite", WAYS["configuration"][0], WAYS["text that is not UTF-8"][0])
    with results.open(place) as found:
        with pytest.warns(UserWarning, match=rf"1 run is left out, damaged.*{KEY}"):
            assert set(found.leaderboard()["model"]) == {"lstm", "blind"}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for frame in (found.scores(), found.image_scores(), found.captions(), found.costs(), found.epochs()):
                assert set(frame["model"]) == {"lstm", "blind"}


def test_a_merge_brings_the_other_runs_and_says_what_it_left(place: Path) -> None:
    damage(place / "bench.sqlite", WAYS["junk scores"][0])
    result = bench("db", "merge", place / "bench.sqlite", "--workspace", place / "new")
    assert result.exit_code == 0
    assert "2 runs added" in result.stdout
    assert result.stderr.count("warning:") == 1
    assert f"1 run is left out, damaged in the results database: run {KEY} (updown)" in result.stderr
    into = bench("db", "merge", place / "copy.sqlite", "--db", place / "bench.sqlite")
    assert (into.exit_code, into.stderr) == (0, "")
    assert "0 runs added, 0 completed, 3 here already" in into.stdout


@pytest.mark.parametrize("way", SOME)
def test_a_check_finds_the_damage_and_sets_it_aside(place: Path, way: str) -> None:
    file, before = place / "bench.sqlite", rows(place / "copy.sqlite")
    assert bench("db", "check", "--workspace", place).exit_code == 0
    statement, why = WAYS[way]
    damage(file, statement)
    damaged = rows(file)
    found = bench("db", "check", "--workspace", place)
    assert found.exit_code == 1
    assert found.stdout.startswith(f"run {KEY} (updown): {why}")
    assert "damaged: 1 run." in found.stdout
    assert rows(file) == damaged, "a check changes nothing"

    moved = bench("db", "check", "--workspace", place, "--set-aside")
    assert moved.exit_code == 0
    [side] = place.glob("bench.damaged-*.sqlite")
    assert str(side) in moved.stdout
    left, aside = rows(file), rows(side)
    for name, rest in left.items():
        assert sorted(rest + [row for row in aside[name] if row not in rest], key=repr) == damaged[name], name
    assert [row for row in aside["runs"] if row not in damaged["runs"]] == []
    assert len(aside["runs"]) == 1
    assert bench("db", "check", "--workspace", place).exit_code == 0
    assert read("table", place)[1] == ""
    assert len(before["runs"]) == len(left["runs"]) + 1


def test_a_repaired_file_is_merged_back(place: Path) -> None:
    before = rows(place / "bench.sqlite")
    damage(place / "bench.sqlite", WAYS["configuration"][0])
    bench("db", "check", "--workspace", place, "--set-aside")
    [side] = place.glob("bench.damaged-*.sqlite")
    damage(side, 'UPDATE runs SET config = (SELECT \'{"arguments": {"d_model": 32}}\')')
    assert bench("db", "merge", side, "--workspace", place).exit_code == 0
    after = rows(place / "bench.sqlite")
    assert {name: len(found) for name, found in after.items()} == {name: len(found) for name, found in before.items()}
    assert bench("db", "check", "--workspace", place).exit_code == 0


def test_what_cannot_be_written_aside_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(place / "bench.sqlite", WAYS["configuration"][0])
    before = rows(place / "bench.sqlite")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("results.store.set_aside.insert_raw", full)
    result = bench("db", "check", "--workspace", place, "--set-aside")
    assert "No space left on device" in str(result.exception)
    assert rows(place / "bench.sqlite") == before
    assert sorted(path.name for path in place.iterdir() if "damaged" in path.name) == []


@pytest.mark.parametrize(
    ("statement", "owner", "left"),
    [
        ("UPDATE datasets SET recorded_at = 'once'", "data set scenes: datasets.recorded_at is not a date", 0),
        ("UPDATE images SET \"references\" = '5' WHERE image_id = 7", "image 7 of scenes: images.references is not", 3),
        ("DELETE FROM runs WHERE key = 'lstm-s0'", "rows without a run in epochs, of run number 2: epochs.run_id", 2),
    ],
)
def test_damage_beside_the_runs(place: Path, statement: str, owner: str, left: int) -> None:
    damage(place / "bench.sqlite", statement)
    assert owner in bench("db", "check", "--workspace", place).stdout
    for name in ("report", "compare") if left else ("report",):  # without a data set nothing is left to compare
        read(name, place)
    assert bench("db", "check", "--workspace", place, "--set-aside").exit_code == 0
    assert bench("db", "check", "--workspace", place).exit_code == 0
    with Store(place / "bench.sqlite") as store, store.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM runs").scalar() == left
