"""Scores and costs that a finished run lacks are named, and put in without touching the others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from results import Quantity, SplitResult, Store, StoreError
from results.runs import reading
from results.runs.gallery import gallery
from results.runs.leaderboard import leaderboard
from results.store.rescoring import (
    add_costs,
    add_held_out_scores,
    add_scores,
    has_run_of,
    missing_metrics,
    runs_without_cost,
    splits_without_held_out,
    stored_captions,
)

METRICS = {"BLEU-4", "CIDEr-D", "METEOR"}
CAPTIONS = {1: "a ball", 2: "a cube", 30: "cones"}


def test_missing_metrics_are_null_or_were_never_stored(store: Store, add: Callable[..., str], make: Any) -> None:
    assert missing_metrics(store, add("blind"), METRICS) == {"test": {"METEOR"}}
    assert missing_metrics(store, add("blind", 2, None), METRICS) == {"test": {"CIDEr-D", "METEOR"}}
    assert missing_metrics(store, add("blind", 3), {"BLEU-4"}) == {}
    store.plan([make.spec("waiting")])
    assert missing_metrics(store, "waiting-1", METRICS) == {}


def test_runs_of_a_model_are_found_by_data_set_whether_finished_or_not(store: Store, make: Any) -> None:
    assert not has_run_of(store, "human", "f" * 16)
    store.plan([make.spec("human")])
    assert has_run_of(store, "human", "f" * 16)
    assert not has_run_of(store, "human", "0" * 16)
    assert not has_run_of(store, "blind", "f" * 16)


def test_splits_without_held_out_scores_are_those_of_finished_runs(
    store: Store, add: Callable[..., str], make: Any
) -> None:
    key = add("blind")
    assert splits_without_held_out(store, key) == {"test"}
    before = reading.one_run(store, key)
    add_held_out_scores(store, key, {"test": {"CIDEr-D": Quantity(0.4), "METEOR": Quantity(None, "it hung")}})
    after = reading.one_run(store, key)
    assert after.held_out.metrics("test") == {"CIDEr-D": Quantity(0.4), "METEOR": Quantity(None, "it hung")}
    assert after.scores == before.scores
    assert splits_without_held_out(store, key) == set()
    store.plan([make.spec("waiting")])
    assert splits_without_held_out(store, "waiting-1") == set()


def test_added_scores_replace_reasons_and_nothing_else(store: Store, add: Callable[..., str]) -> None:
    key = add("blind", 1, None)
    before = reading.one_run(store, key)
    assert stored_captions(store, key) == {"test": CAPTIONS}
    scores = {
        "overall": {"CIDEr-D": Quantity(0.5, low=0.25, high=0.75), "METEOR": Quantity(None, "it hung")},
        "in-domain": {"CIDEr-D": Quantity(0.4), "METEOR": Quantity(None, "it hung")},
    }
    per_image = {"CIDEr-D": dict.fromkeys(CAPTIONS, 0.5)}
    for value in (0.2, 0.3):
        less = {"CIDEr-D": Quantity(value)}
        add_scores(store, key, [SplitResult("test", CAPTIONS, scores, per_image, held_out=less)])
    after = reading.one_run(store, key)
    assert after.scores.metrics("test") == {"BLEU-4": Quantity(0.25), **scores["overall"]}
    assert after.scores.metrics("test", "in-domain") == scores["in-domain"]
    [row] = leaderboard(store)[0].rows
    assert {metric: spread.mean for metric, spread in row.held_out.items()} == {"CIDEr-D": 0.3}
    assert after.costs == before.costs
    assert after.finished_at == before.finished_at
    assert gallery(store, "f" * 16, "test", reading.finished(store))[0].captions[0].cider == 0.5
    assert missing_metrics(store, key, METRICS) == {"test": {"METEOR"}}


def test_influences_come_with_added_scores(store: Store, add: Callable[..., str]) -> None:
    key = add("blind")
    values = {1: 0.125, 2: 0.25, 30: 0.375}
    for _ in range(2):
        scores = {"overall": {"BLEU-4": Quantity(0.25)}}
        add_scores(store, key, [SplitResult("test", CAPTIONS, scores, {}, influences={"BLEU-4": values})])
    with store.reading() as connection:
        runs = reading.read_runs(connection, reading.FINISHED)
        for metric, by_image in (("BLEU-4", values), ("CIDEr-D", {1: 0.5, 2: 1.0, 30: 1.5}), ("METEOR", {})):
            scores = reading.image_scores(connection, runs, "test", metric, of_score=True)
            assert scores.by_image(runs[0].id) == by_image


def test_unknown_and_unfinished_runs_are_refused(store: Store, make: Any) -> None:
    store.plan([make.spec("waiting")])
    assert stored_captions(store, "waiting-1") == {}
    with pytest.raises(StoreError, match="waiting-1 has not finished"):
        add_scores(store, "waiting-1", [])
    with pytest.raises(StoreError, match="waiting-1 has not finished"):
        add_costs(store, "waiting-1", {}, {})
    with pytest.raises(StoreError, match="no run nobody"):
        stored_captions(store, "nobody")


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
    assert replace(after, costs=before.costs, environment=before.environment) == before
