"""Whether runs became worse than a baseline: exactly, where bits can be compared; by tests of scores; and in time.

A score changed only where a test *and* a least effect agree, as in asv's `compare`. Pure: it reads no store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final, Literal, NamedTuple

import numpy as np

from results.comparison.baseline import Baseline, BaselineRun, differing, scores_of_seeds, tested_metrics
from results.comparison.comparison import (
    CostChange,
    ScoreChange,
    SeedsOfSides,
    cost_changes,
    is_time,
    missing_costs,
    other_hardware,
    with_tests,
)
from results.runs.run import Run
from results.statistics.architecture import OVER_IMAGES, OVER_SEEDS, ArchitectureDifference, missing, summary
from results.statistics.power import MAX_SEEDS, detectable, detectable_at_best, detectable_from, least_seeds
from results.statistics.significance import ALPHA, RESAMPLES, Array, ByImage, Difference, mean_of_seeds

TOLERANCE: Final = 0.5
"""The least effect that counts, in points of a metric times 100."""
IDENTICAL: Final = "identical scores of every image"
"""What `Tested.over` says where nothing differs, so that there is nothing to test."""

Status = Literal["same", "within", "undecided", "improved", "changed", "slower", "regressed", "missing", "refused"]
Verdict = Literal["same", "within", "undecided", "improved", "regressed"]
Exact = Literal["equal", "different", "not comparable here", "not judged"]
BLOCKING: Final = frozenset({"changed", "slower", "regressed", "missing"})


@dataclass(frozen=True, slots=True)
class Settings:
    """What the gate's result depends on.

    `tolerance` by metric, in points, where it is not `TOLERANCE`. `exact`: a changed bit fails. `strict_timing`: so
    does a time that is this many times as long; None: times are only reported. `require_power`: so does a test that
    cannot exclude a fall of the tolerance.
    """

    tolerance: Mapping[str, float] = field(default_factory=dict)
    exact: bool = True
    strict_timing: float | None = None
    require_power: bool = False

    def least(self, metric: str) -> float:
        """The least effect on `metric`, in points."""
        return self.tolerance.get(metric, TOLERANCE)


@dataclass(frozen=True, slots=True)
class Tested:
    """One metric on one split, over the mean of a row's seeds.

    `verdict`: "same" where every image's scores are identical; "regressed" and "improved" where test and least effect
    agree; else "within" where the interval excludes a fall of the tolerance, and "undecided" where it does not. `over`
    is what the test and its interval are over: `OVER_SEEDS` or `OVER_IMAGES` of `results.statistics.architecture`, or
    `IDENTICAL`; `architecture` has standard error and degrees of freedom of the first. `detectable` is the smallest
    fall, a fraction, that this test finds with a probability of 80 % if no other row has changed; None where
    nothing was tested, or images are too few to say.
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

    `before` and `after` are the code that made each side, `tests` the number of tests corrected together.
    """

    rows: tuple[GateRow, ...]
    fresh: tuple[str, ...]
    settings: Settings
    before: str
    after: str
    tests: int
    resamples: int = RESAMPLES
    alpha: float = ALPHA

    def blocks(self, status: Status) -> bool:
        """Whether a row or test of this status fails the gate."""
        return status in BLOCKING or (status == "undecided" and self.settings.require_power)

    @property
    def failed(self) -> tuple[GateRow, ...]:
        """The rows that block."""
        return tuple(row for row in self.rows if self.blocks(row.status))

    @property
    def undecided(self) -> tuple[Tested, ...]:
        """The tests that found no fall, and could not have excluded one of the tolerance."""
        return tuple(tested for row in self.rows for tested in row.tests if tested.verdict == "undecided")

    @property
    def refused(self) -> tuple[GateRow, ...]:
        """The rows that could not be judged."""
        return tuple(row for row in self.rows if row.status == "refused")

    @property
    def exit_code(self) -> int:
        """1 for a regression or something missing, 2 where something could not be judged, else 0."""
        return 1 if self.failed else 2 if self.refused else 0


FEWEST_IMAGES: Final = 6
"""With fewer no sign-flip test reaches p < 0.05, and so none excludes anything."""


class Scores(NamedTuple):
    """One metric of one split: the images' scores before and after, of each seed, on the same images."""

    split: str
    metric: str
    sides: SeedsOfSides


