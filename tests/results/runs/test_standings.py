"""Places of rows over seeds, images and budgets, intervals of their means, baselines, and why a row has no place."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reports.tables.budget_table import budget_table
from results import EpochRecord, Quantity, SplitResult, Store, StoreError
from results.runs.leaderboard import Group, Row, leaderboard
from results.runs.spreads import Spread
from results.runs.standings import (
    ALONE,
    AT_CHANCE,
    NEAR_ZERO,
    NO_SCORES,
    NO_SHARED_SEEDS,
    OTHER_IMAGES,
    OTHER_MACHINE,
    STILL_LEARNING,
    TOO_SHORT,
    RankingOptions,
    RankInterval,
)
from results.statistics.architecture import NEEDS_SEEDS, architecture_mean, rank_models
from results.store.schema import HeldOutScore
from tests.results.conftest import Make

IMAGES = range(40)


def level(mean: float, wobble: float = 0.02) -> dict[int, float]:
    """Scores of the images about a mean; each image's own level is in all of them."""
    return {image: mean + image / 100 + wobble * (-1) ** image for image in IMAGES}


def finish(
    store: Store,
    model: str,
    seed: int,
    by_image: dict[int, float],
    *,
    rouge: dict[int, float] | None = None,
    epochs: Iterable[EpochRecord] = (),
    bounds: tuple[float | None, float | None] = (None, None),
    held_out: float | None = None,
    outcome: dict[str, Any] | None = None,
    **changes: Any,
) -> None:
    """A finished run with these scores of single images, and their mean between bounds, if there are any.

    `outcome` are fields of its outcome, `changes` of its spec.
    """
    low, high = bounds
    mean = Quantity(sum(by_image.values()) / len(by_image), low=low, high=high) if by_image else None
    overall, per_image = {"CIDEr-D": mean or Quantity(None, "not scored")}, {"CIDEr-D": by_image} if by_image else {}
    if rouge:
        overall["ROUGE-L"], per_image["ROUGE-L"] = Quantity(sum(rouge.values()) / len(rouge)), rouge
    less = {} if held_out is None else {"CIDEr-D": Quantity(held_out), "METEOR": Quantity(None, "no Java")}
    captions = dict.fromkeys(by_image, "a ball")
    result = SplitResult("test", captions, {"overall": overall}, per_image, held_out=less)
    spec = Make.spec(model, seed, **changes)
    store.plan([spec])
    for epoch in epochs:
        store.record_epoch(spec.key, epoch)
    store.finish(spec.key, Make.outcome(splits=(result,), **outcome or {}))


PLACED = RankingOptions(rank_unconverged=True)


def test_rows_of_several_seeds_get_the_places_of_all_pairs(store: Store) -> None:
    """`first` and `second` are alike, `third` is worse on every image by 0.4; others have no place, and say why."""
    for model, mean in (("first", 1.0), ("second", 0.99), ("third", 0.6)):
        for seed in (1, 2, 3):
            finish(store, model, seed, level(mean + 0.02 * (seed - 2), 0.01 * seed))
    finish(store, "single", 1, level(0.5, 0.0))
    for seed in (1, 2):
        finish(store, "bare", seed, {})
        finish(store, "other-images", seed, {image + 1: 0.4 for image in IMAGES})
    (group,) = leaderboard(store)
    assert [row.model for row in group.rows] == ["first", "second", "third", "single", "other-images", "bare"]
    first, second, third, single, other, bare = (row.ranks["CIDEr-D"] for row in group.rows)
    assert [(each.best, each.worst) for each in (first, second, third)] == [(1, 2), (1, 2), (3, 3)]
    arrays = [
        np.array([list(level(mean + 0.02 * (seed - 2), 0.01 * seed).values()) for seed in (1, 2, 3)])
        for mean in (1.0, 0.99, 0.6)
    ]
    adjusted = {(pair.first, pair.second): pair.estimate.p for pair in rank_models(arrays).pairs}
    assert first.p_against_best is first.p_against_above is None
    assert second.p_against_best == second.p_against_above == pytest.approx(adjusted[0, 1])
    assert (third.p_against_best, third.p_against_above) == (
        pytest.approx(adjusted[0, 2]),
        pytest.approx(adjusted[1, 2]),
    )
    assert single == RankInterval(reason=NEEDS_SEEDS)
    assert other == RankInterval(reason=OTHER_IMAGES)
    assert bare == RankInterval(reason=NO_SCORES)
    pairs = group.comparisons
    assert pairs is not None
    assert (pairs.seeds, pairs.rows, pairs.images, pairs.margin) == (
        (1, 2, 3),
        (0, 1, 2),
        40,
        pytest.approx(0.02 * 1.195),
    )
    assert [pair.verdict for pair in pairs.pairs] == ["unknown", "better", "better"]
    assert leaderboard(store) == [group], "the same numbers again"


