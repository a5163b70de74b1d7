"""The comparison of two commits' trainings: what is worse, what is lost, and what change could be seen."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results import Quantity, SplitResult, Store
from results.comparison.commits import CommitComparison, compare_commits
from results.comparison.comparison import compare_stores
from results.runs.reading import StoredRuns, stored_runs
from results.runs.run import Run
from results.statistics.estimate import Estimate
from results.statistics.power import detectable_from

IMAGES = 200
Train = Callable[..., StoredRuns]


@pytest.fixture
def trained(tmp_path: Path, make: Any) -> Iterator[Train]:
    """`trained(points, ...)`: three seeds of a model that scores so many points more, in a store of their own.

    Keywords but `first_seed` and `deviation` change fields of the runs.
    """
    stores: list[Store] = []

    def train(points: float = 0.0, *, first_seed: int = 0, deviation: float = 1.0, **changes: Any) -> StoredRuns:
        store = Store(tmp_path / f"{len(stores)}.sqlite")
        stores.append(store)
        store.record_dataset(make.dataset())
        for seed in range(first_seed, first_seed + 3):
            by_image = scores(seed, points, deviation)
            overall = {"CIDEr-D": Quantity(float(np.mean(list(by_image.values())))), "BLEU-4": Quantity(0.25)}
            split = SplitResult("test", dict.fromkeys(by_image, ""), {"overall": overall}, {"CIDEr-D": by_image})
            # Both sides have the same keys where only code differs.
            make.run(store, make.outcome(splits=(split,)), "updown", seed % 3)
        runs = [replace(run, **changes) for run in stored_runs(store).runs]
        return StoredRuns(store, runs)

    yield train
    for store in stores:
        store.close()


def scores(seed: int, points: float = 0.0, deviation: float = 1.0) -> dict[int, float]:
    generator = np.random.default_rng(seed)
    shared = np.linspace(20, 180, IMAGES)
    percent = shared + points + deviation * generator.standard_normal() + 5 * generator.standard_normal(IMAGES)
    return {image: score / 100 for image, score in enumerate(percent.tolist(), 1)}


def compared(before: StoredRuns, after: StoredRuns, unfinished: Sequence[Run] = ()) -> CommitComparison:
    return compare_commits("main", before, after, unfinished=unfinished, images={}, metrics=["CIDEr-D"])


def test_the_same_scores_are_identical_and_say_what_could_have_been_seen(trained: Train) -> None:
    [change] = compared(trained(), trained()).changes
    assert (change.identical, change.estimate) == (True, Estimate(0.0, 0.0, 0.0, 1.0, IMAGES))
    values = np.array([list(scores(seed).values()) for seed in range(3)])
    assert change.smallest == pytest.approx(detectable_from(values, values))


@pytest.mark.parametrize(
    ("points", "exit_code", "worse", "better"), [(-20.0, 1, 1, 0), (20.0, 0, 0, 1), (-0.5, 0, 0, 0)]
)
def test_a_significant_fall_fails(trained: Train, points: float, exit_code: int, worse: int, better: int) -> None:
    result = compared(trained(), trained(points, first_seed=3))
    assert (result.exit_code, len(result.worse), len(result.better)) == (exit_code, worse, better)


def test_the_numbers_are_those_of_the_one_comparison(trained: Train) -> None:
    before, after = trained(), trained(-20, first_seed=3)
    [change] = compared(before, after).changes
    only = [
        replace(side, runs=[replace(run, scores=run.scores.only(["CIDEr-D"])) for run in side.runs])
        for side in (before, after)
    ]
    [score] = compare_stores(only[0], only[1], {}, 0).pairs[0].scores
    fall = change.estimate
    assert fall == score.estimate
    assert fall.low is not None
    assert fall.high is not None
    assert fall.value is not None
    assert fall.low < fall.value < fall.high < 0
    assert 100 * fall.value == pytest.approx(-20, abs=3)


def test_more_seed_noise_hides_larger_changes(trained: Train) -> None:
    smallest = [
        compared(trained(deviation=deviation), trained(first_seed=3, deviation=deviation)).changes[0].smallest
        for deviation in (1.0, 10.0)
    ]
    assert smallest[0] is not None
    assert smallest[1] is not None
    assert 3 * smallest[0] < smallest[1]


def test_a_run_that_no_longer_finishes_fails_with_its_reason(trained: Train) -> None:
    before, after = trained(), trained()
    failed = replace(after.runs[2], status="failed", error_class="RuntimeError", reason="shapes do not fit")
    result = compared(before, replace(after, runs=after.runs[:2]), [failed])
    [lost] = result.lost
    assert (lost.model, lost.seed, lost.reason) == ("updown", 2, "failed: RuntimeError: shapes do not fit")
    assert result.exit_code == 1
    assert compared(before, replace(after, runs=[])).exit_code == 1


def test_a_score_that_cannot_be_tested_is_not_judged(trained: Train) -> None:
    result = compared(trained(), trained(fingerprint="0" * 16))
    assert [change.estimate.reason for change in result.untested] == ["scored on other images"]
    assert result.exit_code == 2


def test_changed_conditions_are_compared_and_said(trained: Train) -> None:
    before = trained()
    result = compared(before, trained(signature={**before.runs[0].signature, "beam": "9"}))
    assert len(result.changes) == 1
    assert any("beam" in condition for condition in result.comparison.pairs[0].conditions)
