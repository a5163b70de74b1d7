"""Stored variances over seeds and images, against an independent analysis of the same scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from results import Store
from results.runs.planning import stored_variances
from results.statistics.architecture import architecture_difference
from results.statistics.significance import Array
from tests.results.conftest import Make

Add = Callable[..., str]


def drawn(store: Store, model: str, seeds: Sequence[int], **changes: object) -> Array:
    """Runs with random scores of single images; these, in points (S, 3)."""
    scores = np.random.default_rng(len(model)).normal(0.8, 0.3, (len(seeds), 3))
    for seed, row in zip(seeds, scores.tolist(), strict=True):
        spec = Make.spec(model, seed, **changes)
        store.plan([spec])
        outcome = Make.outcome()
        split = replace(outcome.splits[0], per_image={"CIDEr-D": dict(zip((1, 2, 30), row, strict=True))})
        store.finish(spec.key, replace(outcome, splits=(split,)))
    return 100 * scores


def test_deviations_are_pooled_over_models_and_their_pairs(store: Store) -> None:
    models = [drawn(store, "aoanet", (0, 1, 2)), drawn(store, "m2", (0, 1)), drawn(store, "updown", (4, 5))]
    drawn(store, "cgru", (0,))
    found = stored_variances(store, "scenes", "test")
    assert found is not None
    assert (found.degrees, found.images, found.models, found.runs) == (4, 3, 3, 7)
    squares = [((scores.mean(axis=1) - scores.mean()) ** 2).sum() for scores in models]
    assert found.seed_deviation == pytest.approx((sum(squares) / 4) ** 0.5)
    by_pair = []
    for one, two in combinations(models, 2):
        residuals = 0.0
        for scores in (one, two):
            left = scores - scores.mean(axis=0) - scores.mean(axis=1, keepdims=True) + scores.mean()
            residuals += float((left**2).sum()) / ((len(scores) - 1) * 2) / len(scores)
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


def test_one_model_has_seeds_but_no_differences(store: Store) -> None:
    drawn(store, "m2", (0, 1))
    found = stored_variances(store, "f" * 16, "test")
    assert found is not None
    assert found.image_deviation is None


def test_other_conditions_splits_data_and_floors_are_apart(store: Store) -> None:
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


def test_of_equals_the_newest_conditions_count(store: Store) -> None:
    drawn(store, "aoanet", (0, 1))
    expected = drawn(store, "m2", (0, 1), signature={"beam": "1"})
    found = stored_variances(store, "scenes", "test")
    assert found is not None
    assert found.seed_deviation == pytest.approx(expected.mean(axis=1).std(ddof=1))


def test_runs_without_scores_of_images_say_nothing(store: Store, add: Add) -> None:
    for seed in (0, 1):
        add("m2", seed, None)
    assert stored_variances(store, "scenes", "test") is None
