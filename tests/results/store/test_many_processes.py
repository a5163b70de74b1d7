"""Eight processes that open one database at the same moment, each from a place of its own: no row is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sqlalchemy import func, select

from results import Store
from results.store.schema import Caption, DatasetRow, Epoch, Image, RunRow

PROCESSES, RUNS = 8, 4
ROOT = Path(__file__).parents[3]
PROGRAM = f"""
import os, sys, traceback
from results import Store
from tests.results.conftest import Make

def work(own):
    with Store(sys.argv[1]) as store:
        store.record_dataset(Make.dataset())
        specs = [Make.spec(f"model_{{process}}", run) for process in range({PROCESSES}) for run in range({RUNS})]
        store.plan(specs)
        for spec in specs:
            if spec.model == f"model_{{own}}":
                store.begin(spec.key, {{}})
                for epoch in (1, 2, 3):
                    store.record_epoch(spec.key, Make.epoch(epoch))
                store.finish(spec.key, Make.outcome(spec.seed / 10))

children = []
for own in range({PROCESSES}):
    child = os.fork()
    if not child:
        try:
            work(own)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    children.append(child)
sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
"""


def test_eight_processes_write_one_new_database(url: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    runs = PROCESSES * RUNS
    with Store(url, read_only=True) as store, store.reading() as connection:
        status = dict(connection.execute(select(RunRow.status, func.count()).group_by(RunRow.status)).all())
        assert status == {"finished": runs}
        counts = {row: connection.scalar(select(func.count()).select_from(row)) for row in (DatasetRow, Image)}
        assert counts == {DatasetRow: 1, Image: 3}
        epochs = connection.scalars(select(func.count()).select_from(Epoch).group_by(Epoch.run_id)).all()
        assert epochs == [3] * runs
        captions = connection.scalars(select(func.count()).select_from(Caption).group_by(Caption.run_id)).all()
        assert captions == [3] * runs
