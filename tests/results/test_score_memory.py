"""The scores of single images are read when they are tested, one metric of one table at a time."""

import tracemalloc
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from results.comparison.comparison import compare_models, compare_stores
from results.runs.leaderboard import leaderboard
from results.runs.reading import stored_runs
from results.statistics.score_matrix import ScoreMatrix
from results.store.store import Store
from tests.results.many_scores import METRICS, fill_scores

MODELS, SEEDS, IMAGES = 6, 3, 1_000
ONE_METRIC = 8 * MODELS * SEEDS * IMAGES
"""Bytes."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("store") / "bench.sqlite"
    fill_scores(file, models=MODELS, seeds=SEEDS, images=IMAGES)
    return file


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    with Store(file, read_only=True) as store:
        yield store


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many arrays of scores there are, itself included, whenever one is made."""
    arrays: list[weakref.ref[np.ndarray]] = []
    counts: list[int] = []
    from_runs = ScoreMatrix.from_runs

    def counted(runs: Sequence[int], numbers: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> ScoreMatrix:
        matrix = from_runs(runs, numbers)
        arrays.append(weakref.ref(matrix.values))
        counts.append(sum(array() is not None for array in arrays))
        return matrix

    monkeypatch.setattr(ScoreMatrix, "from_runs", counted)
    return counts


def test_a_leaderboard_holds_one_metric_at_once(store: Store, alive: list[int]) -> None:
    [group] = leaderboard(store)
    assert len(group.rows) == MODELS
    assert alive == [1] * len(METRICS)


def test_a_comparison_holds_one_metric_of_both_sides_at_once(store: Store, alive: list[int]) -> None:
    runs = stored_runs(store)
    assert len(compare_stores(runs, runs, {}, 5).pairs) == MODELS
    assert max(alive) == 2
    sides = [stored_runs(store, [f"model_{model}-s{seed}" for seed in range(SEEDS)]) for model in (0, 1)]
    assert len(compare_models(*sides, {}, 5).pairs) == 1
    assert max(alive) == 2


def test_further_metrics_take_no_more_memory(store: Store) -> None:
    leaderboard(store)  # what is imported and kept the first time
    one, all_metrics = (_traced_peak(store, every_metric=every_metric) for every_metric in (False, True))
    assert all_metrics < one + ONE_METRIC


def _traced_peak(store: Store, *, every_metric: bool) -> int:
    tracemalloc.start()
    try:
        leaderboard(store, every_metric=every_metric)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
