"""Damaged databases: a query that meets a row it cannot read names it, and `bench db upgrade` lists all of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.utils.errors import BenchError
from results import Store, StoreError
from results.runs import reading
from results.runs.leaderboard import leaderboard
from tests.harness.conftest import bench, bench_ok
from tests.results.runs.conftest import url

__all__ = ["url"]  # files alone: servers check what they store
_RUN, _PART = "UPDATE runs SET {} WHERE key = 'updown-1'", "UPDATE {} WHERE run_id = 2"
WAYS = {
    _RUN.format("config = '{not json'"): "runs of the run updown-1",
    _RUN.format("finished_at = 'yesterday'"): "runs of the run updown-1",
    _PART.format("image_scores SET scores = x'6a756e6b'"): "image_scores of the run updown-1",
    _PART.format("image_scores SET scores = zeroblob(length(scores))"): "image_scores of the run updown-1",
    _PART.format("scores SET split = CAST(x'ff' AS TEXT)"): "scores of the run updown-1",
    "UPDATE datasets SET recorded_at = 'once'": "datasets of the data set scenes",
}


def damage(store: Store, statement: str) -> None:
    """Run a statement without any check."""
    with store.reading() as connection:
        for words in (
            "COMMIT",
            "PRAGMA foreign_keys = OFF",
            "PRAGMA ignore_check_constraints = ON",
            statement,
            "BEGIN",
        ):
            connection.exec_driver_sql(words)


@pytest.mark.parametrize("statement", WAYS)
def test_a_row_that_cannot_be_read_is_named(
    store: Store, add: Callable[..., str], tmp_path: Path, statement: str
) -> None:
    add("lstm")
    add("updown")
    sound = bench("db", "upgrade", "--workspace", tmp_path)
    assert (sound.exit_code, "nothing is damaged" in sound.stdout) == (0, True)
    damage(store, statement)
    before = (tmp_path / "bench.sqlite").read_bytes()
    read = reading.datasets if "datasets" in statement else leaderboard
    with pytest.raises(StoreError, match=f"{WAYS[statement]} cannot be read") as caught:
        read(store)
    assert "bench db upgrade" in str(caught.value.hint)
    for words in (
        ("upgrade", "--workspace", tmp_path),
        ("merge", tmp_path / "bench.sqlite", "--db", tmp_path / "new.sqlite"),
    ):
        checked = bench("db", *words).exception
        assert isinstance(checked, BenchError)
        assert f"{WAYS[statement]} cannot be read" in str(checked)
        assert "lstm" not in str(checked)
    assert isinstance(bench("report", "--workspace", tmp_path, "--out", tmp_path / "report").exception, StoreError)
    assert not (tmp_path / "report" / "index.html").exists()
    assert (tmp_path / "bench.sqlite").read_bytes() == before


def test_rows_that_hang_on_nothing_are_listed(store: Store, add: Callable[..., str], tmp_path: Path) -> None:
    add("blind")
    damage(store, "INSERT INTO captions VALUES (999, 'test', 1, 'a ball')")
    checked = bench("db", "upgrade", "--workspace", tmp_path).exception
    assert "captions" in str(checked)


def test_a_server_is_checked_too(postgres_url: str, make: Any) -> None:
    with Store(postgres_url) as store:
        store.record_dataset(make.dataset())
        make.run(store, make.outcome())
        bench_ok("db", "upgrade", "--db", postgres_url)
        with store.writing() as connection:
            connection.exec_driver_sql("UPDATE image_scores SET scores = 'junk'::bytea")
        checked = bench("db", "upgrade", "--db", postgres_url).exception
    assert "image_scores of the run blind-1" in str(checked)
