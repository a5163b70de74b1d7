"""What plans are made of: variances of stored scores, against an independent analysis of them, and durations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import combinations

import numpy as np
import pytest
from sqlalchemy import update

from results import Store
from results.records import Quantity
from results.runs.planning import run_seconds, stored_variances
from results.statistics.architecture import architecture_difference
from results.statistics.significance import Array
from results.store.schema import RunRow
from tests.results.conftest import Make

Add = Callable[..., str]


def drawn(store: Store, model: str, seeds: Sequence[int], **changes: object) -> Array:
    """Runs with random scores of single images, and their means as scores; these, in points (S, 3)."""
    scores = np.random.default_rng(len(seeds) + len(model)).normal(0.8, 0.3, (len(seeds), 3))
    for seed, row in zip(seeds, scores.tolist(), strict=True):
        spec = Make.spec(model, seed, **changes)
        store.plan([spec])
        outcome = Make.outcome()
        split = replace(
            outcome.splits[0],
            per_image={"CIDEr-D": dict(zip((1, 2, 30), row, strict=True))},
            scores={"overall": {"CIDEr-D": Quantity(float(np.mean(row)))}},
        )
        store.finish(spec.key, replace(outcome, splits=(split,)))
    return 100 * scores


def _residuals(scores: Array) -> Array:
    left: Array = scores - scores.mean(axis=0) - scores.mean(axis=1, keepdims=True) + scores.mean()
    return left


def test_deviations_are_pooled_over_models_and_their_pairs(store: Store) -> None:
    models = [drawn(store, "aoanet", (0, 1, 2)), drawn(store, "m2", (0, 1)), drawn(store, "updown", (4, 5))]
    drawn(store, "cgru", (0,))
    found = stored_variances(store, "scenes", "test")
    assert found is not None
    assert (found.degrees, found.images, found.models, found.runs) == (4, 3, 3, 7)
    squares = [((scores.mean(axis=1) - scores.mean()) ** 2).sum() for scores in models]
    left = [float(np.square(_residuals(scores)).sum()) / 2 for scores in models]
    assert found.interaction_deviation == pytest.approx((sum(left) / 4) ** 0.5)
    assert found.seed_deviation == pytest.approx((sum(squares) / 4) ** 0.5)
    by_pair = []
    for one, two in combinations(models, 2):
        residuals = 0.0
        for scores in (one, two):
            residuals += float(np.square(_residuals(scores)).sum()) / ((len(scores) - 1) * 2) / len(scores)
        by_pair.append((one.mean(axis=0) - two.mean(axis=0)).var(ddof=1) - residuals)
    assert found.image_deviation == pytest.approx(max(np.mean(by_pair), 0) ** 0.5)


def test_two_models_have_the_variance_of_their_difference(store: Store) -> None:
    one, two = drawn(store, "aoanet", (0, 1, 2)), drawn(store, "m2", (0, 1, 2))
    found = stored_variances(store, "scenes", "test")
    assert found is not None
    assert found.image_deviation is not None
    error = architecture_difference(one, two).error
    assert error is not None
    assert 2 * found.seed_deviation**2 / 3 + found.image_deviation**2 / 3 == pytest.approx(error**2)


def test_other_conditions_splits_data_and_baselines_are_apart(store: Store) -> None:
    drawn(store, "blind", (0, 1, 2, 3, 4))
    drawn(store, "retrieval", (5, 6, 7, 8), role="reference")
    assert stored_variances(store, "scenes", "test") is None
    expected = drawn(store, "m2", (0, 1, 2))
    drawn(store, "m2", (0, 1), signature={"beam": "1"}, variant="b")
    found = stored_variances(store, "scenes", "test")
    assert found is not None
    assert (found.models, found.runs) == (1, 3)
    assert found.seed_deviation == pytest.approx(expected.mean(axis=1).std(ddof=1))
    assert stored_variances(store, "scenes", "val") is None
    assert stored_variances(store, "coco", "test") is None


def test_runs_without_scores_of_images_say_nothing(store: Store, add: Add) -> None:
    for seed in (0, 1):
        add("m2", seed, None)
    assert stored_variances(store, "scenes", "test") is None


STARTED = datetime(2026, 1, 31, 14, 5)


def took(
    store: Store, model: str, seed: int, seconds: float, attempts: int = 1, cpu: str = "Xeon", **signature: str
) -> None:
    outcome = replace(Make.outcome(), environment={"cpu": cpu})
    key = Make.run(store, outcome, model, seed, signature={"schedule": "quick#1", **signature})
    times = {"started_at": STARTED, "finished_at": STARTED + timedelta(seconds=seconds), "attempts": attempts}
    with store.writing() as connection:
        connection.execute(update(RunRow).where(RunRow.key == key).values(**times))


def test_means_are_over_the_seeds_of_the_same_conditions(store: Store) -> None:
    took(store, "updown", 0, 10.0)
    took(store, "updown", 1, 20.0)
    took(store, "updown", 2, 900.0, attempts=2)
    took(store, "m2", 0, 4.0, schedule="quick#2")
    store.plan([Make.spec("cgru", 0, signature={"schedule": "quick#1"})])
    assert run_seconds(store, "scenes", {"schedule": "quick#1"}) == {"updown": 15.0}
    assert run_seconds(store, "scenes", {"schedule": "quick#2"}) == {"m2": 4.0}
    assert not run_seconds(store, "coco", {"schedule": "quick#1"})


def test_means_are_over_runs_on_one_kind_of_machine(store: Store) -> None:
    took(store, "updown", 0, 10.0)
    took(store, "updown", 1, 20.0, cpu="EPYC")
    took(store, "m2", 0, 4.0, cpu="EPYC")
    conditions = {"schedule": "quick#1"}
    assert run_seconds(store, "scenes", conditions, "Xeon") == {"updown": 10.0}
    assert run_seconds(store, "scenes", conditions, "EPYC") == {"updown": 20.0, "m2": 4.0}
    assert run_seconds(store, "scenes", conditions) == {"updown": 15.0, "m2": 4.0}