def test_one_row_of_several_seeds_has_nothing_to_be_placed_by(store: Store) -> None:
    for seed in (1, 2):
        finish(store, "several", seed, level(1.0, 0.01 * seed))
    finish(store, "single", 1, level(0.5, 0.0))
    (group,) = leaderboard(store)
    assert [row.ranks["CIDEr-D"].reason for row in group.rows] == [ALONE, NEEDS_SEEDS]
    assert group.comparisons is None


def test_other_metrics_sort_and_place_rows_too(store: Store) -> None:
    for model, mean in (("a", 1.0), ("b", 0.5)):
        for seed in (1, 2, 3):
            rouge = {image: 2 - each for image, each in level(mean, 0.01 * seed).items()}
            finish(store, model, seed, level(mean, 0.01 * seed), rouge=rouge)
    (by_cider,), (by_rouge,) = leaderboard(store), leaderboard(store, "ROUGE-L")
    assert [[row.model for row in group.rows] for group in (by_cider, by_rouge)] == [["a", "b"], ["b", "a"]]
    assert by_rouge.metric == "ROUGE-L"
    places = {row.model: {name: each.best for name, each in row.ranks.items()} for row in by_cider.rows}
    assert places == {"a": {"CIDEr-D": 1, "ROUGE-L": 2}, "b": {"CIDEr-D": 2, "ROUGE-L": 1}}
    assert {row.model: {name: each.best for name, each in row.ranks.items()} for row in by_rouge.rows} == places
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
        finish(store, model, seed, level(mean + 0.001 * seed, 0.001), epochs=epochs, record=config)


def test_an_ensemble_of_members_that_were_still_learning_has_no_place_either(store: Store, make: Any) -> None:
    curves = {"rising": [0.2, 0.3, 0.4, 0.5], "flat": [0.4, 0.5, 0.5, 0.5]}
    for model, values in curves.items():
        for seed in (1, 2):
            store.plan([make.spec(model, seed)])
            for number, value in enumerate(values, 1):
                store.record_epoch(f"{model}-{seed}", make.epoch(number, val_cider=value))
            store.finish(f"{model}-{seed}", make.outcome(0.5))
        config = {"members": [f"{model}-1", f"{model}-2"]}
        make.run(store, make.outcome(0.6), f"ensemble:{model}:2", kind="ensemble", record=config)
    rows = {row.model: row for row in leaderboard(store)[0].rows}
    rising, flat = rows["ensemble:rising:2"], rows["ensemble:flat:2"]
    assert (rising.still_learning, flat.still_learning, flat.training_end) == (True, False, "finished learning")
    assert rising.learning[1].rise == pytest.approx(0.1)
    assert rising.ranks["CIDEr-D"].reason == rows["rising"].ranks["CIDEr-D"].reason == STILL_LEARNING
    assert flat.ranks["CIDEr-D"].reason != STILL_LEARNING


def test_a_row_that_was_still_learning_has_a_place_only_on_request(store: Store, make: Any) -> None:
    curves = {"flat": (0.2, 0.5, 0.5, 0.5), "rising": (0.1, 0.2, 0.3, 0.4), "short": (0.1, 0.4)}
    for model, curve in curves.items():
        trained(store, make, model, {"flat": 0.5, "rising": 0.9, "short": 0.7}[model], curve)
    (group,), (asked,) = leaderboard(store), leaderboard(store, options=PLACED)
    rising, short, flat = group.rows
    assert [row.ranks["CIDEr-D"].reason for row in group.rows] == [STILL_LEARNING, TOO_SHORT, None]
    assert flat.ranks["CIDEr-D"].best == 3, "the others count, though they have no place"
    assert (rising.still_learning, short.still_learning, flat.still_learning) == (True, False, False)
    assert [row.learning[1].state for row in group.rows] == ["still learning", "unknown", "finished learning"]
    assert (rising.learning[1].epochs, rising.learning[1].stage) == (4, 0)
    assert [row.ranks["CIDEr-D"].best for row in asked.rows] == [1, 2, 3]


