"""A small copy of a database to publish: what tables and comparisons need, without what is not for others.

Captions of a data set often may not be passed on, and folders of the machine that ran say nothing to others.
"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from sqlalchemy import Connection, delete, func, select, update

from results.errors import StoreError
from results.store.merge import merge
from results.store.schema import (
    Caption,
    Cost,
    DatasetRow,
    HeldOutScore,
    Image,
    ImageInfluences,
    ImageScores,
    RunRow,
    Score,
)
from results.store.store import Store

METRIC: Final = "CIDEr-D"
"""Whose values of every image stay: paired tests of the metric that places go by need them."""
_FOLDERS: Final = re.compile(r"(?<![\w./])/(?:[^\s/:'\"]+/)+|(?<!\w)[A-Za-z]:\\(?:[^\s\\:'\"]+\\)*")
"""The folders of an absolute path within a sentence."""


def publish(source: str | Path, file: Path) -> tuple[int, int]:
    """Write the finished runs of `source` to a new SQLite file, which appears whole or not at all.

    Gives the number of runs, and of unfinished ones that are left out.

    Left out are references, captions with their attention maps, values of single images in other metrics, logs, and of
    every absolute path in configurations and reasons all but its last part.
    """
    part = file.with_name(f".{file.name}.part")
    _remove(part)  # of a process that was killed
    try:
        with Store(part) as copy:
            merged = merge(copy, source)
            with copy.writing() as connection:
                unfinished = connection.execute(delete(RunRow).where(RunRow.status != "finished")).rowcount
                runs = connection.scalar(select(func.count()).select_from(RunRow))
                if not runs:
                    raise StoreError(f"{merged.source} has no finished run to publish", "finish some with bench run")
                _remove_private(connection)
        with closing(sqlite3.connect(part)) as plain:
            plain.execute("PRAGMA journal_mode = DELETE")
            plain.execute("VACUUM")
        part.replace(file)
    finally:
        _remove(part)
    return runs, unfinished


def _remove(part: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        part.with_name(f"{part.name}{suffix}").unlink(missing_ok=True)


def _remove_private(connection: Connection) -> None:
    for packed in (ImageScores, ImageInfluences):
        connection.execute(delete(packed).where(packed.metric != METRIC))
    connection.execute(delete(Caption))
    connection.execute(update(Image).values(references=[]))
    connection.execute(update(DatasetRow).values(root=DatasetRow.name))
    for run in connection.execute(select(RunRow.id, RunRow.config, RunRow.record)).all():
        columns = {
            "config": run.config and _without_folders({**run.config, "files": {}}),
            "record": _without_folders(run.record),
            "checkpoint": None,
            "log_tail": None,
            "progress": None,
        }
        connection.execute(update(RunRow).where(RunRow.id == run.id).values(columns))
    for table in (Score, HeldOutScore, Cost):
        for reason in connection.scalars(select(table.reason).distinct()).all():
            public_reason = _FOLDERS.sub("", reason or "")
            if public_reason != (reason or ""):
                connection.execute(update(table).where(table.reason == reason).values(reason=public_reason))


def _without_folders(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    if isinstance(value, str):
        for kind in (PurePosixPath, PureWindowsPath):
            if kind(value).is_absolute():
                return kind(value).name
    return value