def gate_tests(wanted: Sequence[Scores], settings: Settings) -> list[Tested]:
    """The test of each, by the estimator of `bench compare`, all corrected together.

    Where every image's scores are identical, nothing is tested: the difference is 0, and the interval no wider. It
    counts among the tests all the same, with p = 1.
    """
    changes = with_tests([(ScoreChange(each.split, each.metric, None, None), each.sides) for each in wanted])
    return [_tested(each, change, settings, len(wanted)) for each, change in zip(wanted, changes, strict=True)]


def _tested(scores: Scores, change: ScoreChange, settings: Settings, tests: int) -> Tested:
    test, over = change.test, change.over
    assert test is not None
    assert over is not None
    before, after = scores.sides
    if all(one == two for one, two in zip(before, after, strict=True)):
        return Tested(scores.split, scores.metric, replace(test, low=0.0, high=0.0), "same", IDENTICAL)
    return Tested(
        scores.split,
        scores.metric,
        test,
        _verdict(test, settings.least(scores.metric)),
        over,
        _detectable(scores.sides, over, tests),
        change.architecture,
    )


def _verdict(test: Difference, least: float) -> Verdict:
    """What a difference means, with the least effect in points.

    The interval is of one test, not corrected: that all of several rows are within the tolerance is wrongly said no
    more often than that one of them is (Berger, "Multiparameter Hypothesis Testing and Acceptance Sampling",
    Technometrics 1982).
    """
    if test.adjusted < ALPHA and 100 * abs(test.difference) >= least:
        return "improved" if test.difference > 0 else "regressed"
    return "within" if 100 * test.low > -least and test.images >= FEWEST_IMAGES else "undecided"


def _detectable(sides: SeedsOfSides, over: str, tests: int) -> float | None:
    """The smallest fall that such a test finds, from how much these scores vary."""
    images = list(mean_of_seeds([*sides[0], *sides[1]]))
    if len(images) < FEWEST_IMAGES:
        return None
    before, after = (_array(side, images) for side in sides)
    if over == OVER_SEEDS:
        return detectable_from(before, after, tests)
    assert over == OVER_IMAGES
    return detectable_at_best(len(images), float((after.mean(axis=0) - before.mean(axis=0)).std(ddof=1)), tests)


def _array(side: Sequence[ByImage], images: Sequence[int]) -> Array:
    return np.array([[seed[image] for image in images] for seed in side])


_ROUNDING: Final = 1e-9


def exactness(before: BaselineRun, after: BaselineRun) -> tuple[Exact, list[str]]:
    """The result of the deterministic class, with a sentence for what differs or cannot be compared here.

    Bits are compared on the platform that the baseline was made on alone, and only if that is a CPU.
    """
    apart = before.platform.differs(after.platform)
    if apart or not before.platform.device.startswith("cpu"):
        why = "; ".join(apart) or f"on {before.platform.device} training does not repeat to the bit"
        return "not comparable here", [f"{before.name}: bits are not comparable here: {why}"]
    if not before.losses and not before.splits:
        return "not comparable here", [f"{before.name}: the baseline has neither losses nor captions of it"]
    changed = [f"{before.name}: {what}" for what in (*_losses(before, after), *_captions(before, after))]
    return ("different", changed) if changed else ("equal", [])


def rescored(before: BaselineRun, after: BaselineRun) -> list[str]:
    """Where the same captions have other scores: on every platform they should be the same."""
    found = []
    for split, results in before.splits.items():
        now = after.splits.get(split)
        if now is None or now.captions != results.captions:
            continue
        for metric in (metric for metric in results.scores if metric in now.scores):
            one, two = results.scores[metric], now.scores[metric]
            if abs(one - two) > _ROUNDING:
                scores = f"{metric} {100 * one:.4f} → {100 * two:.4f}"
                found.append(f"{before.name}: the same captions of {split} have other scores: {scores}")
    return found


def _losses(before: BaselineRun, after: BaselineRun) -> Iterator[str]:
    one, two = ({(stage, epoch): loss for stage, epoch, loss in run.losses} for run in (before, after))
    for stage, epoch in sorted(one.keys() | two.keys()):
        losses = one.get((stage, epoch)), two.get((stage, epoch))
        if losses[0] != losses[1]:
            shown = " → ".join("none" if loss is None else repr(loss) for loss in losses)
            yield f"losses differ from stage {stage + 1}, epoch {epoch + 1} on: {shown}"
            return


