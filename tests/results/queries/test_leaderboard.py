"""Ranking: only what was scored under the same conditions shares a group, and nothing is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from results import Quantity, SplitResult, Store
from results.queries import fetch
from results.queries.views import Row, SignificanceTest, Spread, Standing

Add = Callable[..., str]


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
    assert low.scores["CIDEr-D"] == Spread(0.5, 0.25, 3)
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


def test_rows_not_significantly_different_share_a_tier(store: Store, make: Any) -> None:
    """Over 40 images `second` is as good as `first`, and `third` is worse on each by 0.1."""
    images = range(40)
    wobble = {image: 0.05 * (-1) ** image for image in images}
    finish(store, make, "first", 1, {image: 1.0 + image / 100 for image in images})
    finish(store, make, "second", 1, {image: 1.0 + image / 100 + wobble[image] - 0.001 for image in images})
    for seed in (1, 2):
        finish(store, make, "third", seed, {image: 0.9 + image / 100 + (seed - 1.5) / 10 for image in images})
    finish(store, make, "bare", 1, {})
    finish(store, make, "other-images", 1, {image + 1: 0.5 for image in images})
    (group,) = fetch.leaderboard(store)
    assert models(group.rows) == ["first", "second", "third", "other-images", "bare"]
    first, second, third, *others = (row.standing for row in group.rows)
    assert first == Standing(1, None, None)
    assert second is not None
    assert second.tier == 1
    assert second.against_best is not None
    assert second.against_best == second.against_above
    assert second.against_best > 0.5
    assert third is not None
    assert third.tier == 2
    assert third.against_best is not None
    assert third.against_best < 0.001
    assert third.against_above is not None
    assert third.against_above < 0.001
    assert others == [None, None]
    assert group.test == SignificanceTest("CIDEr-D", 40, 3, 10_000, 2_024, 0.05)
    assert fetch.leaderboard(store) == [group], "the same numbers again"


def test_without_scores_of_images_nothing_is_tested(store: Store, make: Any) -> None:
    finish(store, make, "bare", 1, {})
    (group,) = fetch.leaderboard(store)
    assert group.test is None
    assert group.rows[0].standing is None


def test_intervals_are_means_over_seeds(store: Store, make: Any) -> None:
    finish(store, make, "both", 1, {1: 0.5}, low=0.25, high=0.75)
    finish(store, make, "both", 2, {1: 0.25}, low=0.125, high=0.25)
    finish(store, make, "half", 1, {1: 0.5}, low=0.25, high=0.75)
    finish(store, make, "half", 2, {1: 0.25})
    both, half = (row.scores["CIDEr-D"] for row in fetch.leaderboard(store)[0].rows)
    assert (both.mean, both.low, both.high) == (0.375, 0.1875, 0.5)
    assert (half.mean, half.low, half.high) == (0.375, None, None)


def finish(store: Store, make: Any, model: str, seed: int, by_image: dict[int, float], **bounds: float) -> None:
    """A finished run with these scores of single images, and their mean, if there are any."""
    mean = Quantity(sum(by_image.values()) / len(by_image), **bounds) if by_image else Quantity(None, "not scored")
    captions = dict.fromkeys(by_image, "a ball")
    result = SplitResult("test", captions, {"overall": {"CIDEr-D": mean}}, {"CIDEr-D": by_image} if by_image else {})
    spec = make.spec(model, seed)
    store.plan([spec])
    store.finish(spec.key, make.outcome(splits=(result,)))
