"""Whether runs became worse than a baseline: exactly, where bits can be compared; by tests of scores; and in time.

A score changed only where a test *and* a least effect agree, as in asv's `compare`. Pure: it reads no store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from results.comparison.baseline import Baseline, Run, scores_of_seeds, tested_metrics
from results.comparison.baseline_making import differing
from results.comparison.gate_result import Exact, GateResult, Row, Settings, Status, Tested
from results.comparison.gate_tests import Scores, gate_tests
from results.comparison.repeats import cost_changes, exactness, is_time, missing_costs, other_hardware, rescored
from results.runs.views import Failure
from results.statistics.paired import mean_of_seeds
from results.statistics.significance import ALPHA


@dataclass(slots=True)
class _Pair:
    """The expected runs of a row by seed, those measured in their place, and why some cannot be compared."""

    expected: list[Run]
    measured: list[Run] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def model(self) -> str:
        return self.expected[0].model


def judge(
    expected: Baseline,
    measured: Baseline | None,
    unfinished: Sequence[Failure] = (),
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


def _add_reason(pair: _Pair, run: Run, others: Sequence[Run], unfinished: Sequence[Failure]) -> None:
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


def _row(pair: _Pair, tests: Sequence[Tested], settings: Settings) -> Row:
    first, seeds = pair.expected[0], tuple(run.seed for run in pair.expected)
    if pair.missing or pair.refused:
        status: Status = "missing" if pair.missing else "refused"
        reasons = (*pair.missing, *pair.refused)
        return Row(first.model, first.role, seeds, status, "not judged", tuple(tests), reasons=reasons)
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
    return Row(
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


def _codes(runs: Sequence[Run]) -> str:
    return ", ".join(dict.fromkeys(run.code for run in runs))
