"""A thousand runs over 64 simulated slots: rows lost, errors of the database, and what scheduling costs a run.

    pytest benchmarks/test_scheduling.py -n 0 -s

Each slot is a thread with a connection of its own to one store, as each worker has; training is a sleep. What is left
is what a run costs beside its training: its lock, the record of its start, three epochs, its captions and scores.
Both databases are written to from all slots at once.
"""

import os
import threading
import time
from collections import Counter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

import pytest

from harness.benchmark.execute import LOCK
from harness.utils.workspace import Workspace, locked
from results import DatasetRecord, EpochRecord, ImageRecord, Outcome, Quantity, SplitResult, Store
from tests.harness.benchmark.small_runs import make_spec
from tests.results.conftest import postgres, postgres_database, postgres_url

T = TypeVar("T")
__all__ = ["postgres", "postgres_database", "postgres_url"]
RUNS, EPOCHS, IMAGES = 1000, 3, 200
SLOT_S = float(os.environ.get("BENCH_SLOT_S", "0.1"))
"""Training of a run divided by the slots: the time between two ends of runs, if nothing else took any."""
MOST_OVERHEAD_S = 5.0
"""Of a run, on two shared cores with 64 slots at work; trainings of minutes do not notice it."""


@pytest.mark.parametrize(("database", "slots"), [("postgresql", 64), ("sqlite", 64)])
def test_a_thousand_runs(request: pytest.FixtureRequest, tmp_path: Path, database: str, slots: int) -> None:
    training = SLOT_S * slots
    workspace = Workspace(tmp_path, request.getfixturevalue("postgres_url") if database == "postgresql" else None)
    images = tuple(ImageRecord(number, f"{number}.png", "test", ("a ball",)) for number in range(IMAGES))
    specs = [make_spec(f"m{number}-s0", f"m{number % 200}", seed=number // 200) for number in range(RUNS)]
    with Store(workspace.database) as store:
        store.record_dataset(DatasetRecord("scenes", "f" * 16, "/pictures", {"test": IMAGES}, images))
        store.plan(specs)
    waiting, guard = [spec.key for spec in specs], threading.Lock()
    problems: SimpleQueue[str] = SimpleQueue()
    ended: SimpleQueue[float] = SimpleQueue()

    def work() -> None:
        with Store(workspace.database) as store:
            while True:
                with guard:
                    key = waiting.pop(0) if waiting else None
                if key is None:
                    return
                started = time.monotonic()
                try:
                    with locked(workspace.run_folder(key) / LOCK, _never):
                        _execute(store, key, training)
                except Exception as error:
                    problems.put(f"{type(error).__name__}: {error}")
                ended.put(time.monotonic() - started)

    started = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(slots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - started
    with Store(workspace.database) as store, store.reading() as connection:
        statuses = Counter(connection.exec_driver_sql("select status from runs").scalars())
        epochs = connection.exec_driver_sql("select count(*) from epochs").scalar()
    said, each = _all(problems), sorted(_all(ended))
    overhead, ideal = took * slots / RUNS - training, RUNS * SLOT_S
    print(
        f"\n{RUNS} runs over {slots} slots, {database}, in {took:.1f} s, at best {ideal:.1f} s: {overhead:.2f} s a run "
        f"of a slot's time, {1000 * took / RUNS:.0f} ms a run of the command's; a run took {each[RUNS // 2]:.2f} s in "
        f"the median, {each[-1]:.2f} s at most; rows {dict(statuses)}, errors {len(said)}"
    )
    assert not said, said[0]
    assert statuses == {"finished": RUNS}
    assert epochs == RUNS * EPOCHS
    assert overhead < MOST_OVERHEAD_S


def _never() -> None:
    raise AssertionError("another slot executes the same run")


def _execute(store: Store, key: str, training: float) -> None:
    store.begin(key, {"device": "none"})
    for epoch in range(EPOCHS):
        time.sleep(training / EPOCHS)
        store.record_epoch(key, EpochRecord(0, "xe", "cross_entropy", epoch, epoch, 1e-3, 2.0, 0.5, 1.0, 100.0))
    captions = dict.fromkeys(range(IMAGES), "a red ball on a table")
    per_image = {metric: dict.fromkeys(range(IMAGES), 0.5) for metric in ("CIDEr-D", "ROUGE-L", "METEOR")}
    scores = {"overall": {metric: Quantity(0.5) for metric in per_image}}
    store.finish(key, Outcome((SplitResult("test", captions, scores, per_image),), {"parameters": Quantity(1e6)}, {}))


def _all(queue: SimpleQueue[T]) -> list[T]:
    found = []
    while True:
        try:
            found.append(queue.get_nowait())
        except Empty:
            return found