def test_a_rate_near_zero_is_not_the_end_of_learning(store: Store, make: Any) -> None:
    curve = (0.2, *[0.5] * 7)
    trained(store, make, "rests", 0.9, curve, rates=(1, 1, 0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-5))
    trained(store, make, "falls", 0.7, curve, rates=(1, 1, 0.5, 0.25, 0.1, 0.05, 0.01, 2e-3))
    (group,), (asked,) = leaderboard(store), leaderboard(store, options=PLACED)
    assert [row.training_end for row in group.rows] == ["rate near zero", "finished learning"]
    assert [row.ranks["CIDEr-D"].reason for row in group.rows] == [NEAR_ZERO, None]
    assert [row.ranks["CIDEr-D"].best for row in asked.rows] == [1, 2]


def test_a_row_at_the_level_of_chance_has_no_place_and_is_no_floor(store: Store, make: Any) -> None:
    trained(store, make, "a", 0.5, (0.2, 0.5, 0.5, 0.5))
    trained(store, make, "lost", 0.005, (0.0, 0.0, 0.01, 0.0))
    trained(store, make, "blind", 0.004, (0.0, 0.0, 0.0))
    for group in (*leaderboard(store), *leaderboard(store, options=PLACED)):
        a, lost, blind = group.rows
        assert [row.training_end for row in group.rows] == ["finished learning", "at chance", "at chance"]
        assert lost.ranks["CIDEr-D"].reason == AT_CHANCE
        assert a.ranks["CIDEr-D"].baselines == ()
        assert blind.ranks["CIDEr-D"].is_baseline
    trained(store, make, "majority", 0.1, (0.1, 0.1, 0.1))
    ((a, *_),) = (group.rows for group in leaderboard(store))
    assert [test.baseline for test in a.ranks["CIDEr-D"].baselines] == ["majority"]


def test_places_are_of_the_seeds_that_most_rows_have(store: Store) -> None:
    """Further seeds of one row neither place it, nor does one that lacks a seed take the others' away."""
    for model, mean in (("a", 1.0), ("b", 0.98), ("c", 0.6)):
        for seed in (1, 2, 3):
            finish(store, model, seed, level(mean + 0.02 * (seed - 2), 0.01 * seed))
    (before,) = leaderboard(store)
    for seed in range(4, 30):
        finish(store, "a", seed, level(5.0, 0.01))
    for seed in (1, 2):
        finish(store, "d", seed, level(0.1, 0.01 * seed))
    (after,) = leaderboard(store)
    assert after.comparisons is not None
    assert after.comparisons.seeds == (1, 2, 3)
    found = {row.model: row.ranks["CIDEr-D"] for row in after.rows}
    assert (found["d"].best, "seeds 1, 2, 3" in (found["d"].reason or "")) == (None, True)
    assert {row.model: row.ranks["CIDEr-D"].best for row in before.rows} == {
        name: standing.best for name, standing in found.items() if name != "d"
    }


@pytest.mark.parametrize("seeds", [((1, 2), (3, 4)), ((1, 2), (2, 3))])
def test_rows_that_do_not_share_two_seeds_have_no_place(store: Store, seeds: Any) -> None:
    for model, own in zip("ab", seeds, strict=True):
        for seed in own:
            finish(store, model, seed, level(1.0, 0.01 * seed))
    (group,) = leaderboard(store)
    assert [row.ranks["CIDEr-D"].reason for row in group.rows] == [NO_SHARED_SEEDS] * 2


def test_rows_are_the_same_within_a_margin(store: Store) -> None:
    for model, mean in (("a", 1.0), ("b", 0.99), ("c", 0.5)):
        for seed in (1, 2, 3):
            finish(store, model, seed, level(mean + 0.001 * seed, 0.0))
    for margin, verdict in ((5.0, "same"), (0.5, "better")):
        (group,) = leaderboard(store, options=RankingOptions(margin=margin))
        assert group.comparisons is not None
        assert (group.comparisons.margin, group.comparisons.margin_of) == (margin / 100, None)
        assert [pair.verdict for pair in group.comparisons.pairs] == [verdict, "better", "better"]


