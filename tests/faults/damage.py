"""Ways to damage a store by raw SQL, by name: the statement, and what must be said of the run `updown-s0`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

KEY, OTHER = "updown-s0", "lstm-s0"
_CELLS = "UPDATE runs SET {} WHERE key = 'updown-s0'"
_PARTS = "UPDATE {} SET {} WHERE run_id = (SELECT id FROM runs WHERE key = 'updown-s0')"
WAYS = {
    "configuration": (_CELLS.format("config = '{not json'"), "runs.config is not JSON"),
    "configuration is a list": (_CELLS.format("config = '[1]'"), "runs.config is not a JSON object"),
    "signature": (_CELLS.format("signature = x'00ff'"), "runs.signature is not JSON"),
    "signature is a list": (_CELLS.format("""signature = '["beam"]'"""), "runs.signature is not an object of texts"),
    "date": (_CELLS.format("finished_at = 'yesterday'"), "runs.finished_at is not a date"),
    "no date": (_CELLS.format("finished_at = NULL"), "runs.finished_at is missing"),
    "code": (_CELLS.format("""code = '{"model": 1}'"""), "runs.code is not a record of code"),
    "junk scores": (_PARTS.format("image_scores", "scores = x'6a756e6b'"), "image_scores.scores cannot be unpacked"),
    "zeroed scores": (
        _PARTS.format("image_scores", "scores = zeroblob(length(scores))"),
        "image_scores.scores cannot be unpacked: the ids do not ascend",
    ),
    "a score in words": (_PARTS.format("scores", "value = 'high'") + " AND value IS NOT NULL", "scores.value is not a"),
    "text that is not UTF-8": (
        _PARTS.format("scores", "metric = CAST(x'ff' AS TEXT)") + " AND metric = 'BLEU-4'",
        "scores.metric is not UTF-8",
    ),
}


def damage(file: Path, *statements: str) -> None:
    """Run the statements on a SQLite file, without any check."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, statement
        connection.commit()


def rows(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, as bytes."""
    with closing(sqlite3.connect(file)) as connection:
        connection.text_factory = bytes
        names = [name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in names}  # noqa: S608
