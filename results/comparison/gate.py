"""Whether runs became worse than a baseline: exactly, where bits can be compared; by tests of scores; and in time.

A score changed only where a test *and* a least effect agree, as in asv's `compare`. Pure: it reads no store.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, Literal

from results.comparison.baseline import Baseline, BaselineRun, differing, row_of, scores_of_seeds, tested_metrics
from results.comparison.comparison import CostChange, ScoreChange, SeedsOfSides, cost_changes, with_tests
from results.runs.run import Run
from results.statistics.architecture import OVER_IMAGES, OVER_SEEDS, ArchitectureDifference
from results.statistics.power import detectable_at_best, detectable_from
from results.statistics.significance import ALPHA, Difference, matrix, mean_of_seeds

TOLERANCE: Final = 0.5  # the least effect that counts, in points of a metric times 100
IDENTICAL: Final = "identical scores of every image"
"""What `Tested.over` says where nothing differs, so that there is nothing to test."""

Status = Literal["same", "within", "undecided", "improved", "changed", "regressed", "missing", "refused"]
Verdict = Literal["same", "within", "undecided", "improved", "regressed"]
Exact = Literal["equal", "different", "not comparable here", "not judged"]
BLOCKING: Final = frozenset({"changed", "regressed", "missing"})


@dataclass(frozen=True, slots=True)
class Tested:
    """One metric on one split, over the mean of a row's seeds.

    `verdict`: "same" where every image's scores are identical; "regressed" and "improved" where test and least effect
    agree; else "within" where the interval excludes a fall of the tolerance, and "undecided" where it does not.
    `detectable` is the smallest fall that this test finds four times in five if no other row has changed.
    """

    split: str
    metric: str
    difference: Difference
    verdict: Verdict
    over: str
    detectable: float | None = None
    architecture: ArchitectureDifference | None = None


@dataclass(frozen=True, slots=True)
class GateRow:
    """One model under one set of conditions, over its expected seeds, and its result.

    `exact` is the result of the deterministic class. `reasons` are sentences for why the row fails or could not
    be judged, `notes` say what blocks nothing.
    """

    model: str
    role: str
    seeds: tuple[int, ...]
    status: Status
    exact: Exact
    tests: tuple[Tested, ...] = ()
    costs: tuple[CostChange, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GateResult:
    """All rows in the baseline's order; `fresh` names runs that the baseline does not hold.

    `tolerance` is by metric, in points, where it is not `TOLERANCE`. `before` and `after` are the code that made each
    side, `tests` the number of tests corrected together.
    """

    rows: tuple[GateRow, ...]
    fresh: tuple[str, ...]
    tolerance: Mapping[str, float]
    before: str
    after: str
    tests: int
    alpha: float = ALPHA

    def least(self, metric: str) -> float:
        """The least effect on a metric that counts, in points."""
        return self.tolerance.get(metric, TOLERANCE)

    @property
    def failed(self) -> tuple[GateRow, ...]:
        return tuple(row for row in self.rows if row.status in BLOCKING)

    @property
    def undecided(self) -> tuple[Tested, ...]:
        return tuple(tested for row in self.rows for tested in row.tests if tested.verdict == "undecided")

    @property
    def refused(self) -> tuple[GateRow, ...]:
        return tuple(row for row in self.rows if row.status == "refused")

    @property
    def exit_code(self) -> int:
        """1 for a regression or something missing, 2 where something could not be judged, else 0."""
        return 1 if self.failed else 2 if self.refused else 0


FEWEST_IMAGES: Final = 6  # with fewer no sign-flip test reaches p < 0.05, and so none excludes anything
Scores = tuple[ScoreChange, SeedsOfSides]


def gate_tests(wanted: Sequence[Scores], tolerance: Mapping[str, float]) -> list[Tested]:
    """The test of each, by the estimator of `bench compare`, all corrected together.

    Where every image's scores are identical, nothing is tested: the difference is 0, and the interval no wider. It
    counts among the tests all the same, with p = 1.
    """
    found = []
    for change, (_, sides) in zip(with_tests(wanted), wanted, strict=True):
        split, metric, test, over = change.split, change.metric, change.test, change.over
        assert test is not None
        assert over is not None
        if all(one == two for one, two in zip(*sides, strict=True)):
            found.append(Tested(split, metric, replace(test, low=0.0, high=0.0), "same", IDENTICAL))
            continue
        verdict = _verdict(test, tolerance.get(metric, TOLERANCE))
        least = _detectable(sides, over, len(wanted))
        found.append(Tested(split, metric, test, verdict, over, least, change.architecture))
    return found


def _verdict(test: Difference, least: float) -> Verdict:
    """What a difference means, with the least effect in points.

    The interval is of one test, not corrected: that all of several rows are within the tolerance is wrongly said no
    more often than that one of them is (Berger, "Multiparameter Hypothesis Testing and Acceptance Sampling",
    Technometrics 1982).
    """
    if test.adjusted < ALPHA and 100 * abs(test.difference) >= least:
        return "improved" if test.difference > 0 else "regressed"
    return (
        "within" if test.low is not None and 100 * test.low > -least and test.images >= FEWEST_IMAGES else "undecided"
    )


def _detectable(sides: SeedsOfSides, over: str, tests: int) -> float | None:
    """The smallest fall that such a test finds, from how much these scores vary."""
    before, after = map(matrix, sides)
    if before is None or after is None or before.shape[1] < FEWEST_IMAGES:
        return None
    if over == OVER_SEEDS:
        return detectable_from(before, after, tests)
    assert over == OVER_IMAGES
    return detectable_at_best(before.shape[1], float((after.mean(axis=0) - before.mean(axis=0)).std(ddof=1)), tests)


def exactness(before: BaselineRun, after: BaselineRun) -> tuple[Exact, list[str]]:
    """Whether bits are equal, on the CPU that the baseline was made on, with a sentence for what differs."""
    apart = before.platform.differs(after.platform)
    if apart or not before.platform.device.startswith("cpu"):
        why = "; ".join(apart) or f"on {before.platform.device} training does not repeat to the bit"
        return "not comparable here", [f"{before.name}: bits are not comparable here: {why}"]
    if not before.losses and not before.splits:
        return "not comparable here", [f"{before.name}: the baseline has neither losses nor captions of it"]
    changed = [f"{before.name}: {what}" for what in _changed(before, after)]
    return ("different", changed) if changed else ("equal", [])


def _changed(before: BaselineRun, after: BaselineRun) -> Iterator[str]:
    """The first loss that is another, and the splits whose captions are."""
    one, two = ({(stage, epoch): loss for stage, epoch, loss in run.losses} for run in (before, after))
    for place in sorted(one.keys() | two.keys()):
        if one.get(place) != two.get(place):
            shown = " → ".join(repr(losses[place]) if place in losses else "none" for losses in (one, two))
            yield f"losses differ from stage {place[0] + 1}, epoch {place[1] + 1} on: {shown}"
            break
    for split, results in before.splits.items():
        if split in after.splits and results.captions != after.splits[split].captions:
            yield f"captions of {split} differ"


def rescored(before: BaselineRun, after: BaselineRun) -> list[str]:
    """Where the same captions have other scores: on every platform they should be the same."""
    found = []
    for split, results in before.splits.items():
        now = after.splits.get(split)
        if now is None or now.captions != results.captions:
            continue
        for metric in (metric for metric in results.scores if metric in now.scores):
            one, two = results.scores[metric], now.scores[metric]
            if abs(one - two) > 1e-9:  # more than rounding
                scores = f"{metric} {100 * one:.4f} → {100 * two:.4f}"
                found.append(f"{before.name}: the same captions of {split} have other scores: {scores}")
    return found


@dataclass(slots=True)
class _Pair:
    """The expected runs of a row by seed, those measured in their place, and by status why they are kept apart."""

    expected: list[BaselineRun] = field(default_factory=list)
    measured: list[BaselineRun] = field(default_factory=list)
    apart: dict[Status, list[str]] = field(default_factory=lambda: {"missing": [], "changed": [], "refused": []})
    tests: list[Tested] = field(default_factory=list)

    @property
    def comparable(self) -> bool:
        return not any(self.apart.values())

    @property
    def model(self) -> str:
        return self.expected[0].model


def judge(
    expected: Baseline,
    measured: Baseline | None,
    unfinished: Sequence[Run] = (),
    tolerance: Mapping[str, float] | None = None,
) -> GateResult:
    """Compare what was measured (None: nothing) with what is expected; `unfinished` says why something is missing."""
    tolerance = tolerance or {}
    runs = measured.runs if measured else ()
    found = {run.identity: run for run in runs}
    pairs: dict[object, _Pair] = {}
    for run in expected.runs:
        pair = pairs.setdefault(row_of(run), _Pair())
        pair.expected.append(run)
        if run.identity in found:
            pair.measured.append(found[run.identity])
        else:
            status, why = _absence(run, [other for other in runs if other.who == run.who], unfinished)
            pair.apart[status].append(f"{run.name} was {why}")
    wanted = [(pair, scores) for pair in pairs.values() if pair.comparable for scores in _scores(pair)]
    for (pair, _), tested in zip(wanted, gate_tests([scores for _, scores in wanted], tolerance), strict=True):
        pair.tests.append(tested)
    known = {run.identity for run in expected.runs}
    return GateResult(
        rows=tuple(map(_row, pairs.values())),
        fresh=tuple(run.name for run in runs if run.identity not in known),
        tolerance=tolerance,
        before=_codes(expected.runs),
        after=_codes(runs) or "nothing measured",
        tests=len(wanted),
    )


def _absence(run: BaselineRun, others: Sequence[BaselineRun], unfinished: Sequence[Run]) -> tuple[Status, str]:
    """Why an expected run has no counterpart: it was measured under other conditions, or not at all."""
    failure = next((each for each in unfinished if (each.role, each.model, each.seed) == run.who), None)
    if failure is not None:
        what = ": ".join(filter(None, (failure.status, failure.error_class, failure.reason)))
        return "missing", f"not measured: {what}"
    if not others:
        return "missing", "not measured: no such run was planned"
    nearest = min((differing(run.conditions, other.conditions) for other in others), key=len)
    return "changed", f"measured under other conditions: {'; '.join(nearest)}"


def _scores(pair: _Pair) -> list[Scores]:
    found: list[Scores] = []
    for split, metric in tested_metrics(pair.expected):
        before, after = (scores_of_seeds(runs, split, metric) for runs in (pair.expected, pair.measured))
        what = f"{pair.model}: {metric} on {split}"
        if before is None or after is None:
            pair.apart["missing"].append(f"{what} was not measured with every seed")
        elif odd := mean_of_seeds(before).keys() ^ mean_of_seeds(after).keys():
            pair.apart["refused"].append(f"{what} is of other images: {len(odd)} on one side alone")
        else:
            found.append((ScoreChange(split, metric, None, None), (before, after)))
    return found


def _row(pair: _Pair) -> GateRow:
    first, tests, seeds = pair.expected[0], tuple(pair.tests), tuple(run.seed for run in pair.expected)
    if not pair.comparable:
        status = next(status for status, why in pair.apart.items() if why)
        reasons = tuple(chain.from_iterable(pair.apart.values()))
        return GateRow(first.model, first.role, seeds, status, "not judged", tests, reasons=reasons)
    exact, said = _exact(pair)
    other = list(chain.from_iterable(map(rescored, pair.expected, pair.measured)))
    fell = []
    for each in (each for each in tests if each.verdict == "regressed"):
        points, p = -100 * each.difference.difference, each.difference.adjusted
        fell.append(f"{pair.model}: {each.metric} on {each.split} fell by {points:.1f} points (p {p:.2g})")
    improved = any(each.verdict == "improved" for each in tests)
    # A deterministic result does not change by itself. Where a model improved, changed bits are expected; where the
    # same captions score higher, only the evaluator changed, which is no improvement.
    expected = improved and not fell and not other
    changed = [*other, *(said if exact == "different" else [])] if not expected else []
    unknown = []
    if not tests and exact != "equal" and not changed:
        unknown.append(f"{pair.model}: neither bits nor scores of images can be compared")
    ends: dict[Status, list[str]] = {"regressed": fell, "changed": changed, "refused": unknown}
    ends["undecided"] = list(_doubts(pair, tests))
    passed: Status = "within" if any(each.verdict == "within" for each in tests) else "same"
    status = next((status for status, why in ends.items() if why), "improved" if improved else passed)
    costs, reasons = tuple(cost_changes(pair.expected, pair.measured)), tuple(chain.from_iterable(ends.values()))
    notes = (*(what for what in (*other, *said) if what not in changed), *_cost_notes(pair))
    return GateRow(first.model, first.role, seeds, status, exact, tests, costs, reasons, notes)


def _exact(pair: _Pair) -> tuple[Exact, list[str]]:
    found = [exactness(before, after) for before, after in zip(pair.expected, pair.measured, strict=True)]
    order: tuple[Exact, ...] = ("different", "not comparable here", "equal")
    worst = min((exact for exact, _ in found), key=order.index)
    said = [sentence for exact, sentences in found if exact == worst for sentence in sentences]
    return worst, said if len(said) < 2 else [f"{said[0]}; and {len(said) - 1} more like it, of its seeds and splits"]


def _doubts(pair: _Pair, tests: Sequence[Tested]) -> Iterator[str]:
    """Where a fall of the tolerance is neither found nor excluded, with what could have been missed."""
    for each in tests:
        if each.verdict == "undecided":
            test, what = each.difference, f"{pair.model}: {each.metric} on {each.split}"
            bounds = "no interval"
            if test.low is not None and test.high is not None:
                bounds = f"95 %: {100 * test.low:+.1f}…{100 * test.high:+.1f}"
            if each.detectable is None:
                yield f"{what}: undecided, {test.images} images are too few for any test"
            elif test.adjusted < ALPHA and test.difference < 0:
                yield f"{what}: undecided, it fell by less than the tolerance, and more is not excluded ({bounds})"
            else:
                size = f"one of up to {100 * each.detectable:.1f} points could have gone unseen"
                yield f"{what}: undecided, no fall found, {size} ({bounds})"


def _cost_notes(pair: _Pair) -> Iterator[str]:
    runs = list(zip(pair.expected, pair.measured, strict=True))
    for name in pair.expected[0].costs:
        if any(name in before.costs and name not in after.costs for before, after in runs):
            yield f"{pair.model}: {name} was not measured this time"
    for each in cost_changes(pair.expected, pair.measured):
        if (each.name == "parameters" or each.unit == "GMAC") and each.before != each.after:
            yield f"{pair.model}: {each.name} {each.before:g} → {each.after:g}"


def _codes(runs: Sequence[BaselineRun]) -> str:
    return ", ".join(dict.fromkeys(run.code for run in runs))