def test_a_row_of_other_versions_is_marked_and_can_be_left_out(store: Store) -> None:
    for model, torch in (("a", {1: "2.15", 2: "2.13"}), ("b", {1: "2.15", 2: "2.13"}), ("c", {1: "2.14", 2: "2.14"})):
        for seed in (1, 2):  # divided alike in two rows, which marks neither
            packages = {"torch": torch[seed]}
            finish(store, model, seed, level(1.0, 0.01 * seed), outcome={"environment": {"packages": packages}})
    (group,), (same,) = leaderboard(store), leaderboard(store, options=RankingOptions(same_machine=True))
    assert {row.model: row.other_hardware for row in group.rows} == {"a": None, "b": None, "c": "torch 2.14"}
    assert all(row.ranks["CIDEr-D"].best for row in group.rows)
    assert [row.ranks["CIDEr-D"].reason for row in same.rows] == [None, None, OTHER_MACHINE]


def test_a_row_of_mixed_seeds_is_marked_though_they_are_not_compared(store: Store) -> None:
    for model, numpy in (("a", {}), ("b", {3: "2.1"})):
        for seed in (1, 2, 3) if numpy else (1, 2):
            packages = {"numpy": numpy.get(seed, "2.4"), "timm": None}
            finish(store, model, seed, level(1.0, 0.01 * seed), outcome={"environment": {"packages": packages}})
    (group,) = leaderboard(store, options=RankingOptions(same_machine=True))
    assert {row.model: row.other_hardware for row in group.rows} == {"a": None, "b": "numpy 2.1 (seed 3)"}
    assert all(row.ranks["CIDEr-D"].reason != OTHER_MACHINE for row in group.rows), "of the seeds that both have"


def test_intervals_are_over_seeds_and_images_or_over_images(store: Store) -> None:
    seeds = [level(0.5, 0.02), level(0.6, 0.03), level(0.52, 0.01)]
    for seed, by_image in enumerate(seeds, start=1):
        finish(store, "several", seed, by_image, bounds=(0.1, 0.9))
    finish(store, "single", 1, seeds[0], bounds=(0.25, 0.75))
    several, single = (row.scores["CIDEr-D"] for row in leaderboard(store)[0].rows)
    mean = architecture_mean(np.array([list(seed.values()) for seed in seeds]))
    assert (several.mean, several.low, several.high) == (pytest.approx(mean.value), mean.low, mean.high)
    assert several.over == "over seeds and images"
    assert (single.low, single.high, single.over) == (0.25, 0.75, "these weights, over images")


def test_intervals_hold_no_score_that_cannot_be(store: Store) -> None:
    for seed, mean in enumerate((0.2, 1.9), start=1):
        finish(store, "scattered", seed, level(mean, 0.02))
    [row] = leaderboard(store)[0].rows
    spread = row.scores["CIDEr-D"]
    assert (spread.low, spread.high) == (0.0, pytest.approx(10.0)), "of two seeds, t reaches from -10 to 12"


def by_model(store: Store) -> dict[str, Row]:
    group: Group
    (group,) = leaderboard(store)
    return {row.model: row for row in (*group.rows, *group.references)}


def test_only_rows_above_every_baseline_have_a_place(store: Store) -> None:
    finish(store, "majority", 1, level(0.5), role="reference")
    finish(store, "retrieval", 1, level(0.6), role="reference")
    for seed in (1, 2, 3):
        finish(store, "blind", seed, level(0.4, wobble=0.03))
        finish(store, "best", seed, level(1.0 + 0.01 * seed, wobble=0.05))
        finish(store, "second", seed, level(0.8 + 0.01 * seed, wobble=-0.05))
        finish(store, "between", seed, level(0.55, wobble=0.01))
        finish(store, "as-majority", seed, level(0.501, wobble=-0.05))
    found = by_model(store)
    standings = {name: row.ranks["CIDEr-D"] for name, row in found.items() if row.role == "model"}
    assert {name: standing.best for name, standing in standings.items()} == {
        "best": 1,
        "second": 2,
        "between": None,
        "as-majority": None,
        "blind": None,
    }
    assert standings["blind"].is_baseline
    assert standings["blind"].baselines == (), "a baseline is not tested against others"
    assert not standings["best"].is_baseline
    between, low = standings["between"], standings["as-majority"]
    assert between.reason == "not above a baseline"
    assert [(test.baseline, test.above, test.estimate.is_significant) for test in between.baselines] == [
        ("blind", True, True),
        ("majority", True, True),
        ("retrieval", False, True),
    ]
    assert [test.baseline for test in low.not_above] == ["majority", "retrieval"]
    assert low.not_above[0].estimate.p > 0.5
    (group,) = leaderboard(store)
    found = group.comparisons
    assert found is not None
    assert (len(found.rows), len(found.pairs), found.baseline_tests, found.images) == (2, 1, 12, 40)
    assert all(row.ranks == {} for row in group.references)