def _captions(before: BaselineRun, after: BaselineRun) -> Iterator[str]:
    for split, results in before.splits.items():
        if split in after.splits and results.captions != after.splits[split].captions:
            yield f"captions of {split} differ"


@dataclass(slots=True)
class _Pair:
    """The expected runs of a row by seed, those measured in their place, and why some cannot be compared."""

    expected: list[BaselineRun]
    measured: list[BaselineRun] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def model(self) -> str:
        return self.expected[0].model


def judge(
    expected: Baseline,
    measured: Baseline | None,
    unfinished: Sequence[Run] = (),
    settings: Settings | None = None,
) -> GateResult:
    """Compare what was measured (None: nothing) with what is expected; `unfinished` says why something is missing.

    Runs belong together that are equal in model, role, seed and signature, the release aside.
    """
    settings = settings or Settings()
    runs = measured.runs if measured else ()
    found = {run.identity: run for run in runs}
    pairs: dict[object, _Pair] = {}
    for run in expected.runs:
        pair = pairs.setdefault(run.row, _Pair([]))
        pair.expected.append(run)
        if run.identity in found:
            pair.measured.append(found[run.identity])
        else:
            _add_reason(pair, run, [other for other in runs if other.who == run.who], unfinished)
    tests = _tests(list(pairs.values()), settings)
    known = {run.identity for run in expected.runs}
    return GateResult(
        rows=tuple(_row(pair, tested, settings) for pair, tested in zip(pairs.values(), tests, strict=True)),
        fresh=tuple(run.name for run in runs if run.identity not in known),
        settings=settings,
        before=_codes(expected.runs),
        after=_codes(runs) or "nothing measured",
        tests=sum(map(len, tests)),
    )


def _add_reason(pair: _Pair, run: BaselineRun, others: Sequence[BaselineRun], unfinished: Sequence[Run]) -> None:
    """Why an expected run has no counterpart: it was measured under other conditions, or not at all."""
    failure = next((each for each in unfinished if (each.role, each.model, each.seed) == run.who), None)
    if failure is not None:
        what = ": ".join(filter(None, (failure.status, failure.error_class, failure.reason)))
        pair.missing.append(f"{run.name} was not measured: {what}")
    elif others:
        nearest = min((differing(run.conditions, other.conditions) for other in others), key=len)
        pair.refused.append(f"{run.name} was measured under other conditions: {'; '.join(nearest)}")
    else:
        pair.missing.append(f"{run.name} was not measured: no such run was planned")


def _tests(pairs: Sequence[_Pair], settings: Settings) -> list[list[Tested]]:
    """The tests of every pair, all corrected together; pairs that lack something have none."""
    wanted = [
        (place, scores)
        for place, pair in enumerate(pairs)
        if not pair.missing and not pair.refused
        for scores in _scores(pair)
    ]
    found: list[list[Tested]] = [[] for _ in pairs]
    tests = gate_tests([scores for _, scores in wanted], settings)
    for (place, _), tested in zip(wanted, tests, strict=True):
        found[place].append(tested)
    return found


def _scores(pair: _Pair) -> list[Scores]:
    """What can be tested; what is missing or of other images goes to the pair."""
    found = []
    for split, metric in tested_metrics(pair.expected):
        before, after = (scores_of_seeds(runs, split, metric) for runs in (pair.expected, pair.measured))
        if before is None or after is None:
            pair.missing.append(f"{pair.model}: {metric} on {split} was not measured with every seed")
        elif odd := mean_of_seeds(before).keys() ^ mean_of_seeds(after).keys():
            pair.refused.append(f"{pair.model}: {metric} on {split} is of other images: {len(odd)} on one side alone")
        else:
            found.append(Scores(split, metric, (before, after)))
    return found


