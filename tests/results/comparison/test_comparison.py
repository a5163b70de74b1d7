"""Pairing the runs of two stores, and what each pair says."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reports.text.comparison import caption_counts, scopes, warnings
from results import Quantity, Store, StoreError
from results.comparison.comparison import (
    NO_INTERVAL,
    TOO_FEW_IMAGES,
    Comparison,
    ScoreChange,
    UntestedScore,
    compare_stores,
    with_corrected_intervals,
    with_tests,
)
from results.runs.reading import evaluated_images, run_keys, stored_runs
from results.statistics.architecture import OVER_IMAGES, OVER_SEEDS, architecture_difference
from results.statistics.significance import PairedScores, holm, paired_differences

WIDE = {"nrefs": "5", "split": "scenes-test", "beam": "5"}


@pytest.fixture
def fill(tmp_path: Path, make: Any) -> Iterator[Callable[..., Store]]:
    """`fill((model, seed, cider, spec's changes) ...)` makes a store of such runs."""
    opened = []

    def filling(*runs: tuple[str, int, float, dict[str, Any]], fingerprint: str = "f" * 16) -> Store:
        store = Store(tmp_path / f"{len(opened)}.sqlite")
        opened.append(store)
        store.record_dataset(make.dataset(fingerprint))
        for number, (model, seed, cider, changes) in enumerate(runs):
            make.run(store, make.outcome(cider), model, seed, variant=f"-{number}", dataset=fingerprint, **changes)
        return store

    yield filling
    for store in opened:
        store.close()


def compared(before: Store, after: Store, most: int = 5) -> Comparison:
    return compare_stores(stored_runs(before), stored_runs(after), evaluated_images(before), most)


def test_rows_of_the_same_conditions_belong_together(fill: Any) -> None:
    rows = [("updown", 1, 0.2, {}), ("updown", 1, 0.4, {"signature": WIDE})]
    found = compared(fill(*rows), fill(*rows[::-1]))
    assert [pair.conditions for pair in found.pairs] == [(), ()]
    assert [pair.scores[0].before == pair.scores[0].after for pair in found.pairs] == [True, True]
    assert len({pair.separating_fields for pair in found.pairs}) == 2, "one cannot be taken for the other"
    assert (found.only_before, found.only_after) == ((), ())


def test_a_models_only_rows_are_paired_whatever_the_conditions(fill: Any) -> None:
    found = compared(fill(("updown", 1, 0.2, {})), fill(("updown", 1, 0.4, {"signature": WIDE})))
    assert [pair.conditions for pair in found.pairs] == [("beam 3 → 5",)]


def test_systems_of_one_name_are_compared_by_their_conditions(fill: Any) -> None:
    sides = [
        fill(("hf:model", 0, cider, {"kind": "hub", "signature": {**WIDE, "feat": f"pixels[processor#{digest}]"}}))
        for cider, digest in ((0.4, "c76366"), (0.2, "87a81a"))
    ]
    [pair] = compared(*sides).pairs
    assert pair.conditions == ("feat pixels[processor#c76366] → pixels[processor#87a81a]",)
    assert pair.settings == ()
    assert {score.metric: score.after for score in pair.scores}["CIDEr-D"] == 0.2


def test_rows_that_may_belong_to_several_are_left_over(fill: Any) -> None:
    several = [("updown", 1, 0.2, {"signature": {**WIDE, "beam": beam}}) for beam in ("4", "5")]
    found = compared(fill(("updown", 1, 0.2, {})), fill(*several))
    assert found.pairs == ()
    assert found.only_before == ("updown seed 1 (beam: 3)",)
    assert found.only_after == ("updown seed 1 (beam: 4)", "updown seed 1 (beam: 5)")


def test_settings_that_no_condition_names_are_said(fill: Any) -> None:
    described = ("card", "shipped_preset", "evaluated")
    configs = [
        {"arguments": {"layers": layers, "seed": 1}, **{name: {"is": layers} for name in described}}
        for layers in (2, 3)
    ]
    found = compared(*(fill(("updown", 1, 0.2, {"record": config})) for config in configs))
    assert found.pairs[0].settings == ("arguments.layers 2 → 3",)
    assert found.pairs[0].conditions == ()


@pytest.mark.parametrize("digest", ["90e4a654", "46411291", "6fdf2aaf"])
def test_files_of_captions_are_compared_whatever_their_digest(fill: Any, digest: str) -> None:
    config = {"arguments": {}, "card": {"named": False, "sha256": digest + 56 * "0"}}
    sides = [fill(("ours", 0, cider, {"record": config, "track": "captions"})) for cider in (0.2, 0.4)]
    [pair] = compared(*sides).pairs
    assert (pair.scores[0].before, pair.scores[0].after) == (0.2, 0.4)
    assert pair.settings == ()


def test_scores_of_several_seeds_are_of_all_of_them(fill: Any) -> None:
    before = fill(("updown", 1, 0.2, {}), ("updown", 2, 0.4, {}), ("updown", 3, 0.9, {}))
    after = fill(("updown", 2, 0.6, {}), ("updown", 4, 0.4, {}))
    (pair,) = compared(before, after).pairs
    assert (pair.before.seeds, pair.after.seeds) == ((1, 2, 3), (2, 4))
    cider = pair.scores[0]
    assert (cider.metric, cider.before, cider.after) == ("CIDEr-D", pytest.approx(0.5), pytest.approx(0.5))
    assert cider.test is not None
    assert cider.test.over_seeds is not None
    assert cider.test.over_seeds.seeds == (2, 3)
    assert caption_counts(compared(before, after))[0].startswith("test: 0 of 3 captions differ with seed 2;")


def test_beside_one_seed_common_seeds_count(fill: Any) -> None:
    before = fill(("updown", 1, 0.2, {}), ("updown", 2, 0.4, {}))
    after = fill(("updown", 1, 0.4, {}))
    (pair,) = compared(before, after).pairs
    assert (pair.before.seeds, pair.after.seeds) == ((1,), (1,))
    cider = pair.scores[0]
    assert (cider.metric, cider.before, cider.after) == ("CIDEr-D", pytest.approx(0.2), pytest.approx(0.4))
    assert cider.estimate.value == pytest.approx(0.4), "of the images, whose scores here are not the split's"


def test_what_tests_are_over_is_said(fill: Any) -> None:
    two = [fill(("updown", 1, score, {}), ("updown", 2, score + 0.1, {})) for score in (0.2, 0.4)]
    one = [fill(("updown", 1, score, {})) for score in (0.2, 0.4)]
    mixed = [fill(*(("updown", seed, 0.2, {}) for seed in (1, 2)), ("blind", 1, 0.2, {})) for _ in range(2)]
    assert scopes(compared(*two), everything=False) == ["p and 95 %, over seeds and images"]
    assert scopes(compared(*one), everything=False) == ["p and 95 %, these weights, over images"]
    assert scopes(compared(*mixed), everything=False) == [
        "p and 95 %, over seeds and images: updown seed 1,2 on test",
        "p and 95 %, these weights, over images: blind seed 1 on test",
    ]


def test_without_a_common_seed_the_first_of_each_are_compared(fill: Any) -> None:
    (pair,) = compared(fill(("updown", 3, 0.2, {})), fill(("updown", 5, 0.2, {}), ("updown", 4, 0.6, {}))).pairs
    assert (pair.before.seeds, pair.after.seeds) == ((3,), (4,))


def test_other_pictures_are_not_tested_against_each_other(fill: Any) -> None:
    (pair,) = compared(fill(("updown", 1, 0.2, {})), fill(("updown", 1, 0.4, {}), fingerprint="e" * 16)).pairs
    assert [(score.test, score.reason) for score in pair.scores if score.metric == "CIDEr-D"] == [
        (None, "scored on other images")
    ]
    assert (pair.differing, pair.captions) == ((), ())


def test_why_a_score_is_missing_is_kept(fill: Any) -> None:
    (pair,) = compared(fill(("updown", 1, None, {})), fill(("updown", 1, 0.4, {}))).pairs
    cider, bleu = pair.scores
    assert (cider.before, cider.after, cider.reason) == (None, 0.4, "no Java found")
    assert (bleu.before, bleu.test, bleu.reason) == (0.25, None, "the database has no scores of single images")


def test_seeds_of_other_pictures_are_not_tested(tmp_path: Path, make: Any) -> None:
    less = make.outcome(0.4).splits[0]
    less = replace(less, per_image={"CIDEr-D": {1: 0.4, 2: 0.8}})
    with Store(tmp_path / "before.sqlite") as before, Store(tmp_path / "after.sqlite") as after:
        for store in (before, after):
            store.record_dataset(make.dataset())
            make.run(store, make.outcome(0.2), "updown", 1)
            make.run(store, make.outcome(splits=(less,)), "updown", 2)
        cider = compared(before, after).pairs[0].scores[0]
    assert (cider.metric, cider.test, cider.reason) == ("CIDEr-D", None, "scored on other images")


@pytest.mark.parametrize(("cpu", "ratio"), [("Xeon", 2.0), ("EPYC", None)])
def test_times_of_different_machines_have_no_ratio(tmp_path: Path, make: Any, cpu: str, ratio: float | None) -> None:
    with Store(tmp_path / "before.sqlite") as before, Store(tmp_path / "after.sqlite") as after:
        for store, seconds, processor in ((before, 2.0, "Xeon"), (after, 4.0, cpu)):
            store.record_dataset(make.dataset())
            store.plan([make.spec("updown")])
            costs = {"train_seconds": Quantity(seconds, unit="s"), "parameters": Quantity(10.0)}
            environment = {"machine": "x86_64", "cpu": processor, "device": {"type": "cpu"}}
            store.finish("updown-1", make.outcome(costs=costs, environment=environment))
        found = compared(before, after, most=1)
    (pair,) = found.pairs
    assert {cost.name: cost.ratio for cost in pair.costs} == {"train_seconds": ratio, "parameters": 1.0}
    assert warnings(found) == ([] if ratio else ["Hardware differs, so times have no ratio:", "  cpu Xeon → EPYC"])


def test_captions_that_changed_most_come_first_with_their_image(fill: Any, make: Any) -> None:
    before, after = fill(("updown", 1, 0.2, {})), fill(("updown", 1, 0.4, {}))
    outcome = make.outcome(0.4)
    outcome.splits[0].captions.update({1: "a red ball", 30: "two cones"})
    after.finish("updown-1-0", outcome)
    changes = compared(before, after).pairs[0].captions
    assert [(each.image.image_id, each.before, each.after) for each in changes] == [
        (30, "cones", "two cones"),
        (1, "a ball", "a red ball"),
    ]
    assert changes[0].change == pytest.approx(0.6)
    assert changes[0].image.references == ("<b>two</b> cones",)
    assert len(compared(before, after, most=1).pairs[0].captions) == 1


def test_a_model_names_its_finished_runs(fill: Any, make: Any) -> None:
    store = fill(("updown", 1, 0.2, {}), ("blind", 1, 0.2, {}), ("blind", 2, 0.2, {}))
    store.plan([make.spec("updown", 2)])
    assert run_keys(store, "updown") == ["updown-1-0"]
    assert run_keys(store, "blind") == ["blind-1-1", "blind-2-2"]
    assert run_keys(store, "blind-2-2") == ["blind-2-2"]
    store.plan([make.spec("m2", 1)])
    with pytest.raises(StoreError, match="no run of m2 has finished: planned"):
        run_keys(store, "m2")


@pytest.mark.parametrize(("key", "message"), [("none", "no run none"), ("updown-2", "it is planned")])
def test_only_finished_runs_are_read(fill: Any, make: Any, key: str, message: str) -> None:
    store = fill(("updown", 1, 0.2, {}))
    store.plan([make.spec("updown", 2)])
    with pytest.raises(StoreError, match=message) as caught:
        stored_runs(store, [key])
    assert "updown-1-0" in str(caught.value.hint)


def weighed(tmp_path: Path, make: Any, name: str, seeds: dict[int, list[float] | None]) -> Store:
    """A store of one model; by seed the influences of three images on its BLEU-4, which is their mean."""
    store = Store(tmp_path / f"{name}.sqlite")
    store.record_dataset(make.dataset())
    for seed, influences in seeds.items():
        score = Quantity(0.25 if influences is None else float(np.mean(influences)))
        scores = {"overall": {"BLEU-4": score}}
        found = {} if influences is None else {"BLEU-4": dict(zip((1, 2, 30), influences, strict=True))}
        by_image = {"BLEU-4": {1: 0.1, 2: 0.2, 30: 0.3 + seed}}
        split = replace(make.outcome().splits[0], scores=scores, per_image=by_image, influences=found)
        make.run(store, make.outcome(splits=(split,)), "updown", seed)
    return store


def only_score(before: Store, after: Store) -> ScoreChange:
    with before, after:
        [pair] = compared(before, after).pairs
    return pair.scores[0]


def test_bleu_of_several_seeds_is_tested_over_seeds_and_images(tmp_path: Path, make: Any) -> None:
    one, two = np.random.default_rng(3).normal([[[0.2]], [[0.4]]], 0.1, (2, 3, 3))
    sides = [weighed(tmp_path, make, name, dict(enumerate(each.tolist()))) for name, each in (("a", one), ("b", two))]
    score = only_score(*sides)
    expected = architecture_difference(two, one)
    assert score.test is not None
    assert (score.over, score.no_interval, score.test.over_seeds) == (OVER_SEEDS, None, expected)
    assert score.before is not None
    assert score.after is not None
    assert score.estimate.value == pytest.approx(score.after - score.before)
    bounds = (expected.estimate.low, expected.estimate.high, expected.estimate.p)
    assert (score.estimate.low, score.estimate.high, score.test.uncorrected_p) == bounds


CIDER = ScoreChange("test", "CIDEr-D", 0.5, 0.7)
BLEU = ScoreChange("test", "BLEU-4", 0.5, 0.7)
BLEU_WITHOUT = replace(BLEU, no_interval=NO_INTERVAL)


def paired(before: list[float], after: list[float], images: int = 30) -> PairedScores:
    """Seeds with these means, whose images deviate from them all alike."""
    offsets = np.linspace(-0.1, 0.1, images)
    one, two = (np.array(means)[:, None] + offsets for means in (before, after))
    return PairedScores(np.arange(images), one, two)


def untested(score: ScoreChange, before: list[float], after: list[float], images: int = 30) -> UntestedScore:
    return UntestedScore.from_scores(score, paired(before, after, images))


@pytest.mark.parametrize(("before", "after"), [([0.4], [0.6]), ([0.4], [0.6, 0.9]), ([0.4, 0.5], [0.6])])
def test_one_seed_on_a_side_is_tested_over_images(before: list[float], after: list[float]) -> None:
    [found] = with_tests([untested(CIDER, before, after)])
    [expected] = paired_differences([paired(before, after).changes()])
    assert (found.over, found.estimate) == (OVER_IMAGES, expected)


def test_a_corpus_score_without_influences_is_tested_over_images() -> None:
    [found] = with_tests([untested(BLEU_WITHOUT, [0.4, 0.5], [0.6, 0.9])])
    assert (found.over, found.no_interval) == (OVER_IMAGES, NO_INTERVAL)


def test_tests_of_both_kinds_are_corrected_together() -> None:
    found = with_tests([untested(CIDER, [0.4, 0.5, 0.7], [0.6, 0.9, 0.8]), untested(BLEU_WITHOUT, [0.4], [0.6])])
    tests = [score.test for score in found if score.test is not None]
    assert [test.change.p for test in tests] == holm([test.uncorrected_p for test in tests])
    assert tests[0].uncorrected_p != tests[1].uncorrected_p


def test_two_seeds_have_one_degree_of_freedom_in_a_correction() -> None:
    score = untested(CIDER, [0.4, 0.41], [0.6, 0.62])
    [alone], [first, _] = with_tests([score]), with_tests([score, score])
    assert alone.test is not None
    assert first.test is not None
    assert first.test.over_seeds is not None
    expected = 2 * stats.t.sf(first.test.change.value / first.test.over_seeds.error, 1)
    assert alone.estimate.p == alone.test.uncorrected_p == first.test.uncorrected_p < 0.05
    assert first.estimate.p == pytest.approx(2 * expected)


def random_scores(generator: np.random.Generator, seeds: int, effect: float, images: int) -> PairedScores:
    before = generator.normal(0.5, 0.1, (seeds, images))
    after = (
        before.mean(axis=0) + effect + generator.normal(0, 0.1, (seeds, images)) + generator.normal(0, 0.01, (seeds, 1))
    )
    return PairedScores(np.arange(images), before, after)


@pytest.mark.parametrize("trial", range(8))
def test_an_interval_leaves_out_zero_where_its_p_is_significant(trial: int) -> None:
    generator = np.random.default_rng(trial)
    wanted = [
        UntestedScore.from_scores(CIDER, random_scores(generator, seeds, effect, images=150))
        for seeds in (1, 2, 3)
        for effect in generator.uniform(0, 0.06, 4).tolist()
    ]
    found = with_corrected_intervals(wanted)
    uncorrected = with_tests(wanted)
    significant = 0
    for score, alone in zip(found, uncorrected, strict=True):
        change = score.estimate
        assert change.value is not None
        assert change.low is not None
        assert change.high is not None
        assert change.p == alone.estimate.p
        assert (not change.low <= 0 <= change.high) == change.is_significant
        assert change.low < change.value < change.high
        significant += change.is_significant
    assert 0 < significant < len(found)


def test_few_images_have_no_interval_at_a_corrections_level() -> None:
    wanted = [untested(CIDER, [0.4], [0.6], images=6) for _ in range(3)]
    [alone] = with_corrected_intervals(wanted[:1])
    assert (alone.estimate.low, alone.estimate.high) == (pytest.approx(0.2), pytest.approx(0.2))
    for score in with_corrected_intervals(wanted):
        assert (score.estimate.low, score.estimate.high, score.estimate.reason) == (None, None, TOO_FEW_IMAGES)
