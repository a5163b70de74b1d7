"""The gate's result on made-up runs: deterministic and statistical classes, and what was not measured."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.comparison.baseline import FORMAT, Baseline, BaselineRun, PerImage, Platform, Spent, SplitResults
from results.comparison.comparison import ScoreChange
from results.comparison.gate import IDENTICAL, Scores, Tested, gate_tests, judge
from results.comparison.recording import HEADROOM, Recording, Request, Series, judge_recording, series
from results.runs.run import Run
from results.statistics.significance import Array
from tests.reports.examples import run as stored_run

HERE = Platform(
    torch="2.15.0", numpy="2.4.6", os="Debian", machine="x86_64", cpu="EPYC", threads="1", device="cpu", training="1"
)
OTHER = HERE.model_copy(update={"torch": "2.16.0"})
SIGNATURE = {"data": "scenes#6aa2", "beam": "3", "v": "0.1.0"}
RANDOM = random.Random(5)
USUAL = [RANDOM.uniform(0, 2) for _ in range(200)]
ELSEWHERE: dict[str, Any] = {"platform": OTHER, "captions": "1" * 64}  # A run whose bits are not compared


def run(model: str = "updown", scores: list[float] | None = None, **changes: Any) -> BaselineRun:
    """A run whose images have these scores; keywords change fields, `cost` its training time, `captions` the digest."""
    scores = USUAL if scores is None else scores
    cost = changes.pop("cost", Spent(value=10.0, unit="s"))
    results = SplitResults(
        scores={"CIDEr-D": sum(scores) / len(scores), "BLEU-4": 0.25},
        by_image={"CIDEr-D": PerImage.pack(dict(enumerate(scores, 1)))},
        captions=changes.pop("captions", "0" * 64),
    )
    fields: dict[str, Any] = {
        "model": model,
        "role": "model",
        "seed": 0,
        "signature": SIGNATURE,
        "code": "0.1.0 abc",
        "platform": HERE,
        "losses": ((0, 0, 2.5), (0, 1, 1.25)),
        "splits": {"test": results},
        "costs": {"train_seconds": cost, "latency_iqr": Spent(value=1.0, unit="s")},
    }
    return BaselineRun(**(fields | changes))


def baseline(*runs: BaselineRun) -> Baseline:
    return Baseline(format=FORMAT, runs=runs)


def moved(points: float, spread: float = 0.0) -> list[float]:
    """The usual scores, changed by so many points on average."""
    generator = random.Random(9)
    noise = [generator.uniform(-spread, spread) for _ in USUAL]
    return [score + (points + each - fmean(noise)) / 100 for score, each in zip(USUAL, noise, strict=True)]


def status(expected: BaselineRun, measured: BaselineRun) -> tuple[str, int]:
    found = judge(baseline(expected), baseline(measured))
    return found.rows[0].status, found.exit_code


SIDES = st.lists(st.floats(0, 3), min_size=1, max_size=10)


@settings(max_examples=30)
@given(st.lists(SIDES, min_size=1, max_size=3))
def test_nothing_is_worse_than_itself(models: list[list[float]]) -> None:
    same = baseline(*(run(f"m{place}", scores) for place, scores in enumerate(models)))
    found = judge(same, same)
    assert {row.status for row in found.rows} == {"same"}
    assert {row.exact for row in found.rows} == {"equal"}
    assert found.exit_code == 0


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3)), min_size=6, max_size=12))
def test_what_regresses_one_way_improves_the_other(pairs: list[tuple[float, float]]) -> None:
    before, after = (list(side) for side in zip(*pairs, strict=True))
    one, two = baseline(run(scores=before)), baseline(run(scores=after, **ELSEWHERE))
    opposite = {"same": "same", "regressed": "improved", "improved": "regressed"}
    there, back = (judge(*sides).rows[0].status for sides in ((one, two), (two, one)))
    assert opposite.get(back) == (there if there in opposite else None)


@pytest.mark.parametrize(
    ("points", "spread", "expected"),
    [
        (-2.0, 1.0, ("regressed", 1)),
        (+2.0, 1.0, ("improved", 0)),
        (-0.3, 0.1, ("within", 0)),  # real, and too small to matter
        (+0.1, 1.0, ("within", 0)),  # nothing, and a fall of the tolerance is excluded
        (-2.0, 80.0, ("undecided", 0)),  # large, and no more than chance
    ],
)
def test_scores_fall_where_test_and_least_effect_agree(points: float, spread: float, expected: tuple[str, int]) -> None:
    assert status(run(), run(scores=moved(points, spread), **ELSEWHERE)) == expected


def test_many_models_need_stronger_evidence() -> None:
    before = [0.0] * 10
    # One of 64 sign patterns is as low, twice for two sides: p = 1/32.
    worse = run("worse", [0.0] * 4 + [-0.5] * 6, **ELSEWHERE)
    others = [run(f"other{number}") for number in range(3)]
    alone = judge(baseline(run("worse", before)), baseline(worse))
    among = judge(baseline(run("worse", before), *others), baseline(worse, *others))
    assert alone.rows[0].tests[0].difference.adjusted == pytest.approx(1 / 32)
    assert among.rows[0].tests[0].difference.adjusted == pytest.approx(4 / 32)
    assert (alone.rows[0].status, among.rows[0].status) == ("regressed", "undecided")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"losses": ((0, 0, 2.5), (0, 1, math.nextafter(1.25, 2)))}, "stage 1, epoch 2 on: 1.25 → 1.2500000000000002"),
        ({"losses": ((0, 0, 2.5),)}, "stage 1, epoch 2 on: 1.25 → none"),
        ({"captions": "1" * 64}, "captions of test differ"),
    ],
)
def test_a_changed_bit_fails_on_the_same_platform_alone(change: dict[str, Any], said: str) -> None:
    judged = judge(baseline(run()), baseline(run(**change)))
    assert (judged.rows[0].status, judged.rows[0].exact, judged.exit_code) == ("changed", "different", 1)
    assert said in judged.rows[0].reasons[0]

    elsewhere = judge(baseline(run()), baseline(run(platform=OTHER, **change))).rows[0]
    assert (elsewhere.status, elsewhere.exact) == ("same", "not comparable here")
    assert "torch 2.15.0 → 2.16.0" in elsewhere.notes[0]


@pytest.mark.parametrize("field", [{"cpu": "unknown"}, {"device": "cuda NVIDIA H200"}])
def test_bits_are_not_compared_where_they_need_not_repeat(field: dict[str, str]) -> None:
    platform = HERE.model_copy(update=field)
    row = judge(baseline(run(platform=platform)), baseline(run(platform=platform, captions="1" * 64))).rows[0]
    assert (row.status, row.exact) == ("same", "not comparable here")


def test_a_better_model_passes_though_its_bits_changed() -> None:
    judged = judge(baseline(run()), baseline(run(scores=moved(3.0), captions="1" * 64)))
    assert (judged.rows[0].status, judged.exit_code) == ("improved", 0)
    assert "captions of test differ" in judged.rows[0].notes[0]


@pytest.mark.parametrize("torch", ["2.15.0", "2.16.0"])
def test_other_scores_of_the_same_captions_fail_even_if_higher(torch: str) -> None:
    after = run(scores=moved(3.0), platform=HERE.model_copy(update={"torch": torch}))
    judged = judge(baseline(run()), baseline(after))
    assert judged.rows[0].tests[0].verdict == "improved"
    assert (judged.rows[0].status, judged.exit_code) == ("changed", 1)
    assert "the same captions of test have other scores: CIDEr-D" in judged.rows[0].reasons[0]


def test_a_run_without_anything_comparable_is_refused() -> None:
    bare = {"test": run().splits["test"].model_copy(update={"by_image": {}})}
    judged = judge(baseline(run(splits=bare)), baseline(run(splits=bare, platform=OTHER)))
    assert (judged.rows[0].status, judged.exit_code) == ("refused", 2)
    assert judge(baseline(run(splits=bare)), baseline(run(splits=bare))).exit_code == 0, "bits are enough"
    empty = run(splits={}, losses=())
    assert judge(baseline(empty), baseline(run())).exit_code == 2, "nor by bits that were never written down"


def failure(model: str) -> Run:
    return replace(stored_run(), model=model, seed=0, status="failed", reason="out of luck", error_class="RuntimeError")


def test_what_was_not_measured_fails_and_says_why() -> None:
    judged = judge(baseline(run("a"), run("b"), run("c")), baseline(run("c"), run("d")), [failure("a")])
    assert [row.status for row in judged.rows] == ["missing", "missing", "same"]
    assert judged.rows[0].reasons == ("a seed 0 was not measured: failed: RuntimeError: out of luck",)
    assert judged.rows[1].reasons == ("b seed 0 was not measured: no such run was planned",)
    assert judged.fresh == ("d seed 0",)
    assert judged.exit_code == 1
    assert judge(baseline(run("a")), None).exit_code == 1


def test_a_changed_setting_is_a_finding_that_names_the_field() -> None:
    judged = judge(baseline(run()), baseline(run(signature={**SIGNATURE, "beam": "5"})))
    assert (judged.rows[0].status, judged.exit_code) == ("changed", 1)
    assert judged.rows[0].reasons == ("updown seed 0 was measured under other conditions: beam 3 → 5",)


def test_another_release_is_what_the_gate_is_for() -> None:
    assert status(run(), run(signature={**SIGNATURE, "v": "9.9.9"})) == ("same", 0)


def test_seeds_are_judged_together_and_all_are_expected() -> None:
    up, down = moved(+5), moved(-5)
    expected = baseline(run(), run(seed=1))
    judged = judge(expected, baseline(run(scores=up, **ELSEWHERE), run(scores=down, seed=1, **ELSEWHERE)))
    assert len(judged.rows) == 1
    assert judged.rows[0].seeds == (0, 1)
    assert judged.rows[0].status == "undecided", "the seeds differ by 10 points"
    assert judged.rows[0].tests[0].difference.difference == pytest.approx(0)
    assert judge(expected, baseline(run())).rows[0].status == "missing"


def test_a_metric_or_split_that_is_gone_was_not_measured() -> None:
    bare = run().splits["test"].model_copy(update={"by_image": {}})
    for splits in ({"test": bare}, {}):
        judged = judge(baseline(run()), baseline(run().model_copy(update={"splits": splits})))
        assert judged.rows[0].status == "missing"
        assert judged.rows[0].reasons == ("updown: CIDEr-D on test was not measured with every seed",)


def test_other_images_cannot_be_judged() -> None:
    judged = judge(baseline(run()), baseline(run(scores=USUAL[:-2])))
    assert judged.rows[0].reasons == ("updown: CIDEr-D on test is of other images: 2 on one side alone",)
    assert judged.exit_code == 2


def test_times_are_told_and_judge_nothing() -> None:
    row = judge(baseline(run()), baseline(run(cost=Spent(value=30.0, unit="s")))).rows[0]
    assert row.status == "same"
    assert {each.name: each.slowdown for each in row.costs}["train_seconds"] == 3
    gone = judge(baseline(run()), baseline(run().model_copy(update={"costs": {}}))).rows[0]
    assert (gone.status, gone.notes[0]) == ("same", "updown: train_seconds was not measured this time")


TOLERANCE = {"CIDEr-D": 5.0}


def scores(before: Array, after: Array) -> Scores:
    """Of arrays (S, N), in points."""
    one, two = ([dict(enumerate((seed / 100).tolist(), 1)) for seed in side] for side in (before, after))
    return ScoreChange("test", "CIDEr-D", None, None), (one, two)


def drawn(generator: np.random.Generator, seeds: int, deviation: float, images: int = 200) -> Array:
    """Scores (S, N) in points: the images' own effects are shared by all seeds and sides."""
    shared = np.linspace(-80, 80, images)
    effects = deviation * generator.standard_normal((seeds, 1))
    return 100 + shared + effects + 20 * generator.standard_normal((seeds, images))


