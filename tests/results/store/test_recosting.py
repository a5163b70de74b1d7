"""Costs that were put off are found by their reason, and put in without touching the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from results import Quantity, Store, StoreError
from results.runs import reading
from results.store.rescoring import add_costs, runs_without_cost

LATER = "not yet"


def test_costs_put_off_are_found_and_replaced(store: Store, add: Callable[..., str]) -> None:
    key = add("blind")
    before = reading.one_run(store, key)
    assert runs_without_cost(store, LATER) == set()
    power = {"idle_power": Quantity(None, "no GPU", "W")}
    add_costs(store, key, {"latency_median": Quantity(None, LATER, "s")} | power, {})
    assert runs_without_cost(store, LATER) == {key}
    timed = {"latency_median": Quantity(0.25, unit="s", low=0.2, high=0.5)}
    add_costs(store, key, timed, {"measurement": {"noise": []}})
    after = reading.one_run(store, key)
    assert runs_without_cost(store, LATER) == set()
    assert after.costs == before.costs | timed | power
    assert after.environment == {**before.environment, "measurement": {"noise": []}}
    unchanged = replace(after, costs=before.costs, environment=before.environment)
    assert unchanged == before


def test_unfinished_runs_and_values_not_finite_are_refused(store: Store, add: Callable[..., str], make: Any) -> None:
    store.plan([make.spec("waiting")])
    with pytest.raises(StoreError, match="waiting-1 has not finished"):
        add_costs(store, "waiting-1", {}, {})
    with pytest.raises(StoreError, match="latency_median is nan"):
        add_costs(store, add("blind"), {"latency_median": Quantity(float("nan"))}, {})