def _row(pair: _Pair, tests: Sequence[Tested], settings: Settings) -> GateRow:
    first, seeds = pair.expected[0], tuple(run.seed for run in pair.expected)
    if pair.missing or pair.refused:
        status: Status = "missing" if pair.missing else "refused"
        reasons = (*pair.missing, *pair.refused)
        return GateRow(first.model, first.role, seeds, status, "not judged", tuple(tests), reasons=reasons)
    exact, said = _exact(pair)
    other = [
        what for before, after in zip(pair.expected, pair.measured, strict=True) for what in rescored(before, after)
    ]
    fell = list(_falls(pair, tests))
    improved = any(each.verdict == "improved" for each in tests)
    # A deterministic result does not change by itself. Where a model improved, changed bits are expected; where the
    # same captions score higher, only the evaluator changed, which is no improvement.
    expected = improved and not fell and not other
    changed = [*other, *(said if exact == "different" else [])] if settings.exact and not expected else []
    slower, gone, unknown = _times(pair, settings)
    if not tests and exact != "equal" and not changed:
        unknown.append(f"{pair.model}: neither bits nor scores of images can be compared")
    ends: dict[Status, list[str]] = {
        "missing": gone,
        "regressed": fell,
        "changed": changed,
        "slower": slower,
        "refused": unknown,
        "undecided": list(_doubts(pair, tests)),
    }
    return GateRow(
        model=first.model,
        role=first.role,
        seeds=seeds,
        status=next((status for status, why in ends.items() if why), _passed(tests)),
        exact=exact,
        tests=tuple(tests),
        costs=tuple(cost_changes(pair.expected, pair.measured)),
        reasons=tuple(reason for why in ends.values() for reason in why),
        notes=(*(what for what in (*other, *said) if what not in changed), *_cost_notes(pair)),
    )


def _exact(pair: _Pair) -> tuple[Exact, list[str]]:
    """The worst that a seed has, with the sentences of all seeds of that kind."""
    found = [exactness(before, after) for before, after in zip(pair.expected, pair.measured, strict=True)]
    order: tuple[Exact, ...] = ("different", "not comparable here", "equal")
    worst = min((exact for exact, _ in found), key=order.index)
    return worst, [sentence for exact, said in found if exact == worst for sentence in said]


def _falls(pair: _Pair, tests: Sequence[Tested]) -> Iterator[str]:
    for each in tests:
        if each.verdict == "regressed":
            points, p = -100 * each.difference.difference, each.difference.adjusted
            yield f"{pair.model}: {each.metric} on {each.split} fell by {points:.1f} points (p {p:.2g})"


def _doubts(pair: _Pair, tests: Sequence[Tested]) -> Iterator[str]:
    """Where a fall of the tolerance is neither found nor excluded, with what could have been missed."""
    for each in tests:
        if each.verdict == "undecided":
            test, what = each.difference, f"{pair.model}: {each.metric} on {each.split}"
            bounds = f"95 %: {100 * test.low:+.1f}…{100 * test.high:+.1f}"
            if each.detectable is None:
                yield f"{what}: undecided, {test.images} images are too few for any test"
            elif test.adjusted < ALPHA and test.difference < 0:
                yield f"{what}: undecided, it fell by less than the tolerance, and more is not excluded ({bounds})"
            else:
                size = f"one of up to {100 * each.detectable:.1f} points could have gone unseen"
                yield f"{what}: undecided, no fall found, {size} ({bounds})"


def _passed(tests: Sequence[Tested]) -> Status:
    """The status of a row that nothing speaks against."""
    verdicts = {each.verdict for each in tests}
    return "improved" if "improved" in verdicts else "within" if "within" in verdicts else "same"


def _cost_notes(pair: _Pair) -> Iterator[str]:
    """What was not measured this time, and counts that are not what they were."""
    for name in missing_costs(pair.expected, pair.measured):
        yield f"{pair.model}: {name} was not measured this time"
    for each in cost_changes(pair.expected, pair.measured):
        if (each.name == "parameters" or each.unit == "GMAC") and each.before != each.after:
            yield f"{pair.model}: {each.name} {each.before:g} → {each.after:g}"


def _times(pair: _Pair, settings: Settings) -> tuple[list[str], list[str], list[str]]:
    """What became slower, what was not timed, and why times cannot be judged; nothing unless it was asked for."""
    if settings.strict_timing is None:
        return [], [], []
    if apart := other_hardware(pair.expected, pair.measured):
        return [], [], [f"{pair.model}: times of other hardware cannot be judged: {'; '.join(apart)}"]
    units = {name: cost.unit for run in pair.expected for name, cost in run.costs.items()}
    gone = [
        f"{pair.model}: {name} was not measured"
        for name in missing_costs(pair.expected, pair.measured)
        if is_time(name, units[name])
    ]
    slower = [
        f"{pair.model}: {each.name} is {each.slowdown:.2f} times as slow"
        for each in cost_changes(pair.expected, pair.measured)
        if each.slowdown is not None and each.slowdown >= settings.strict_timing and each.apart
    ]
    return slower, gone, []