def result_of(before: Array, after: Array) -> Tested:
    return gate_tests([scores(before, after)], TOLERANCE)[0]


@pytest.mark.parametrize("seeds", [1, 3])
def test_identical_scores_are_as_before_without_a_test(seeds: int) -> None:
    same = drawn(np.random.default_rng(1), seeds, 4)
    found = result_of(same, same)
    assert (found.verdict, found.over, found.detectable, found.architecture) == ("same", IDENTICAL, None, None)
    assert (found.difference.difference, found.difference.low, found.difference.high) == (0, 0, 0)


def test_equal_means_of_other_seeds_are_not_as_before() -> None:
    before = drawn(np.random.default_rng(1), 3, 4)
    [found] = gate_tests([scores(before, before[::-1])], {})
    assert (found.verdict, found.difference.difference) == ("undecided", pytest.approx(0))


@pytest.mark.parametrize(
    ("seeds", "deviation", "change", "verdict"),
    [
        (10, 1, -1.0, "within"),
        (2, 8, -1.0, "undecided"),
        (10, 1, -20.0, "regressed"),
        (10, 1, +20.0, "improved"),
        (1, 0, +1.0, "within"),
    ],
)
def test_the_interval_decides_what_is_not_significant(
    seeds: int, deviation: float, change: float, verdict: str
) -> None:
    generator = np.random.default_rng(3)
    before = drawn(generator, seeds, deviation)
    found = result_of(before, drawn(generator, seeds, deviation) + change)
    assert found.verdict == verdict
    assert (100 * found.difference.low > -5) == (verdict in ("within", "improved"))


