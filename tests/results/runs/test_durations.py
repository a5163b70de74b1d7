"""How long stored runs took: of the asked conditions alone, and not of runs that were interrupted."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import update

from results import Store
from results.runs.planning import Duration, run_durations
from results.store.schema import RunRow
from tests.results.conftest import Make

STARTED = datetime(2026, 1, 31, 14, 5)


def took(store: Store, model: str, seed: int, seconds: float, attempts: int = 1, **signature: str) -> None:
    spec = Make.spec(model, seed, signature={"schedule": "quick#1", **signature})
    store.plan([spec])
    store.finish(spec.key, Make.outcome())
    times = {"started_at": STARTED, "finished_at": STARTED + timedelta(seconds=seconds), "attempts": attempts}
    with store.writing() as connection:
        connection.execute(update(RunRow).where(RunRow.key == spec.key).values(**times))


def test_means_are_over_the_seeds_of_the_same_conditions(store: Store) -> None:
    took(store, "updown", 0, 10.0)
    took(store, "updown", 1, 20.0)
    took(store, "updown", 2, 900.0, attempts=2)
    took(store, "m2", 0, 4.0, schedule="quick#2")
    store.plan([Make.spec("cgru", 0, signature={"schedule": "quick#1"})])
    assert run_durations(store, "scenes", {"schedule": "quick#1"}) == {"updown": Duration(15.0, 2)}
    assert run_durations(store, "scenes", {"schedule": "quick#2"}) == {"m2": Duration(4.0, 1)}
    assert not run_durations(store, "coco", {"schedule": "quick#1"})
