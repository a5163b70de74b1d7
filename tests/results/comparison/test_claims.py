"""Claims judged by small made-up stores."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from scipy.special import stdtrit
from scipy.stats import ttest_ind

from results import Store
from results.comparison.claims import NO_NUMBERS, Claim, ClaimRow, judge
from results.runs.standings import Judging
from tests.results.comparison.claim_stores import RISING, Trained, store_of

PUBLISHED = {"difference": 1.9, "metric": "CIDEr-D", "table": "Table 1"}
HIGHER: dict[str, Any] = {
    "sentence": "A helps", "paper": "A paper", "published": PUBLISHED,
    "runs": {"models": ["new*"]}, "than": {"models": ["old"]},
}  # fmt: skip
XE, BOTH = ("xe",), ("xe", "scst")
TURNED = {
    **HIGHER,
    "published": PUBLISHED | {"after": -2.0},
    "direction": "reversed",
    "runs": {"models": ["new"], "stages": XE},
    "than": {"models": ["old"], "stages": XE},
    "after": {"runs": {"models": ["new"], "stages": BOTH}, "than": {"models": ["old"], "stages": BOTH}},
    "varies": ["schedule", "reward"],
}
Judged = Callable[..., list[ClaimRow]]


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    """`judged(claim, Trained(...), ...)` gives the rows of a claim on a store of these runs."""

    def judging(claim: dict[str, Any], *trained: Trained, **options: Any) -> list[ClaimRow]:
        with Store(str(store_of(tmp_path / "bench.sqlite", trained)), read_only=True) as store:
            return judge(store, [Claim.model_validate(claim)], **options)

    return judging


@pytest.mark.parametrize(
    ("points", "direction", "verdict"),
    [
        (5, "higher", "supported"),
        (-5, "higher", "contradicted"),
        (-5, "lower", "supported"),
        (5, "lower", "contradicted"),
    ],
)
def test_a_significant_difference_decides_by_its_sign(
    judged: Judged, points: float, direction: str, verdict: str
) -> None:
    [row] = judged(HIGHER | {"direction": direction}, Trained("new", points), Trained("old", 0))
    [finding] = row.findings
    assert row.verdict == verdict
    assert finding.difference == pytest.approx(points / 100, abs=0.005)
    wide = finding.score.architecture
    assert wide is not None
    assert wide.low is not None
    assert wide.high is not None
    assert wide.low < points / 100 < wide.high
    assert wide.seeds == (3, 3)


@pytest.mark.parametrize(
    ("margin", "verdict"), [(None, "no difference"), (0.4, "no difference"), (0.2, "cannot be told")]
)
def test_a_small_difference_is_bounded_or_cannot_be_told(judged: Judged, margin: float | None, verdict: str) -> None:
    """Two one-sided tests at 5 %: within 3 % of the score, or the margin that was given."""
    [row] = judged(HIGHER, Trained("new", 0.01), Trained("old", 0), judging=Judging(margin=margin))
    assert row.verdict == verdict
    wide = row.findings[0].score.architecture
    assert wide is not None
    assert wide.error is not None
    bound = 100 * (abs(wide.difference) + stdtrit(wide.degrees, 0.95) * wide.error)
    assert (f"{bound:.1f} points" in row.reason) == (verdict == "no difference")
    needed = row.findings[0].score.needed
    assert needed is not None
    assert needed[0] is None or needed[0] > 3, "more seeds than there are"


COSTS_LESS = HIGHER | {
    "published": {"ratio": 6, "metric": "train_seconds", "table": "Table 1"},
    "metric": "train_seconds",
    "direction": "lower",
}


@pytest.mark.parametrize(
    ("seconds", "seeds", "verdict"),
    [(50, 3, "supported"), (200, 3, "contradicted"), (100, 3, "cannot be told"), (50, 1, "cannot be told")],
)
def test_a_cost_is_compared_as_a_ratio(judged: Judged, seconds: float, seeds: int, verdict: str) -> None:
    runs = Trained("new", 0, seeds=seeds, seconds=seconds), Trained("old", 0, seconds=100)
    [row] = judged(COSTS_LESS, *runs)
    assert row.verdict == verdict
    assert f"train_gmac {100 / seconds:.2f} times" in row.reason or seeds == 1
    if seeds > 1:
        logs = [[math.log(of * (1 + 0.01 * seed)) for seed in range(3)] for of in (100, seconds)]
        interval = ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
        assert row.ratio == pytest.approx((100 / seconds, math.exp(interval.low), math.exp(interval.high)))
    [gmac] = judged(COSTS_LESS | {"metric": "train_gmac"}, *runs)
    assert gmac.verdict == verdict


@pytest.mark.parametrize(
    ("metric", "new", "why"),
    [
        ("CIDEr-D", Trained("new", 9, seeds=1), "new: needs seeds"),
        ("ROUGE-L", Trained("new", 9), NO_NUMBERS),
        ("CIDEr-D", Trained("new", 9, curve=RISING), "new: still learning"),
    ],
)
def test_without_a_verdict_the_reason_is_told(judged: Judged, metric: str, new: Trained, why: str) -> None:
    [row] = judged(HIGHER | {"metric": metric}, new, Trained("old", 0))
    assert (row.verdict, why in row.reason) == ("cannot be told", True)


def test_a_model_that_was_still_learning_has_a_verdict_on_request(judged: Judged) -> None:
    trained = Trained("new", 9, curve=RISING), Trained("old", 0)
    [row] = judged(HIGHER, *trained, judging=Judging(place_unfinished=True))
    assert (row.verdict, row.reason) == ("supported", "significantly higher; new was still learning")


def test_sides_of_other_conditions_are_refused_with_what_differs(judged: Judged) -> None:
    [row] = judged(HIGHER, Trained("new", 9), Trained("old", 0, beam="5"))
    assert (row.verdict, row.findings) == ("not comparable", ())
    assert row.reason == "the sides differ in beam 5 → 3"


@pytest.mark.parametrize(("batch_size", "verdict"), [(24, "supported"), (25, "not comparable")])
def test_what_was_trained_on_began_as_the_other_side_did(judged: Judged, batch_size: int, verdict: str) -> None:
    [row] = judged(
        HIGHER | {"varies": ["schedule", "reward"]},
        Trained("new", 9, stages=BOTH),
        Trained("old", 0, stages=XE, batch_size=batch_size),
    )
    assert row.verdict == verdict


def test_conditions_that_may_vary_do_not_forbid_a_comparison(judged: Judged) -> None:
    trained = Trained("new", 9, stages=BOTH), Trained("old", 0)
    claim = HIGHER | {"runs": {"models": ["new"], "stages": BOTH}}
    [row] = judged(claim | {"varies": ["schedule", "reward"]}, *trained)
    assert row.verdict == "supported"


def test_every_set_of_conditions_has_a_row(judged: Judged) -> None:
    beams = [Trained(model, points, beam=beam) for model, points in (("new", 9), ("old", 0)) for beam in ("3", "5")]
    rows = judged(HIGHER, *beams)
    assert [row.verdict for row in rows] == ["supported"] * 2
    assert {dict(row.conditions)["beam"] for row in rows} == {"3", "5"}


def test_missing_runs_are_named(judged: Judged) -> None:
    [row] = judged(HIGHER | {"than": {"models": ["gone"], "preset": "quick"}}, Trained("new", 0))
    assert (row.verdict, row.reason) == ("no runs", "no finished run of gone (preset quick)")


@pytest.mark.parametrize(
    ("named", "said"), [({"metric": "SPICE"}, "SPICE on test"), ({"split": "val"}, "CIDEr-D on val")]
)
def test_scores_that_no_run_has_are_no_missing_models(judged: Judged, named: dict[str, str], said: str) -> None:
    [row] = judged(HIGHER | named, Trained("new", 5), Trained("old", 0))
    assert (row.verdict, row.reason) == ("no runs", f"no finished run has a score by {said}")


@pytest.mark.parametrize(
    ("first", "after", "verdict"),
    [(5, -5, "supported"), (5, 5, "contradicted"), (5, 0, "cannot be told"), (-5, 5, "contradicted")],
)
def test_an_order_is_turned_where_both_differences_are_sure(
    judged: Judged, first: float, after: float, verdict: str
) -> None:
    before = Trained("new", first), Trained("old", 0)
    [row] = judged(TURNED, *before, Trained("new", after, stages=BOTH), Trained("old", 0, stages=BOTH))
    assert row.verdict == verdict
    assert len(row.findings) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        *(HIGHER | {"direction": direction} for direction in ("reversed", "up")),
        *(HIGHER | more for more in ({"runs": {"models": []}}, {"unknown": 1})),
        COSTS_LESS | {"metric": "CIDEr-D"},
        *(COSTS_LESS | {"published": published} for published in (PUBLISHED, {**PUBLISHED, "ratio": 2})),
    ],
)
def test_what_is_no_claim_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Claim.model_validate(wrong)