def test_five_images_exclude_nothing() -> None:
    before = drawn(np.random.default_rng(1), 1, 0, images=5)
    found = result_of(before, before + 0.01)
    assert (found.verdict, found.detectable) == ("undecided", None)


def steps(values: list[float], what: str = "xe: loss", **given: Any) -> Series:
    found = {str(number): value for number, value in enumerate(values, 1)}
    return series("starts", "updown", what, "step", found, ["zoo/"], **given)


def recording(*of: Series) -> Recording:
    request = Request(models=("updown",), preset="first-steps")
    return Recording(request=request, code="1", platform={"torch": "2"}, series=of)


def test_a_tolerance_is_what_other_roundings_changed_and_grows_with_the_steps() -> None:
    base = steps([1.0] * 8, rounding=1e-6)
    others = [steps([1.0] * 6 + [1.0 + 1e-3, 1.0]), steps([1.0] * 6 + [1.0 + 2e-3, 1.0])]
    allowed = base.with_tolerance(others).tolerance
    assert allowed == pytest.approx([1e-6] * 2 + [HEADROOM * 1e-3] * 6), "of two replicas the smaller, four steps ahead"
    assert base.with_tolerance(others[:1]).tolerance == (1e-6,), "one replica alone may have drawn another word"


@pytest.mark.parametrize(("now", "found"), [(1.0 + 9e-4, 0), (1.0 + 2e-3, 1)])
def test_numbers_may_differ_within_their_tolerance(now: float, found: int) -> None:
    base = steps([1.0, 1.0], rounding=1e-3)
    judged = judge_recording(recording(base), recording(steps([1.0, now])), 0.0)
    assert len(judged.findings) == found
    assert all((each.place, each.places, each.size) == ("2", 1, pytest.approx(2.0)) for each in judged.findings)


