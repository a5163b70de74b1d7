"""Several processes at once lose nothing, and one that is killed leaves nothing half-written."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from sqlalchemy import Connection, create_engine, func, inspect, select

from results import Store
from results.store.schema import (
    RELEASE,
    REVISION,
    Base,
    Caption,
    Cost,
    DatasetRow,
    Epoch,
    Image,
    ImageScores,
    RunRow,
    Score,
)

RUNS_EACH = 2
IMAGES = 100
WRITERS = 8
KILLS = 30

# A writer creates the store if it is the first, then writes runs one after the other, without end where `runs` is 0.
# Writers are forked from a process that has imported and compiled everything: Python starts once, not thirty times.
FORKING = f"""
import contextlib, io, itertools, os, sys, traceback
import psycopg
import sqlalchemy.dialects.postgresql.psycopg
from results import *

def write(url, name, runs, names=()):
    images = tuple(ImageRecord(i, f"{{i}}.png", "test", ("a ball", "a red ball")) for i in range({IMAGES}))
    with Store(url) as store:
        store.record_dataset(DatasetRecord("scenes", "fingerprint", "/pictures", {{"test": {IMAGES}}}, images))
        for number in range(runs) if runs else itertools.count():
            key = f"{{name}}-{{number}}"
            store.plan([  # those of the others too: all of them plan everything at the same moment
                RunSpec(f"{{each}}-{{number}}", each, "model", number, "controlled", "fingerprint", {{}}, {{}})
                for each in names or (name,)
            ])
            store.begin(key, {{}})
            for epoch in (1, 2):
                store.record_epoch(key, EpochRecord(0, "xe", "xe", epoch, epoch, 0.1, 1.0, None, 1.0, 1.0))
            captions = {{i: f"a ball of {{key}}" for i in range({IMAGES})}}
            scores = {{"CIDEr-D": {{i: 0.5 for i in captions}}}}
            result = SplitResult("test", captions, {{"overall": {{"CIDEr-D": Quantity(0.5)}}}}, scores)
            store.finish(key, Outcome((result,), {{"seconds": Quantity(1.0)}}, {{}}))
            sys.stdout.write(f"{{key}}\\n")  # at once: a kill between text and line end would join two lines
            sys.stdout.flush()

def fork(name, runs, names=()):
    child = os.fork()
    if child:
        return child
    try:
        write(sys.argv[1], name, runs, names)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)

with contextlib.redirect_stdout(io.StringIO()):
    write("sqlite://", "warm", 1)
"""

# All at once; fails where one of them does.
TOGETHER = (
    FORKING
    + f"""
names = [f"model{{number}}" for number in range({WRITERS})]
children = [fork(name, {RUNS_EACH}, names) for name in names]
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""
)

# One for each line, a name; it goes on until it is killed.
ONE_BY_ONE = (
    FORKING
    + """
for line in sys.stdin:
    child = fork(line.strip(), 0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("killed", flush=True)
"""
)


def start(program: str, url: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", program, url], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def check(url: str) -> dict[str, int]:
    """Every run is there as a whole or not at all; gives the number of runs by status."""
    engine = create_engine(url if "://" in url else f"sqlite:///{url}")
    try:
        with engine.connect() as connection:
            return _check(connection)
    finally:
        engine.dispose()


def _check(connection: Connection) -> dict[str, int]:
    if connection.dialect.name == "sqlite":
        assert connection.exec_driver_sql("PRAGMA integrity_check").all() == [("ok",)]
        assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
    names = set(inspect(connection).get_table_names())
    if not names:
        return {}
    assert {*Base.metadata.tables, REVISION.name} <= names, "the tables appear all at once"
    assert connection.scalars(select(REVISION.c.version_num)).all() == [RELEASE]

    def count(table: type[Base]) -> int:
        return connection.scalar(select(func.count()).select_from(table)) or 0

    assert count(Image) == IMAGES * count(DatasetRow)
    parts = [
        select(func.count()).select_from(table).where(table.run_id == RunRow.id).scalar_subquery()
        for table in (Caption, Score, ImageScores, Cost, Epoch)
    ]
    found: dict[str, int] = {}
    for status, *counts, epochs in connection.execute(select(RunRow.status, *parts)):
        assert counts == ([IMAGES, 1, 1, 1] if status == "finished" else [0, 0, 0, 0])
        assert epochs == 2 or status != "finished"
        found[status] = found.get(status, 0) + 1
    return found


def test_eight_processes_writing_at_once_lose_no_row(url: str) -> None:
    writers = start(TOGETHER, url)
    _, errors = writers.communicate(timeout=600)
    assert writers.returncode == 0, errors
    assert check(url) == {"finished": WRITERS * RUNS_EACH}


def test_writers_killed_at_random_leave_nothing_half_written(tmp_path: Path) -> None:
    file = tmp_path / "bench.sqlite"
    moments = random.Random(7)
    finished = 0
    found: set[str] = set()
    with start(ONE_BY_ONE, str(file)) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for attempt in range(KILLS):
            if attempt % 5 == 0:  # a new file: half of these are killed while they create its tables
                for leftover in tmp_path.iterdir():
                    leftover.unlink()
                finished = 0
            program.stdin.write(f"attempt{attempt}\n")
            program.stdin.flush()
            writer = int(program.stdout.readline())
            reported = 0
            if attempt % 2:  # after a run, however slow the machine is; the others mostly before one is finished
                program.stdout.readline()
                reported = 1
            time.sleep(moments.uniform(0.0, 0.1))
            os.kill(writer, signal.SIGKILL)
            reported += len(list(iter(program.stdout.readline, "killed\n")))
            runs = check(str(file))
            assert runs.get("finished", 0) >= finished + reported, "what was reported as finished stays so"
            finished = runs.get("finished", 0)
            found |= set(runs)
    assert {"running", "finished"} <= found, "some were killed within a run, some after one"
    with Store(file) as store, store.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(RunRow)) == sum(runs.values())
