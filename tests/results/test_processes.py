"""Several processes at once lose nothing, and one that is killed leaves nothing half-written."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from results.schema import Base

CELLS_EACH = 6
IMAGES = 200

# Creates the store if it is the first, then runs cells one after the other: argument 1 is the file, 2 its name,
# 3 how many cells (0: until killed).
WRITER = f"""
import itertools, sys
from results import *

file, name, cells = sys.argv[1], sys.argv[2], int(sys.argv[3])
images = tuple(ImageRecord(i, f"{{i}}.png", "test", ("a ball", "a red ball")) for i in range({IMAGES}))
with Store(file) as store:
    store.record_dataset(DatasetRecord("scenes", "fingerprint", "/pictures", {{"test": {IMAGES}}}, images))
    print("open", flush=True)
    for number in range(cells) if cells else itertools.count():
        key = f"{{name}}-{{number}}"
        store.plan([Cell(key, name, "model", number, "controlled", "fingerprint", {{}}, {{}})])
        store.begin(key, {{}})
        for epoch in (1, 2):
            store.record_epoch(key, EpochRecord(0, "xe", "xe", epoch, epoch, 0.1, 1.0, None, 1.0, 1.0))
        captions = {{i: f"a ball of {{key}}" for i in range({IMAGES})}}
        scores = {{"CIDEr-D": {{i: 0.5 for i in captions}}}}
        result = SplitResult("test", captions, {{"overall": {{"CIDEr-D": Quantity(0.5)}}}}, scores)
        store.finish(key, Outcome((result,), {{"seconds": Quantity(1.0)}}, {{}}))
        print(key, flush=True)
"""


def start(file: Path, name: str, cells: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(file), name, str(cells)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check(file: Path) -> dict[str, int]:
    """Every cell is there as a whole or not at all; gives the number of cells by status."""
    connection = sqlite3.connect(file)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return {}
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert set(Base.metadata.tables) <= names, "the tables appear all at once"
        assert connection.execute("SELECT count(*) FROM schema_info").fetchone() == (1,)
        images = connection.execute("SELECT count(*) FROM images").fetchone()[0]
        assert images == IMAGES * connection.execute("SELECT count(*) FROM datasets").fetchone()[0]
        parts = connection.execute(
            """SELECT status, (SELECT count(*) FROM captions WHERE cell_id = cells.id),
                      (SELECT count(*) FROM scores WHERE cell_id = cells.id),
                      (SELECT count(*) FROM image_scores WHERE cell_id = cells.id),
                      (SELECT count(*) FROM costs WHERE cell_id = cells.id),
                      (SELECT count(*) FROM epochs WHERE cell_id = cells.id) FROM cells"""
        ).fetchall()
    finally:
        connection.close()
    found: dict[str, int] = {}
    for status, *counts, epochs in parts:
        assert counts == ([IMAGES, 1, 1, 1] if status == "finished" else [0, 0, 0, 0])
        assert epochs == 2 or status != "finished"
        found[status] = found.get(status, 0) + 1
    return found


def test_four_processes_writing_at_once_lose_no_row(tmp_path: Path) -> None:
    file = tmp_path / "bench.sqlite"
    writers = [start(file, f"model{number}", CELLS_EACH) for number in range(4)]
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0, errors
    assert check(file) == {"finished": 4 * CELLS_EACH}


def test_a_killed_writer_leaves_nothing_half_written(tmp_path: Path) -> None:
    file = tmp_path / "bench.sqlite"
    moments = random.Random(7)
    finished = 0
    for attempt in range(5):
        writer = start(file, f"attempt{attempt}", 0)
        try:
            if attempt:  # the first one may be killed while it creates the tables
                assert writer.stdout is not None
                for _ in range(1 + attempt % 3):
                    assert writer.stdout.readline()
                time.sleep(moments.uniform(0.0, 0.06))
            else:
                while not file.exists() and writer.poll() is None:
                    time.sleep(0.001)
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        now = check(file).get("finished", 0)
        assert now >= finished + attempt % 3, "what was reported as finished stays so"
        finished = now
    last = start(file, "after", 1)
    _, errors = last.communicate(timeout=60)
    assert last.returncode == 0, errors
    assert check(file)["finished"] == finished + 1
