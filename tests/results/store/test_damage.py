"""Damage of rows on every database: found, left out by queries, and set aside in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from results.errors import StoreError
from results.runs import fetch
from results.store.information import describe
from results.store.intact import read_intact
from results.store.scan import scan
from results.store.set_aside import set_aside
from results.store.store import Store
from results.store.upgrade import upgrade

# What a server, too, lets anybody write: JSON of another shape, dates without end, junk.
WAYS = {
    "UPDATE cells SET config = '[1]' WHERE key = '{key}'": "cells.config is not a JSON object",
    """UPDATE cells SET signature = '["7"]' WHERE key = '{key}'""": "cells.signature is not an object of texts",
    "UPDATE cells SET finished_at = 'infinity' WHERE key = '{key}'": "cells.finished_at is not a date",
    "UPDATE image_scores SET scores = {junk} WHERE cell_id IN (SELECT id FROM cells WHERE key = '{key}')":
        "image_scores.scores cannot be unpacked: 4 bytes are no ids and scores",
    "UPDATE attention_maps SET weights = {junk} WHERE cell_id IN (SELECT id FROM cells WHERE key = '{key}')":
        "attention_maps.weights cannot be unpacked: 4 bytes are no matrix",
    "UPDATE costs SET value = 9e999 WHERE value IS NOT NULL AND cell_id = (SELECT id FROM cells WHERE key = '{key}')":
        "costs.value is inf",
}  # fmt: skip


def everything(store: Store) -> list[str]:
    """Models of the leaderboard, after all else was read too."""
    for row in fetch.costs_table(store):
        fetch.run_detail(store, row.key)
        fetch.attention_maps(store, row.key, "test")
    return sorted(row.model for group in fetch.leaderboard(store) for row in group.rows)


@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_run_is_found_left_out_and_set_aside(
    store: Store, add: Callable[..., str], make: type, tmp_path: Path, way: str
) -> None:
    add("lstm")
    key = add("updown")
    store.finish(key, make.outcome(attention=(make.attention(),)))
    with store.reading() as connection:
        server = connection.dialect.name == "postgresql"
        assert not scan(connection).left_out
    statement = way.format(key=key, junk="'\\x6a756e6b'::bytea" if server else "x'6a756e6b'")
    with store.writing() as connection:
        connection.exec_driver_sql(statement.replace("9e999", "'infinity'" if server else "9e999"))
    if "costs" not in way:  # a number is read, whatever it is
        assert read_intact(store, lambda: everything(store)) == ["lstm"]
        assert [str(owner) for owner in store.left_out.owners] == [f"run {key} (updown)"]
    found, side = set_aside(store, tmp_path)
    assert side is not None
    assert str(found.left_out.damage[0]).startswith(f"run {key} (updown): {WAYS[way]}")
    assert everything(store) == ["lstm"]
    with store.reading() as connection:
        assert not scan(connection).left_out
    with closing(sqlite3.connect(side)) as file:
        names = ("cells", "captions", "scores", "image_scores", "costs", "attention_maps", "datasets")
        counts = [file.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names]  # noqa: S608
    assert counts == [1, 3, 4, 1, 2, 1, 1]
    store.plan([make.spec("updown")])
    store.finish(key, make.outcome())
    assert everything(store) == ["lstm", "updown"], "a run that was set aside can be made anew"


@pytest.mark.parametrize("statement", ["DROP TABLE costs", "ALTER TABLE cells DROP COLUMN config"])
def test_queries_of_what_is_missing_say_where_to_look(url: str, statement: str) -> None:
    with Store(url) as store:
        engine = create_engine(store.url)
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)
        engine.dispose()
        with pytest.raises(StoreError, match="is damaged: ") as caught:
            fetch.costs_table(store)
        assert caught.value.hint == "`bench db info` lists what is missing"
        assert describe(store.url).missing
        with pytest.raises(StoreError, match="is damaged: it has no"):
            upgrade(store.url)


def test_what_fails_for_another_reason_fails_once(store: Store, add: Callable[..., str]) -> None:
    add("lstm")
    calls = []

    def read() -> None:
        calls.append(1)
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        read_intact(store, read)
    assert len(calls) == 1


def test_rows_of_a_whole_run_are_checked_in_full(store: Store, add: Callable[..., str], make: type) -> None:
    key = add("lstm")
    store.record_epoch(key, make.epoch(1))
    outcome = make.outcome(attention=(make.attention(),))
    split = replace(outcome.splits[0], influences={"BLEU-4": {1: 0.5, 2: 0.25, 30: 0.0}})
    store.finish(key, replace(outcome, splits=(split,)))
    with store.reading() as connection:
        found = scan(connection)
    assert not found.left_out
    assert [name for name, count in found.rows.items() if not count] == ["held_out_scores"]
