"""Claims judged by stored runs that are comparable: over seeds and images, all tests corrected together.

A row of runs takes part as it does in a leaderboard: what has one seed, was still learning or is not above the floor
(`results.runs.standings`) gives a difference, but no verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from results.comparison.baseline_making import differing
from results.comparison.claim_types import Claim, ClaimRow, Finding, Sides, Verdict
from results.comparison.comparison_types import ScoreChange
from results.comparison.run_snapshot import RunSnapshot, run_snapshots
from results.comparison.score_tests import SeedsOfSides, numbers_to_test, with_tests
from results.records import CODE_FIELDS
from results.runs.finished_runs import FinishedRun, finished_runs
from results.runs.leaderboard import leaderboard
from results.runs.standings import ALONE
from results.runs.views import Row
from results.statistics.architecture import OVER_SEEDS
from results.statistics.paired import mean_of_seeds
from results.statistics.significance import ALPHA
from results.store.store import Store

NO_NUMBERS = "the database has no scores of single images, or of other images on either side"


@dataclass(frozen=True, slots=True)
class _Found:
    """A leaderboard's row with the first of its runs, whose conditions and configuration are those of all."""

    row: Row
    run: FinishedRun
    split: str

    def conditions(self, varies: Sequence[str]) -> dict[str, str]:
        """The conditions that must be equal on both sides; the release only where no revision was recorded."""
        left_out = {*varies, *({"v"} if "rev" in self.run.signature else ())}
        kept = {name: value for name, value in self.run.conditions.items() if name not in left_out}
        return {"fingerprint": self.run.fingerprint, "split": self.split, **kept}


_Pair = tuple[_Found, _Found]


def judge(store: Store, claims: Sequence[Claim], *, place_unfinished: bool = False) -> list[ClaimRow]:
    """What a store's finished runs say of each claim: a row for all conditions under which both sides ran.

    With `place_unfinished`, what was still learning has a verdict too, and a remark says so.
    """
    with store.reading() as connection:
        runs = {run.key: run for run in finished_runs(connection)}
    tables = {metric: _rows(store, runs, metric, place_unfinished) for metric in {claim.metric for claim in claims}}
    planned = [_pairs(claim, tables[claim.metric]) for claim in claims]
    keys = {key for found in planned for pairs in found for pair in pairs for one in pair for key in one.row.keys}
    snapshots = {each.run.key: each for each in run_snapshots(store, sorted(keys))} if keys else {}
    compared = [
        [[_finding(pair, claim, snapshots) for pair in pairs] for pairs in found]
        for claim, found in zip(claims, planned, strict=True)
    ]
    flat = [each for found in compared for pairs in found for each in pairs]
    tests = iter(with_tests([(finding.score, sides) for finding, sides in flat if sides is not None]))
    rows = []
    for number, (claim, pairs, found) in enumerate(zip(claims, planned, compared, strict=True), 1):
        judged = [
            [finding if sides is None else replace(finding, score=next(tests)) for finding, sides in of_row]
            for of_row in found
        ]
        if judged:
            rows += [_row(number, claim, *both) for both in zip(pairs, judged, strict=True)]
        else:
            rows.append(_without(number, claim, tables[claim.metric], bool(runs)))
    return rows


def _rows(store: Store, runs: dict[str, FinishedRun], metric: str, place_unfinished: bool) -> list[_Found]:
    """The leaderboards' rows, of all conditions; none where no run has a score of the metric."""
    if not any(metric in of["overall"] for run in runs.values() for of in run.scores.values()):
        return []
    groups = leaderboard(store, metric, place_unfinished=place_unfinished)
    return [_Found(row, runs[row.keys[0]], group.split) for group in groups for row in group.rows]


def _of(claim: Claim, sides: Sides, rows: Sequence[_Found]) -> tuple[list[_Found], list[_Found]]:
    """The rows of either side on the claim's split."""
    of_split = [row for row in rows if row.split == claim.split]
    return [row for row in of_split if sides.runs.has(row.run)], [row for row in of_split if sides.than.has(row.run)]


def _comparable(claim: Claim, sides: Sides, rows: Sequence[_Found]) -> list[_Pair]:
    return [
        (one, other)
        for one, other in product(*_of(claim, sides, rows))
        if one.row.keys != other.row.keys and one.conditions(claim.varies) == other.conditions(claim.varies)
    ]


def _pairs(claim: Claim, rows: Sequence[_Found]) -> list[list[_Pair]]:
    """The pairs of each row of the claim: one, or of a claim of an order the one before and the one after."""
    first, *later = (_comparable(claim, sides, rows) for sides in claim.sides())
    if not later:
        return [[pair] for pair in first]
    return [[before, after] for before, after in product(first, later[0]) if _same(claim, before, after)]


def _same(claim: Claim, before: _Pair, after: _Pair) -> bool:
    """Whether two pairs are of the same models under the same conditions, but for what varies."""
    return all(
        (one.run.model, one.conditions(claim.varies)) == (other.run.model, other.conditions(claim.varies))
        for one, other in zip(before, after, strict=True)
    )


