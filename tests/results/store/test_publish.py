"""A published copy has the results, and nothing of the data set's captions or of the machine's folders."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from results import Quantity, Store, StoreError
from results.runs.leaderboard import leaderboard
from results.store.publish import publish


def names_of_images(file: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(file)) as plain:
        return {(name, metric) for name, metric in plain.execute("SELECT model, metric FROM runs, image_scores")}


def test_results_stay_and_captions_paths_and_unfinished_runs_go(
    store: Store, add: Callable[..., str], make: Any, tmp_path: Path
) -> None:
    config = {"weights": "/secret/folder/weights.pth", "windows": ["C:\\secret\\a.json"], "kept": "relative/name"}
    for seed in (1, 2):
        add("updown", seed, 0.5 + seed / 10, config=config)
    store.plan([make.spec("aoanet")])
    make.run(store, make.outcome(0.1, (make.attention(),), checkpoint="/secret/folder/best.safetensors"), "blind")
    done = publish(store.url.render_as_string(hide_password=False), tmp_path / "out.sqlite")
    assert (done.runs, done.unfinished) == (3, 1)
    assert done.bytes == (tmp_path / "out.sqlite").stat().st_size
    raw = (tmp_path / "out.sqlite").read_bytes()
    for gone in (b"secret", b"a red ball", b"a cube", b"/pictures", b"aoanet"):
        assert gone not in raw
    for kept in (b"weights.pth", b"a.json", b"relative/name"):
        assert kept in raw
    with Store(tmp_path / "out.sqlite", read_only=True) as copy:
        assert [(row.model, row.scores["CIDEr-D"].mean) for group in leaderboard(copy) for row in group.rows] == [
            (row.model, row.scores["CIDEr-D"].mean) for group in leaderboard(store) for row in group.rows
        ]


@pytest.mark.parametrize(
    ("reason", "published"),
    [
        ("/secret/runs/m2-s3/run.json is missing: run it again", "run.json is missing: run it again"),
        ("no weights in '/secret/runs/m2'", "no weights in 'm2'"),
        (r"C:\secret\a.json cannot be read", "a.json cannot be read"),
        ("images/s and and/or, 1/2 of ./relative/name", "images/s and and/or, 1/2 of ./relative/name"),
    ],
)
def test_reasons_name_no_folder(store: Store, make: Any, tmp_path: Path, reason: str, published: str) -> None:
    costs = {"latency_median": Quantity(None, reason, "s")}
    make.run(store, make.outcome(costs=costs), "m2")
    publish(store.url.render_as_string(hide_password=False), tmp_path / "out.sqlite")
    with Store(tmp_path / "out.sqlite", read_only=True) as copy:
        ((row,),) = (group.rows for group in leaderboard(copy))
    assert row.costs["latency_median"].reason == published


def test_values_of_images_stay_for_one_metric(url: str, add: Callable[..., str], tmp_path: Path) -> None:
    add("updown")
    assert publish(url, tmp_path / "one.sqlite").runs == 1
    assert names_of_images(tmp_path / "one.sqlite") == {("updown", "CIDEr-D")}


def test_nothing_is_published_where_nothing_is_finished(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no finished run to publish"):
        publish(store.url.render_as_string(hide_password=False), tmp_path / "out.sqlite")
    assert not (tmp_path / "out.sqlite").exists()


def test_what_a_killed_process_left_is_not_taken_up(url: str, add: Callable[..., str], tmp_path: Path) -> None:
    add("updown")
    (tmp_path / ".out.sqlite.part").write_bytes(b"half a file")
    assert publish(url, tmp_path / "out.sqlite").runs == 1
    assert not (tmp_path / ".out.sqlite.part").exists()