def test_a_group_of_rows_below_the_baseline_says_what_was_tested(store: Store) -> None:
    finish(store, "majority", 1, level(0.5), role="reference")
    finish(store, "low", 1, level(0.4))
    (group,) = leaderboard(store)
    assert group.rows[0].ranks["CIDEr-D"].reason == "not above a baseline"
    assert group.comparisons is not None
    assert (group.comparisons.rows, group.comparisons.pairs, group.comparisons.baseline_tests) == ((), (), 1)


def test_without_a_baseline_no_row_is_left_out(store: Store) -> None:
    finish(store, "human", 1, level(2.0), role="reference")
    for seed in (1, 2):
        finish(store, "low", seed, level(0.1 + 0.01 * seed))
        finish(store, "lower", seed, level(0.0))
    standing = by_model(store)["low"].ranks["CIDEr-D"]
    assert (standing.best, standing.baselines) == (1, ())


@pytest.mark.parametrize(
    ("changes", "applies"),
    [
        ({}, True),
        ({"beam": "none"}, True),
        ({"nrefs": "4"}, False),
        ({"tok": "ptb-java"}, False),
        ({"rev": "2"}, False),
        ({"v": "0.3.1"}, True),
    ],
)
def test_a_baseline_counts_only_where_it_was_scored_alike(store: Store, changes: dict[str, str], applies: bool) -> None:
    signature = {"nrefs": "5", "tok": "ptb-python", "beam": "3", "v": "0.3.0", "rev": "1"}
    finish(store, "low", 1, level(0.1), signature=signature)
    finish(store, "majority", 1, level(0.5), role="reference", track="paper", signature=signature | changes)
    assert bool(by_model(store)["low"].ranks["CIDEr-D"].not_above) == applies


def test_baselines_see_what_the_models_of_their_table_see(store: Store) -> None:
    """Retrieval by the table's features, or else by others, but never for models that learn from pixels alone."""
    for feat in ("weak", "other", "pixels[96x96]"):
        finish(store, "model", 1, level(0.5), variant=feat, signature={"feat": feat})
    finish(store, "blind", 1, level(0.3), variant="weak", signature={"feat": "weak"})
    finish(store, "retrieval", 1, level(0.4), role="reference", variant="weak", signature={"feat": "weak"})
    finish(store, "retrieval", 1, level(0.6), role="reference", variant="strong", signature={"feat": "strong"})
    found = {group.signature["feat"]: group.rows[0].ranks["CIDEr-D"].baselines for group in leaderboard(store)}
    above = {feat: [(test.baseline, test.above) for test in tests] for feat, tests in found.items()}
    assert above["weak"] == [("blind", True), ("retrieval", True)]
    assert above["other"] == [("blind", True), ("retrieval", True), ("retrieval", False)]
    assert above["pixels[96x96]"] == [("blind", True)]


def test_a_baseline_whose_seeds_vary_widely_is_no_proof(store: Store) -> None:
    """Over images alone the model is surely above; over seeds it is not."""
    for seed, mean in enumerate((0.1, 0.9, 0.2), start=1):
        finish(store, "blind", seed, level(mean))
        finish(store, "model", seed, level(0.7 + 0.01 * seed))
    (test,) = by_model(store)["model"].ranks["CIDEr-D"].baselines
    assert test.estimate.value == pytest.approx(0.32)
    assert test.estimate.p > 0.1