def _finding(pair: _Pair, claim: Claim, snapshots: dict[str, RunSnapshot]) -> tuple[Finding, SeedsOfSides | None]:
    """A pair without its test, and the images' numbers by seed where these can be tested."""
    one, other = pair
    after, before = ([snapshots[key] for key in each.row.keys] for each in pair)
    means = [spread.mean if (spread := each.row.scores.get(claim.metric)) else None for each in (other, one)]
    score = ScoreChange(claim.split, claim.metric, means[0], means[1])
    sides, no_interval = numbers_to_test(before, after, claim.split, claim.metric)
    by_image = [mean_of_seeds(side) for side in sides]
    complete = (len(sides[0]), len(sides[1])) == (len(before), len(after)) and all(by_image)
    testable = None not in means and complete and by_image[0].keys() == by_image[1].keys()
    reasons = [why for each in pair if (why := _why(each, claim.metric))]
    reasons += [] if testable else [NO_NUMBERS]
    finding = Finding(
        (one.run.model, other.run.model),
        (one.row.seeds, other.row.seeds),
        replace(score, no_interval=no_interval),
        "; ".join(reasons) or None,
        tuple(f"{each.run.model} was still learning" for each in pair if each.row.still_learning),
    )
    return finding, sides if testable else None


def _why(found: _Found, metric: str) -> str | None:
    """Why a row has no verdict, by the reason that it has no place."""
    standing = found.row.standings.get(metric)
    reason = None if standing is None or standing.reason == ALONE else standing.reason
    return None if reason is None else f"{found.run.model}: {reason}"


def _row(number: int, claim: Claim, pairs: Sequence[_Pair], findings: Sequence[Finding]) -> ClaimRow:
    run = pairs[0][0].run
    verdict, reason = _verdict(claim, findings)
    shown = tuple((name, value) for name, value in run.conditions.items() if name not in CODE_FIELDS)
    return ClaimRow(number, claim, verdict, reason, tuple(findings), run.dataset, shown)


def _verdict(claim: Claim, findings: Sequence[Finding]) -> tuple[Verdict, str]:
    """What the tests say, at 5 % after the correction; by the signs of all findings."""
    unfit = list(dict.fromkeys(why for each in findings if (why := each.why)))
    remarks = "".join(f"; {said}" for said in dict.fromkeys(said for each in findings for said in each.said))
    if unfit:
        return "cannot be told", "; ".join(unfit)
    if any(each.score.over != OVER_SEEDS or each.score.no_interval for each in findings):
        return "cannot be told", f"no test over seeds and images{remarks}"
    signs = [_sign(each) for each in findings]
    if 0 in signs:
        return "cannot be told", f"the interval holds either sign, or p is not below {ALPHA:g} for all tests{remarks}"
    wanted = (
        signs[0] != signs[1] if claim.direction == "reversed" else signs[0] == (claim.direction == "higher") * 2 - 1
    )
    if claim.direction == "reversed":
        return (
            ("supported", f"the order is another{remarks}")
            if wanted
            else ("contradicted", f"the order is the same{remarks}")
        )
    told = "higher" if signs[0] > 0 else "lower"
    return ("supported" if wanted else "contradicted"), f"significantly {told}{remarks}"


def _sign(finding: Finding) -> int:
    """Of a significant difference: 1 or -1; else 0."""
    test = finding.score.test
    if test is None or test.adjusted >= ALPHA:
        return 0
    return 1 if test.difference > 0 else -1


def _without(number: int, claim: Claim, rows: Sequence[_Found], any_runs: bool) -> ClaimRow:
    """The row of a claim that nothing can be compared for: runs or scores are missing, or all conditions differ."""
    if any_runs and not any(row.split == claim.split for row in rows):
        return ClaimRow(number, claim, "no runs", f"no finished run has a score by {claim.metric} on {claim.split}")
    missing = [
        side.described()
        for sides in claim.sides()
        for side, found in zip((sides.runs, sides.than), _of(claim, sides, rows), strict=True)
        if not found
    ]
    if missing:
        return ClaimRow(number, claim, "no runs", f"no finished run of {'; '.join(dict.fromkeys(missing))}")
    return ClaimRow(number, claim, "not comparable", f"the sides differ in {'; '.join(_nearest(claim, rows))}")


def _nearest(claim: Claim, rows: Sequence[_Found]) -> Sequence[str]:
    """The fields in which the two most similar rows differ, that may not vary; of the first sides that cannot pair."""
    found: list[list[str]] = []
    for one, other in _candidates(claim, rows):
        found.append(differing(other.conditions(claim.varies), one.conditions(claim.varies)))
    return min(filter(None, found), key=len, default=["the rows that they are of"])


def _candidates(claim: Claim, rows: Sequence[_Found]) -> Iterator[_Pair]:
    for sides in claim.sides():
        if not _comparable(claim, sides, rows):
            yield from product(*_of(claim, sides, rows))
            return
    first, later = (_comparable(claim, sides, rows) for sides in claim.sides())
    for before, after in product(first, later):
        yield after[0], before[0]