def _codes(runs: Sequence[BaselineRun]) -> str:
    return ", ".join(dict.fromkeys(run.code for run in runs))


@dataclass(frozen=True, slots=True)
class Foreseen:
    """One metric on one split of a trained row, and the smallest fall that `seeds` on both sides find, in points.

    `detectable` has a probability of 80 %; None where one seed does not tell how much training varies. `enough` is the
    least number of seeds that finds a fall of `tolerance` points; None where that is unknown, or no number does.
    """

    model: str
    split: str
    metric: str
    seeds: int
    images: int
    detectable: float | None
    tolerance: float
    enough: int | None

    @property
    def blind(self) -> bool:
        """Whether a fall of the tolerance could go unseen."""
        return self.detectable is None or self.detectable > self.tolerance

    @property
    def said(self) -> str:
        """A line for the reader."""
        many = f"{self.seeds} seed{'s' * (self.seeds > 1)}"
        size = "how much training varies is not known" if self.detectable is None else f"{self.detectable:.1f} points"
        return f"{self.model}: {self.metric} on {self.split}: {size} ({many}, {self.images} images)"


def foresee(baseline: Baseline, settings: Settings) -> list[Foreseen]:
    """What fall of every trained row would be seen by a measured side that varies as the baseline's own seeds do.

    Both sides are of one architecture, which no image favours: beyond the interaction with seeds images add nothing to
    the variance (`image_deviation` 0). Rows without training, whose captions do not vary, are left out; they count
    among the tests that are corrected together.
    """
    rows: dict[object, list[BaselineRun]] = {}
    for run in baseline.runs:
        rows.setdefault(run.row, []).append(run)
    tested = [
        (runs, split, metric, scores)
        for runs in rows.values()
        for split, metric in tested_metrics(runs)
        if (scores := scores_of_seeds(runs, split, metric)) is not None
    ]
    return [
        _foreseen(runs[0].model, split, metric, scores, settings.least(metric), len(tested))
        for runs, split, metric, scores in tested
        if runs[0].losses
    ]


def unseen(rows: Sequence[Foreseen]) -> tuple[str, str] | None:
    """What the gate could not see of what its tolerance promises, and what to do about it; None where it could."""
    blind = [row for row in rows if row.blind]
    if not blind:
        return None
    promised = ", ".join(dict.fromkeys(f"{row.tolerance:g} {row.metric} points" for row in blind))
    what = f"a fall of {promised} could go unseen in {len(blind)} of {len(rows)} tests of trained models"
    if any(row.detectable is None for row in blind):
        return what, "make the runs with several seeds: bench run --seeds 5"
    least: dict[str, float] = {}
    for row in blind:
        least[row.metric] = max(least.get(row.metric, 0.0), row.detectable or 0.0)
    tolerances = " ".join(f"--tolerance {metric}={ceil(points)}" for metric, points in least.items())
    seeds = [row.enough for row in blind]
    if None in seeds:
        return what, f"tolerate more, also when judging ({tolerances}); {MAX_SEEDS} seeds would not be enough"
    most = max(each for each in seeds if each is not None)
    more = f"make the runs with more seeds: bench run --seeds {most}"
    return what, f"{more}; or tolerate more, also when judging ({tolerances})"


def _foreseen(
    model: str, split: str, metric: str, scores: Sequence[dict[int, float]], tolerance: float, tests: int
) -> Foreseen:
    images = list(mean_of_seeds(scores))
    points = 100 * np.array([[seed[image] for image in images] for seed in scores])
    if missing(points) is not None:
        return Foreseen(model, split, metric, len(scores), len(images), None, tolerance, None)
    deviation = float(np.sqrt(len(scores) * summary(points).between))
    found = detectable(len(scores), len(images), deviation, 0.0, tests)
    enough = least_seeds(tolerance, len(images), deviation, 0.0, tests) if found > tolerance else len(scores)
    return Foreseen(model, split, metric, len(scores), len(images), found, tolerance, enough)