def test_scores_against_one_reference_less_come_with_their_row(store: Store) -> None:
    finish(store, "model", 1, level(0.5), held_out=0.25)
    finish(store, "model", 2, level(0.5), held_out=0.75)
    finish(store, "old", 1, level(0.4))
    found = by_model(store)
    assert found["model"].held_out["CIDEr-D"] == Spread(0.5, pytest.approx(0.3535, abs=1e-4), 2)
    assert found["model"].held_out["METEOR"] == Spread(None, None, 0, "no Java")
    assert found["old"].held_out == {}
    with store.reading() as connection:
        assert len(connection.execute(HeldOutScore.__table__.select()).all()) == 4


def train(store: Store, model: str, budget: int, mean: float, **rate: float) -> None:
    """Finish three seeds of a model under a budget, with this mean score; validation rises to the end."""
    changed = "".join(f"-{name}{value}" for name, value in rate.items())
    for seed in (1, 2, 3):
        stages = [{"epochs": 4 * budget, "learning_rate": {"annealing": "step", **rate}}]
        schedule = {"stages": stages} | ({} if budget == 1 else {"budget": budget})
        finish(
            store, model, seed, level(mean, 0.01 * seed),
            epochs=[Make.epoch(number, val_cider=0.1 * number) for number in range(1, 4 * budget + 1)],
            outcome={"costs": {"train_steps": Quantity(504.0 * budget)}},
            variant=f"{budget}{changed}",
            signature={"schedule": ("quick#12" if budget == 1 else f"quick*{budget}#{budget}{budget}") + changed},
            record={"seed": seed, "preset": {"schedule": schedule}},
        )  # fmt: skip


def groups(store: Store, **options: Any) -> dict[int, Group]:
    return {group.budget: group for group in leaderboard(store, options=RankingOptions(**options))}


def test_a_row_is_finished_where_twice_the_updates_gave_no_more_than_the_margin(store: Store) -> None:
    for budget, means in ((1, (1.0, 0.7)), (2, (1.3, 0.703)), (4, (1.31, 0.9))):
        for model, mean in zip(("grows", "stays"), means, strict=True):
            train(store, model, budget, mean)
    found = groups(store, margin=2.0)
    assert [group.name for group in found.values()] == [
        f"scenes test after {updates} updates" for updates in ("504", "1,008", "2,016")
    ]
    gains = {
        (budget, row.model): (row.gain.budget, row.gain.difference, row.gain.finished)
        for budget, group in found.items()
        for row in group.rows
        if row.gain
    }
    assert gains == {
        (1, "grows"): (2, pytest.approx(0.3), False),
        (1, "stays"): (2, pytest.approx(0.003), True),
        (2, "grows"): (4, pytest.approx(0.01), True),
        (2, "stays"): (4, pytest.approx(0.197), False),
    }


def test_what_longer_training_gave_says_more_than_how_validation_ended(store: Store) -> None:
    """Validation rises to the end in all runs; rows that were trained longer have a place nevertheless."""
    for budget in (1, 2):
        train(store, "a", budget, 1.0)
        train(store, "b", budget, 0.5)
    found = groups(store)
    assert [row.ranks["CIDEr-D"].best for row in found[1].rows] == [1, 2]
    assert [row.ranks["CIDEr-D"].best for row in found[2].rows] == [None, None]


@pytest.mark.parametrize("budget", [1, 2])
def test_a_training_with_other_settings_is_no_longer_one(store: Store, budget: int) -> None:
    """Three seeds at a rate of 1e-7 do not say that the others had finished learning, whatever their budget."""
    train(store, "a", 1, 1.0)
    train(store, "b", 1, 0.5)
    train(store, "a", budget, 0.2, peak=1e-7)
    tables = leaderboard(store)
    usual = next(group for group in tables if len(group.rows) == 2)
    assert [row.gain for row in usual.rows] == [None, None]
    assert all(row.still_learning for row in usual.rows)
    assert [row.ranks["CIDEr-D"].reason for row in usual.rows] == [STILL_LEARNING, STILL_LEARNING]
    assert all(budget_table(group, tables, {}) is None for group in tables)


def test_a_budget_that_is_no_double_shows_no_end(store: Store) -> None:
    train(store, "a", 2, 1.0)
    train(store, "a", 3, 1.0)
    (gain,) = (row.gain for row in groups(store)[2].rows)
    assert gain is not None
    assert (gain.times, gain.finished) == (1.5, False)
