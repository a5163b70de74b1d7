"""Places of rows over seeds and images, intervals of their means, and why a row has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from results import EpochRecord, Quantity, SplitResult, Store, StoreError
from results.runs.leaderboard import Row, leaderboard
from results.runs.standings import (
    ALONE,
    AT_CHANCE,
    NEAR_ZERO,
    NO_SCORES,
    OTHER_IMAGES,
    STILL_LEARNING,
    TOO_SHORT,
    SignificanceTest,
    Standing,
)
from results.statistics.architecture import NEEDS_SEEDS, architecture_difference, architecture_mean
from results.statistics.significance import holm

IMAGES = range(40)


def models(rows: tuple[Row, ...]) -> list[str]:
    return [row.model for row in rows]


def test_rows_of_several_seeds_get_the_places_of_all_pairs(store: Store, make: Any) -> None:
    """`first` and `second` are alike, `third` is worse on every image by 0.4; others have no place, and say why."""
    for model, mean in (("first", 1.0), ("second", 0.99), ("third", 0.6)):
        for seed in (1, 2, 3):
            finish(store, make, model, seed, level(mean + 0.02 * (seed - 2), 0.01 * seed))
    finish(store, make, "single", 1, level(0.5, 0.0))
    for seed in (1, 2):
        finish(store, make, "bare", seed, {})
        finish(store, make, "other-images", seed, {image + 1: 0.4 for image in IMAGES})
    (group,) = leaderboard(store)
    assert models(group.rows) == ["first", "second", "third", "single", "other-images", "bare"]
    found = {row.model: row.standings.get("CIDEr-D") for row in group.rows}
    first, second, third, single, other = (
        found[name] for name in ("first", "second", "third", "single", "other-images")
    )
    assert first is not None
    assert second is not None
    assert third is not None
    assert [(each.best, each.worst) for each in (first, second, third)] == [(1, 2), (1, 2), (3, 3)]
    arrays = [
        np.array([list(level(mean + 0.02 * (seed - 2), 0.01 * seed).values()) for seed in (1, 2, 3)])
        for mean in (1.0, 0.99, 0.6)
    ]
    p_values = {
        pair: architecture_difference(arrays[pair[0]], arrays[pair[1]]).p or 0.0 for pair in ((0, 1), (0, 2), (1, 2))
    }
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    assert first.against_best is first.against_above is None
    assert second.against_best == second.against_above == pytest.approx(adjusted[0, 1])
    assert (third.against_best, third.against_above) == (pytest.approx(adjusted[0, 2]), pytest.approx(adjusted[1, 2]))
    assert single == Standing(reason=NEEDS_SEEDS)
    assert other == Standing(reason=OTHER_IMAGES)
    assert found["bare"] == Standing(reason=NO_SCORES)
    assert group.test == SignificanceTest("CIDEr-D", 40, 3, 10_000, 2_024, 0.05)
    assert leaderboard(store) == [group], "the same numbers again"


def test_one_row_of_several_seeds_has_nothing_to_be_placed_by(store: Store, make: Any) -> None:
    for seed in (1, 2):
        finish(store, make, "several", seed, level(1.0, 0.01 * seed))
    finish(store, make, "single", 1, level(0.5, 0.0))
    (group,) = leaderboard(store)
    assert [row.standings["CIDEr-D"].reason for row in group.rows] == [ALONE, NEEDS_SEEDS]
    assert group.test is None


def test_other_metrics_sort_and_place_rows_too(store: Store, make: Any) -> None:
    for model, mean in (("a", 1.0), ("b", 0.5)):
        for seed in (1, 2, 3):
            rouge = {image: 2 - each for image, each in level(mean, 0.01 * seed).items()}
            finish(store, make, model, seed, level(mean, 0.01 * seed), rouge=rouge)
    (by_cider,), (by_rouge,) = leaderboard(store), leaderboard(store, "ROUGE-L")
    assert (models(by_cider.rows), models(by_rouge.rows)) == (["a", "b"], ["b", "a"])
    assert by_rouge.metric == "ROUGE-L"
    places = {row.model: {name: each.best for name, each in row.standings.items()} for row in by_cider.rows}
    assert places == {"a": {"CIDEr-D": 1, "ROUGE-L": 2}, "b": {"CIDEr-D": 2, "ROUGE-L": 1}}
    assert {row.model: {name: each.best for name, each in row.standings.items()} for row in by_rouge.rows} == places
    with pytest.raises(StoreError, match="no run has a score of 'WMD'") as refused:
        leaderboard(store, "WMD")
    assert refused.value.hint == "choose of CIDEr-D, ROUGE-L"


def trained(
    store: Store, make: Any, model: str, mean: float, curve: Sequence[float], rates: Sequence[float] | None = None
) -> None:
    """Three seeds of a model with these validations, and these learning rates at the ends of the epochs."""
    ended = enumerate(zip(curve, rates or [1e-4] * len(curve), strict=True), start=1)
    epochs = [replace(make.epoch(number, val_cider=score), learning_rate=rate) for number, (score, rate) in ended]
    stages = [{"epochs": len(curve), "learning_rate": {"annealing": "step"}}]
    for seed in (1, 2, 3):
        config = {"seed": seed, "preset": {"schedule": {"stages": stages}}}
        finish(store, make, model, seed, level(mean + 0.001 * seed, 0.001), epochs=tuple(epochs), config=config)


def test_a_row_that_was_still_learning_has_a_place_only_on_request(store: Store, make: Any) -> None:
    curves = {"flat": (0.2, 0.5, 0.5, 0.5), "rising": (0.1, 0.2, 0.3, 0.4), "short": (0.1, 0.4)}
    for model, curve in curves.items():
        trained(store, make, model, {"flat": 0.5, "rising": 0.9, "short": 0.7}[model], curve)
    (group,), (asked,) = leaderboard(store), leaderboard(store, place_unfinished=True)
    rising, short, flat = group.rows
    assert [row.standings["CIDEr-D"].reason for row in group.rows] == [STILL_LEARNING, TOO_SHORT, ALONE]
    assert (rising.still_learning, short.still_learning, flat.still_learning) == (True, False, False)
    assert [row.learning[1].state for row in group.rows] == ["still learning", "unknown", "finished learning"]
    assert (rising.learning[1].epochs, rising.learning[1].stage) == (4, 0)
    assert [row.standings["CIDEr-D"].best for row in asked.rows] == [1, 2, 3]


def test_a_rate_near_zero_is_not_the_end_of_learning(store: Store, make: Any) -> None:
    curve = (0.2, *[0.5] * 7)
    trained(store, make, "rests", 0.9, curve, rates=(1, 1, 0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-5))
    trained(store, make, "falls", 0.7, curve, rates=(1, 1, 0.5, 0.25, 0.1, 0.05, 0.01, 2e-3))
    (group,), (asked,) = leaderboard(store), leaderboard(store, place_unfinished=True)
    assert [row.training_end for row in group.rows] == ["rate near zero", "finished learning"]
    assert [row.standings["CIDEr-D"].reason for row in group.rows] == [NEAR_ZERO, ALONE]
    assert [row.standings["CIDEr-D"].best for row in asked.rows] == [1, 2]


def test_a_row_at_the_level_of_chance_has_no_place_and_is_no_floor(store: Store, make: Any) -> None:
    trained(store, make, "a", 0.5, (0.2, 0.5, 0.5, 0.5))
    trained(store, make, "lost", 0.005, (0.0, 0.0, 0.01, 0.0))
    trained(store, make, "blind", 0.004, (0.0, 0.0, 0.0))
    for group in (*leaderboard(store), *leaderboard(store, place_unfinished=True)):
        a, lost, blind = group.rows
        assert [row.training_end for row in group.rows] == ["finished learning", "at chance", "at chance"]
        assert lost.standings["CIDEr-D"].reason == AT_CHANCE
        assert a.standings["CIDEr-D"].floors == ()
        assert blind.standings["CIDEr-D"].is_floor
    trained(store, make, "majority", 0.1, (0.1, 0.1, 0.1))
    ((a, *_),) = (group.rows for group in leaderboard(store))
    assert [test.floor for test in a.standings["CIDEr-D"].floors] == ["majority"]


def test_intervals_are_over_seeds_and_images_or_over_images(store: Store, make: Any) -> None:
    seeds = [level(0.5, 0.02), level(0.6, 0.03), level(0.52, 0.01)]
    for seed, by_image in enumerate(seeds, start=1):
        finish(store, make, "several", seed, by_image, low=0.1, high=0.9)
    finish(store, make, "single", 1, seeds[0], low=0.25, high=0.75)
    several, single = (row.scores["CIDEr-D"] for row in leaderboard(store)[0].rows)
    bounds = architecture_mean(np.array([list(seed.values()) for seed in seeds]))
    assert bounds is not None
    assert (several.low, several.high, several.over) == (*bounds, "over seeds and images")
    assert (single.low, single.high, single.over) == (0.25, 0.75, "these weights, over images")


def test_reseeding_tells_how_far_rows_moved(store: Store, make: Any) -> None:
    for model, means in (("a", (0.5, 0.9)), ("b", (0.7, 0.8))):
        for seed, mean in enumerate(means):
            finish(store, make, model, seed, dict.fromkeys(IMAGES, mean))
    finish(store, make, "lone", 1, dict.fromkeys(IMAGES, 0.1), signature={"beam": "9"})
    group, lone = leaderboard(store)
    found = group.reseeding
    assert found is not None
    assert (found.rows, found.seeds, found.ranks) == (2, 2, 1)
    assert found.largest == pytest.approx(0.4)
    assert found.deviation == pytest.approx(np.sqrt((np.var([0.5, 0.9], ddof=1) + np.var([0.7, 0.8], ddof=1)) / 2))
    assert lone.reseeding == found, "of other conditions on the same split, where there is none of the same"


def level(mean: float, wobble: float) -> dict[int, float]:
    """Scores of the images about a mean; each image's own level is in all of them."""
    return {image: mean + image / 100 + wobble * (-1) ** image for image in IMAGES}


def finish(
    store: Store,
    make: Any,
    model: str,
    seed: int,
    by_image: dict[int, float],
    *,
    rouge: dict[int, float] | None = None,
    epochs: tuple[EpochRecord, ...] = (),
    low: float | None = None,
    high: float | None = None,
    **changes: Any,
) -> None:
    """A finished run with these scores of single images, and their mean, if there are any."""
    mean = (
        Quantity(sum(by_image.values()) / len(by_image), low=low, high=high)
        if by_image
        else Quantity(None, "not scored")
    )
    overall, per_image = {"CIDEr-D": mean}, {"CIDEr-D": by_image} if by_image else {}
    if rouge:
        overall["ROUGE-L"], per_image["ROUGE-L"] = Quantity(sum(rouge.values()) / len(rouge)), rouge
    result = SplitResult("test", dict.fromkeys(by_image, "a ball"), {"overall": overall}, per_image)
    spec = make.spec(model, seed, variant=str(changes.get("signature", "")), **changes)
    store.plan([spec])
    for epoch in epochs:
        store.record_epoch(spec.key, epoch)
    store.finish(spec.key, make.outcome(splits=(result,)))