def test_texts_must_be_equal_but_for_ties() -> None:
    captions = {"1": "a cat", "2": "a dog"}
    base = series("speaks", "updown", "captions", "image", captions, ["zoo/decoding.py"])
    tied = base.with_tolerance([series("speaks", "updown", "captions", "image", captions | {"2": "a cow"}, [])])
    now = series("speaks", "updown", "captions", "image", captions | {"2": "a cow"}, [])
    assert judge_recording(recording(tied), recording(now), 0.0).ties
    assert judge_recording(recording(tied), recording(now), 0.0).findings == ()
    [finding] = judge_recording(recording(base), recording(now), 0.0).findings
    assert (finding.place, finding.before, finding.after, finding.size) == ("2", "a dog", "a cow", None)


def test_the_first_cause_comes_first_and_says_where_to_look() -> None:
    setting = series("settings", "", "settings", "setting", {"beam": "2"}, ["harness/config/"])
    base = [setting, steps([1.0, 1.0]), steps([2.0, 2.0], "xe: weights of input")]
    now = [setting, steps([1.0, 3.0]), steps([3.0, 3.0], "xe: weights of input")]
    first, second = judge_recording(recording(*base), recording(*now), 0.0).findings
    assert (first.what, first.place, second.place) == ("xe: weights of input", "1", "2")
    assert first.likely == ("zoo/",)


def test_a_changed_setting_and_what_is_gone_are_findings() -> None:
    base = series("settings", "", "settings", "setting", {"beam": "2", "gone": "1"}, [])
    now = series("settings", "", "settings", "setting", {"beam": "1", "new": "1"}, [])
    [finding] = judge_recording(recording(base, steps([1.0])), recording(now, steps([1.0])), 0.0).findings
    assert (finding.place, finding.before, finding.after, finding.places) == ("beam", "2", "1", 3)
    [missing] = judge_recording(recording(base, steps([1.0])), recording(base), 0.0).findings
    assert (missing.what, missing.after) == ("xe: loss", "none")


def test_a_recording_is_read_as_it_was_written(tmp_path: Any) -> None:
    whole = recording(steps([1.0, 0.123456789], rounding=1e-6))
    (tmp_path / "recording.json").write_text(whole.text(), encoding="utf-8")
    assert Recording.read(tmp_path) == whole


def test_a_recording_of_the_first_release_is_read_and_written_without_its_digests(tmp_path: Path) -> None:
    whole = recording(steps([1.0, 2.0]))
    older = {**json.loads(whole.text()), "files": {"zoo/models/updown.py": "0a1b2c3d"}}
    (tmp_path / "recording.json").write_text(json.dumps(older), encoding="utf-8")
    read = Recording.read(tmp_path)
    assert judge_recording(read, whole, 0.0).findings == ()
    assert read.text() == whole.text()
