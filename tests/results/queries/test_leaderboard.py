"""Ranking: only what was scored under the same conditions shares a group, and nothing is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from results import EpochRecord, Quantity, SplitResult, Store, StoreError
from results.queries import fetch
from results.queries.standings import ALONE, NO_SCORES, OTHER_IMAGES, STILL_LEARNING, TOO_SHORT
from results.queries.views import Row, SignificanceTest, Spread, Standing
from results.statistics.architecture import NEEDS_SEEDS, architecture_difference, architecture_mean
from results.statistics.significance import holm

Add = Callable[..., str]
IMAGES = range(40)


def models(rows: tuple[Row, ...]) -> list[str]:
    return [row.model for row in rows]


def test_an_empty_store_has_no_groups(store: Store) -> None:
    assert fetch.leaderboard(store) == []


def test_rows_rank_by_mean_cider_and_spread_over_seeds(store: Store, add: Add) -> None:
    for seed, cider in ((3, 0.75), (1, 0.25), (2, 0.5)):
        add("low", seed, cider)
    add("high", 1, 1.25)
    (group,) = fetch.leaderboard(store)
    assert (group.dataset, group.fingerprint, group.split, group.track) == ("scenes", "f" * 16, "test", "controlled")
    assert list(group.signature) == ["nrefs", "split", "beam"]
    assert group.separating == ()
    assert models(group.rows) == ["high", "low"]
    high, low = group.rows
    assert high.scores["CIDEr-D"] == Spread(1.25, None, 1)
    assert (low.scores["CIDEr-D"].mean, low.scores["CIDEr-D"].sd, low.scores["CIDEr-D"].n) == (0.5, 0.25, 3)
    assert (low.seeds, low.keys) == ((1, 2, 3), ("low-1", "low-2", "low-3"))
    assert low.scores["BLEU-4"] == Spread(0.25, 0.0, 3)
    assert low.domains["in-domain"]["CIDEr-D"] == Spread(0.5, 0.25, 3)
    assert low.domains["out-domain"]["CIDEr-D"] == Spread(None, None, 0, "one image only")
    assert list(low.domains) == ["in-domain", "out-domain"]
    assert low.costs == {"parameters": Quantity(1000.0, unit="1"), "energy": Quantity(None, "no meter", "J")}
    assert low.code_version == "0.1.0"
    assert low.differs == {}


def test_seeds_without_a_score_are_counted_out_with_their_reason(store: Store, add: Add) -> None:
    add("some", 1, 0.5)
    add("some", 2, None)
    add("none", 1, None)
    add("absent", 1, None)
    (group,) = fetch.leaderboard(store)
    assert models(group.rows) == ["some", "absent", "none"], "rows without a score come last, by name"
    assert group.rows[0].scores["CIDEr-D"] == Spread(0.5, None, 1, "seed 2: no Java found")
    assert group.rows[2].scores["CIDEr-D"] == Spread(None, None, 0, "no Java found")


def test_a_metric_that_one_seed_lacks_altogether(store: Store, add: Add, make: Any) -> None:
    add("blind", 1)
    add("blind", 2)
    lone = SplitResult("test", {1: "a"}, {"overall": {"SPICE": Quantity(0.125), "CIDEr-D": Quantity(0.5)}}, {})
    store.finish("blind-2", make.outcome(splits=(lone,), costs={"seconds": Quantity(4.0, unit="s")}))
    (row,) = fetch.leaderboard(store)[0].rows
    assert row.scores["SPICE"] == Spread(0.125, None, 1, "seed 1: not recorded")
    assert row.scores["BLEU-4"] == Spread(0.25, None, 1, "seed 2: not recorded")
    assert row.domains["in-domain"]["CIDEr-D"] == Spread(0.5, None, 1, "seed 2: not recorded")
    assert row.costs["seconds"] == Quantity(4.0, unit="s")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"signature": {"nrefs": "5", "split": "scenes-test", "beam": "5"}}, "beam"),
        ({"signature": {"nrefs": "5", "split": "scenes-test"}}, "beam"),
        ({"signature": {"nrefs": "5", "split": "scenes-test", "beam": "3", "feat": "x"}}, "feat"),
        ({"track": "paper"}, "track"),
        ({"dataset": "e" * 16}, "data"),
    ],
)
def test_different_conditions_are_different_groups(
    store: Store, add: Add, make: Any, changes: dict[str, Any], field: str
) -> None:
    store.record_dataset(make.dataset("e" * 16))
    add("blind", 1, 0.5)
    add("rival", 1, 0.6)
    add("blind", 1, 0.7, variant="-other", **changes)
    first, second = fetch.leaderboard(store)
    assert (models(first.rows), models(second.rows)) == (["rival", "blind"], ["blind"])
    assert first.separating == second.separating == (field,)
    assert all(row.seeds == (1,) for row in (*first.rows, *second.rows))


def test_the_order_of_a_signature_separates_nothing(store: Store, add: Add) -> None:
    add("blind")
    add("rival", signature={"beam": "3", "split": "scenes-test", "nrefs": "5"})
    assert len(fetch.leaderboard(store)) == 1


def test_each_split_is_its_own_group(store: Store, make: Any) -> None:
    test = make.outcome().splits[0]
    store.plan([make.spec()])
    store.finish("blind-1", make.outcome(splits=(test, replace(test, split="nocaps"))))
    groups = fetch.leaderboard(store)
    assert [(group.split, group.separating) for group in groups] == [("test", ()), ("nocaps", ())]


def test_variants_of_one_model_are_rows_of_their_own(store: Store, add: Add) -> None:
    config = {"seed": 1, "training": {"seed": 1, "epochs": 3}, "model": {"d_model": 256}}
    add("blind", 1, 0.5)
    add("blind", 2, 0.5)
    add("blind", 1, 0.25, variant="-wide", config=config)
    add("blind", 1, 0.125, variant="-new", code_version="0.2.0")
    add("rival", 1, 0.1)
    (group,) = fetch.leaderboard(store)
    assert [(row.model, row.seeds) for row in group.rows] == [
        ("blind", (1, 2)),
        ("blind", (1,)),
        ("blind", (1,)),
        ("rival", (1,)),
    ]
    assert [row.differs for row in group.rows] == [
        {"code_version": "0.1.0", "model.d_model": None},
        {"code_version": "0.1.0", "model.d_model": "256"},
        {"code_version": "0.2.0", "model.d_model": None},
        {},
    ]


def test_references_are_beside_every_group_of_data_and_split(store: Store, add: Add, make: Any) -> None:
    store.record_dataset(make.dataset("e" * 16, name="elsewhere"))
    add("blind")
    add("blind", variant="-wide", signature={"nrefs": "5", "split": "scenes-test", "beam": "5"})
    add("far", dataset="e" * 16)
    add("human", 0, 2.0, role="reference", signature={"nrefs": "4", "split": "scenes-test"})
    add("retrieval", 0, 0.1, role="reference", signature={"nrefs": "5", "split": "scenes-test", "feat": "x"})
    narrow, wide, elsewhere = fetch.leaderboard(store)
    assert models(narrow.references) == models(wide.references) == ["human", "retrieval"]
    assert [row.role for row in narrow.references] == ["reference", "reference"]
    assert [row.differs for row in narrow.references] == [
        {"nrefs": "4", "beam": None},
        {"feat": "x", "beam": None},
    ]
    assert models(narrow.rows) == ["blind"], "references are never ranked"
    assert elsewhere.references == ()
    assert narrow.separating == ("beam",), "references separate nothing"


def test_references_alone_are_shown_too(store: Store, add: Add) -> None:
    add("human", 0, 2.0, role="reference")
    (group,) = fetch.leaderboard(store)
    assert (group.rows, group.signature, group.split) == ((), {}, "test")
    assert models(group.references) == ["human"]
    assert group.references[0].differs == {}


def test_every_data_set_has_its_groups(store: Store, add: Add, make: Any) -> None:
    store.record_dataset(make.dataset("e" * 16, name="other"))
    add("blind")
    add("blind", variant="-e", dataset="e" * 16)
    assert [group.dataset for group in fetch.leaderboard(store)] == ["scenes", "other"]


def test_only_finished_runs_rank(store: Store, add: Add, make: Any) -> None:
    add("blind")
    store.plan([make.spec("blind", 2), make.spec("blind", 3), make.spec("crash")])
    store.begin("blind-2", {})
    store.fail("crash-1", "ValueError", "no", "")
    (group,) = fetch.leaderboard(store)
    assert [(row.model, row.seeds) for row in group.rows] == [("blind", (1,))]


def test_rows_of_several_seeds_get_the_places_of_all_pairs(store: Store, make: Any) -> None:
    """`first` and `second` are alike, `third` is worse on every image by 0.4; others have no place, and say why."""
    for model, mean in (("first", 1.0), ("second", 0.99), ("third", 0.6)):
        for seed in (1, 2, 3):
            finish(store, make, model, seed, level(mean + 0.02 * (seed - 2), 0.01 * seed))
    finish(store, make, "single", 1, level(0.5, 0.0))
    for seed in (1, 2):
        finish(store, make, "bare", seed, {})
        finish(store, make, "other-images", seed, {image + 1: 0.4 for image in IMAGES})
    (group,) = fetch.leaderboard(store)
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
    assert fetch.leaderboard(store) == [group], "the same numbers again"


def test_one_row_of_several_seeds_has_nothing_to_be_placed_by(store: Store, make: Any) -> None:
    for seed in (1, 2):
        finish(store, make, "several", seed, level(1.0, 0.01 * seed))
    finish(store, make, "single", 1, level(0.5, 0.0))
    (group,) = fetch.leaderboard(store)
    assert [row.standings["CIDEr-D"].reason for row in group.rows] == [ALONE, NEEDS_SEEDS]
    assert group.test is None


def test_other_metrics_sort_and_place_rows_too(store: Store, make: Any) -> None:
    for model, mean in (("a", 1.0), ("b", 0.5)):
        for seed in (1, 2, 3):
            rouge = {image: 2 - each for image, each in level(mean, 0.01 * seed).items()}
            finish(store, make, model, seed, level(mean, 0.01 * seed), rouge=rouge)
    (by_cider,), (by_rouge,) = fetch.leaderboard(store), fetch.leaderboard(store, "ROUGE-L")
    assert (models(by_cider.rows), models(by_rouge.rows)) == (["a", "b"], ["b", "a"])
    assert by_rouge.metric == "ROUGE-L"
    places = {row.model: {name: each.best for name, each in row.standings.items()} for row in by_cider.rows}
    assert places == {"a": {"CIDEr-D": 1, "ROUGE-L": 2}, "b": {"CIDEr-D": 2, "ROUGE-L": 1}}
    assert {row.model: {name: each.best for name, each in row.standings.items()} for row in by_rouge.rows} == places
    with pytest.raises(StoreError, match="no run has a score of 'WMD'") as refused:
        fetch.leaderboard(store, "WMD")
    assert refused.value.hint == "choose of CIDEr-D, ROUGE-L"


def test_a_row_that_was_still_learning_has_a_place_only_on_request(store: Store, make: Any) -> None:
    curves = {"flat": (0.2, 0.5, 0.5, 0.5), "rising": (0.1, 0.2, 0.3, 0.4), "short": (0.1, 0.4)}
    for model, curve in curves.items():
        for seed in (1, 2, 3):
            epochs = tuple(make.epoch(number, val_cider=score) for number, score in enumerate(curve, start=1))
            mean = {"flat": 0.5, "rising": 0.9, "short": 0.7}[model]
            finish(
                store,
                make,
                model,
                seed,
                level(mean + 0.01 * seed, 0.01),
                epochs=epochs,
                config={"seed": seed, "preset": {"schedule": {"stages": [{"epochs": len(curve)}]}}},
            )
    (group,), (asked,) = fetch.leaderboard(store), fetch.leaderboard(store, place_unfinished=True)
    rising, short, flat = group.rows
    assert [row.standings["CIDEr-D"].reason for row in group.rows] == [STILL_LEARNING, TOO_SHORT, ALONE]
    assert (rising.still_learning, short.still_learning, flat.still_learning) == ((1, 2, 3), (), ())
    assert [row.learning[1].state for row in group.rows] == ["still learning", "unknown", "finished learning"]
    assert (rising.learning[1].epochs, rising.learning[1].stage) == (4, 0)
    assert [row.standings["CIDEr-D"].best for row in asked.rows] == [1, 2, 3]


def test_without_scores_of_images_nothing_is_tested(store: Store, make: Any) -> None:
    finish(store, make, "bare", 1, {})
    (group,) = fetch.leaderboard(store)
    assert group.test is None
    assert group.rows[0].standings["CIDEr-D"] == Standing(reason=NO_SCORES)


def test_intervals_are_over_seeds_and_images_or_over_images(store: Store, make: Any) -> None:
    seeds = [level(0.5, 0.02), level(0.6, 0.03), level(0.52, 0.01)]
    for seed, by_image in enumerate(seeds, start=1):
        finish(store, make, "several", seed, by_image, low=0.1, high=0.9)
    finish(store, make, "single", 1, seeds[0], low=0.25, high=0.75)
    several, single = (row.scores["CIDEr-D"] for row in fetch.leaderboard(store)[0].rows)
    bounds = architecture_mean(np.array([list(seed.values()) for seed in seeds]))
    assert bounds is not None
    assert (several.low, several.high, several.over) == (*bounds, "over seeds and images")
    assert (single.low, single.high, single.over) == (0.25, 0.75, "these weights, over images")


def test_reseeding_tells_how_far_rows_moved(store: Store, make: Any) -> None:
    for model, means in (("a", (0.5, 0.9)), ("b", (0.7, 0.8))):
        for seed, mean in enumerate(means):
            finish(store, make, model, seed, dict.fromkeys(IMAGES, mean))
    finish(store, make, "lone", 1, dict.fromkeys(IMAGES, 0.1), signature={"beam": "9"})
    group, lone = fetch.leaderboard(store)
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
