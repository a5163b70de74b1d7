"""Claims judged by stored runs that are comparable: over seeds and images, all tests corrected together.

A row of runs takes part as it does in a leaderboard: what has one seed, was still learning or is not above the floor
(`results.runs.standings`) gives a difference, but no verdict.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import product
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from results.comparison.comparison import ScoreChange, SeedsOfSides, numbers_to_test, with_tests
from results.comparison.conditions import differing
from results.comparison.recording import Closed
from results.errors import StoreError
from results.published.scores import METRICS
from results.records import stages_of, without_code
from results.runs.leaderboard import RANKING_METRIC, Row, leaderboard
from results.runs.reading import finished, finished_with_images
from results.runs.run import Run
from results.runs.spreads import machine_of
from results.runs.standings import ALONE, JUDGED_AS_USUAL, Judging
from results.statistics.architecture import OVER_SEEDS, p_of_t, t_quantile
from results.statistics.power import needed_from
from results.statistics.significance import ALPHA, LEVEL, matrix, mean_of_seeds
from results.store.store import Store

Verdict = Literal["supported", "contradicted", "no difference", "cannot be told", "not comparable", "no runs"]
NO_DIFFERENCE: Final = 0.03
"""Of the higher score: a claim whose difference is surely smaller has "no difference", unless a margin is given."""
COSTS: Final = ("train_seconds", "train_gmac")
"""What claims on cost are about: seconds, which are a machine's, and multiply-accumulates, which are none's."""
UNTESTABLE: Final[tuple[Verdict, ...]] = ("not comparable", "no runs")


class Runs(Closed):
    """A set of stored runs: models by name or shell pattern, and the filters that they must pass.

    `preset` and `schedule` are names, `stages` those of the schedule's stages, in order; `data` is a data set's name or
    fingerprint. `signature` has shell patterns for fields of the signature; a field that a run lacks is "none".
    """

    models: tuple[str, ...] = Field(min_length=1)
    preset: str | None = None
    schedule: str | None = None
    stages: tuple[str, ...] | None = None
    data: str | None = None
    signature: dict[str, str] = Field(default_factory=dict)

    def has(self, run: Run) -> bool:
        preset = run.config.get("preset", {})
        schedule = preset.get("schedule", {})
        named = (
            (self.preset, preset.get("name")),
            (self.schedule, schedule.get("name")),
            (self.stages, tuple(stage.get("name") for stage in stages_of(run.config))),
        )
        return (
            run.role == "model"
            and any(fnmatchcase(run.model, pattern) for pattern in self.models)
            and all(wanted in (None, found) for wanted, found in named)
            and self.data in (None, run.dataset, run.fingerprint)
            and all(fnmatchcase(run.conditions.get(name, "none"), own) for name, own in self.signature.items())
        )

    def described(self) -> str:
        filters = {"preset": self.preset, "schedule": self.schedule, "data": self.data, **self.signature}
        filters |= {"stages": "+".join(self.stages)} if self.stages else {}
        shown = ", ".join(f"{name} {value}" for name, value in filters.items() if value is not None)
        return f"{', '.join(self.models)}{f' ({shown})' * bool(shown)}"


class Sides(Closed):
    """The runs of which something is claimed, and those that they are compared with."""

    runs: Runs
    than: Runs


class PaperDifference(Closed):
    """What the paper prints: `runs` less `than` in points, and of a claim of an order the same of `after`.

    Of a cost it is the `ratio`, how many times that of `runs` is in that of `than`.
    """

    difference: float | None = None
    ratio: float | None = Field(default=None, gt=0)
    after: float | None = None
    metric: str
    table: str


class Claim(Sides):
    """One claim: `runs` score higher (or lower) than `than`; or their order is another `after`; or they cost less.

    The metric of a claim on cost is `train_seconds` or `train_gmac`.
    `after` are the same two models, later trained on, say. `varies` names the fields of the signature in which compared
    runs may differ, since they are what is claimed about. `commands` make the runs.
    """

    sentence: str = Field(min_length=1)
    paper: str
    published: PaperDifference
    metric: str = "CIDEr-D"
    split: str = "test"
    direction: Literal["higher", "lower", "reversed"] = "higher"
    after: Sides | None = None
    varies: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        order = self.direction == "reversed"
        if order != (self.after is not None) or order != (self.published.after is not None):
            raise ValueError("direction: reversed, after, and published.after belong together")
        if (self.published.difference is None) == (self.published.ratio is None):
            raise ValueError("published needs either a difference or the ratio of a cost")
        if self.of_cost != (self.metric in COSTS) or (self.of_cost and order):
            raise ValueError(f"a claim with a ratio is on one of {', '.join(COSTS)}, no other is")
        return self

    @property
    def of_cost(self) -> bool:
        return self.published.ratio is not None

    @property
    def ranks_by(self) -> str:
        """The metric whose leaderboards have the claim's rows."""
        return RANKING_METRIC if self.of_cost else self.metric

    def sides(self) -> Iterator[Sides]:
        yield self
        if self.after is not None:
            yield self.after


class ClaimFile(Closed):
    claims: tuple[Claim, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Finding:
    """Two rows compared: models and seeds of either side, and the score's difference with its test.

    `why` says what forbids a verdict, as that a side was still learning; None where nothing does. `said` are remarks.
    """

    models: tuple[str, str]
    seeds: tuple[tuple[int, ...], tuple[int, ...]]
    score: ScoreChange
    why: str | None = None
    said: tuple[str, ...] = ()

    @property
    def difference(self) -> float | None:
        """As a fraction; None where a side has no score."""
        if self.score.before is None or self.score.after is None:
            return None
        return self.score.after - self.score.before


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A claim on one data set under one set of conditions; without findings where it has no runs to compare.

    `number` is the claim's, from 1. `data` and `conditions` say where, and after how many updates: those of the first
    finding's runs. `ratio` is that of a cost, with its 95 % interval over seeds.
    """

    number: int
    claim: Claim
    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...] = ()
    data: str = ""
    conditions: tuple[tuple[str, Any], ...] = ()
    ratio: tuple[float, float, float] | None = None


_SPLITS: Final = ("val", "test", "nocaps")


def check_names(store: Store, claims: Sequence[Claim], fields: Collection[str]) -> None:
    """Check the names of all claims; what a stored run has is there, too."""
    runs = finished(store)
    scores = [(split, of["overall"]) for run in runs for split, of in run.scores.items()]
    known = {
        "metric": dict.fromkeys((*METRICS, *COSTS, *(metric for _, overall in scores for metric in overall))),
        "split": dict.fromkeys((*_SPLITS, *(split for split, _ in scores))),
        "field of the signature": dict.fromkeys((*fields, *(name for run in runs for name in run.conditions))),
    }
    for number, claim in enumerate(claims, 1):
        signed = (name for sides in claim.sides() for side in (sides.runs, sides.than) for name in side.signature)
        named = {"metric": [claim.metric], "split": [claim.split], "field of the signature": [*signed, *claim.varies]}
        for what, names in named.items():
            for name in (each for each in names if each not in known[what]):
                hint = f"choose of: {', '.join(known[what])}"
                raise StoreError(f"claim {number}: there is no {what} {name[:60]!r}", hint)


NO_NUMBERS = "the database has no scores of single images, or of other images on either side"


@dataclass(frozen=True, slots=True)
class _Found:
    """A leaderboard's row with the first of its runs, whose conditions and configuration are those of all."""

    row: Row
    run: Run
    split: str

    def conditions(self, varies: Sequence[str]) -> dict[str, str]:
        """The conditions that must be equal on both sides; the release only where no revision was recorded."""
        left_out = {*varies, *({"v"} if "rev" in self.run.signature else ())}
        kept = {name: value for name, value in self.run.conditions.items() if name not in left_out}
        return {"fingerprint": self.run.fingerprint, "split": self.split, **kept}


_Pair = tuple[_Found, _Found]


def judge(store: Store, claims: Sequence[Claim], judging: Judging = JUDGED_AS_USUAL) -> list[ClaimRow]:
    """What a store's finished runs say of each claim: a row for all conditions under which both sides ran.

    Where rows are placed though they were still learning, these have a verdict too, and a remark says so.
    """
    runs = {run.key: run for run in finished(store)}
    tables = {metric: _rows(store, runs, metric, judging) for metric in {claim.ranks_by for claim in claims}}
    cases = [
        (number, claim, pairs)
        for number, claim in enumerate(claims, 1)
        for pairs in _pairs(claim, tables[claim.ranks_by]) or [[]]
    ]
    keys = {key for _, _, pairs in cases for pair in pairs for one in pair for key in one.row.keys}
    snapshots = {run.key: run for run in finished_with_images(store, sorted(keys))} if keys else {}
    compared = [
        [] if claim.of_cost else [_finding(pair, claim, snapshots) for pair in pairs] for _, claim, pairs in cases
    ]
    flat = [each for found in compared for each in found]
    scores = _tested([each for each in flat if each[0].why is None]) | _tested([each for each in flat if each[0].why])
    rows = []
    for (number, claim, pairs), found in zip(cases, compared, strict=True):
        if not pairs:
            rows.append(_without(number, claim, tables[claim.ranks_by], bool(runs)))
        elif claim.of_cost:
            rows.append(_cost_row(number, claim, pairs[0], runs))
        else:
            findings = [replace(finding, score=scores.get(id(finding), finding.score)) for finding, _ in found]
            verdict, reason = _verdict(claim, findings, None if judging.margin is None else judging.margin / 100)
            steps = pairs[-1][0].row.costs.get("train_steps")
            after = f" after {round(steps.value):,} updates" if steps is not None and steps.value else ""
            run = pairs[0][0].run
            shown = tuple(without_code(run.conditions).items())
            rows.append(ClaimRow(number, claim, verdict, reason, tuple(findings), run.dataset + after, shown))
    return rows


def _cost_row(number: int, claim: Claim, pair: _Pair, runs: Mapping[str, Run]) -> ClaimRow:
    """A claim on cost; the other cost is told beside it."""
    run = pair[0].run
    shown = tuple(without_code(run.conditions).items())
    found = _ratio(claim.metric, pair, runs)
    [other] = (name for name in COSTS if name != claim.metric)
    beside = f"; {other} {told.value:.2f} times" if isinstance(told := _ratio(other, pair, runs), _Ratio) else ""
    if isinstance(found, str):
        return ClaimRow(number, claim, "cannot be told", f"{claim.metric}: {found}{beside}", (), run.dataset, shown)
    seeds = " and ".join(str(len(each.row.seeds)) for each in pair)
    reason = f"{claim.metric} {found.value:.2f} times, over {seeds} seeds, p {found.p:.3g}{beside}"
    wanted = (found.value > 1) == (claim.direction == "lower")
    verdict: Verdict = "cannot be told" if found.p >= ALPHA else "supported" if wanted else "contradicted"
    return ClaimRow(number, claim, verdict, reason, (), run.dataset, shown, (found.value, found.low, found.high))


class _Ratio(NamedTuple):
    value: float
    low: float
    high: float
    p: float


def _ratio(metric: str, pair: _Pair, runs: Mapping[str, Run]) -> _Ratio | str:
    """How often a cost of the first row is in the second's, by Welch's test of logarithms over seeds; or why not."""
    if elsewhere := [why.said for each in pair if (why := each.row.other_machines.get(metric)) is not None]:
        return "; ".join(elsewhere)
    every = (runs[key].environment for each in pair for key in each.row.keys)
    machines = {machine_of(each, "trained") or "an unknown machine" for each in every}
    if len(machines) > 1 and metric == "train_seconds":
        return f"trained on {' and '.join(sorted(machines))}"
    costs = [[runs[key].costs.get(metric) for key in each.row.keys] for each in pair]
    one, other = (np.log([cost.value for cost in of if cost is not None and cost.value]) for of in costs)
    if min(len(one), len(other)) < 2:
        return "a side has no two seeds with it"
    between = [float(of.var(ddof=1)) / len(of) for of in (one, other)]
    error, gap = np.asarray(np.sqrt(sum(between))), float(other.mean() - one.mean())
    parts = sum(each**2 / (len(of) - 1) for each, of in zip(between, (one, other), strict=True))
    degrees = np.asarray(sum(between) ** 2 / parts if parts else 1.0)
    half = float(t_quantile(LEVEL, degrees) * error)
    low, value, high = np.exp([gap - half, gap, gap + half]).tolist()
    return _Ratio(value, low, high, float(p_of_t(np.asarray(gap), error, degrees)))


def _tested(found: Sequence[tuple[Finding, SeedsOfSides | None]]) -> dict[int, ScoreChange]:
    """By finding, its score with a test; what can have no verdict is not corrected together with what can."""
    testable = [(finding, sides) for finding, sides in found if sides is not None]
    tests, scores = with_tests([(finding.score, sides) for finding, sides in testable]), {}
    for (finding, sides), score in zip(testable, tests, strict=True):
        wide, needed = score.architecture, None
        if wide and wide.p is not None and score.test and score.test.adjusted >= ALPHA and wide.difference:
            before, after = (of for side in sides if (of := matrix(side)) is not None)
            needed = needed_from(before, after, abs(wide.difference), len(testable))
        scores[id(finding)] = replace(score, needed=needed)
    return scores


def _rows(store: Store, runs: dict[str, Run], metric: str, judging: Judging) -> list[_Found]:
    """The leaderboards' rows, of all conditions; none where no run has a score of the metric."""
    if not any(metric in of["overall"] for run in runs.values() for of in run.scores.values()):
        return []
    groups = leaderboard(store, metric, judging, runs=list(runs.values()))
    return [_Found(row, runs[row.keys[0]], group.split) for group in groups for row in group.rows]


def _of(claim: Claim, sides: Sides, rows: Sequence[_Found]) -> tuple[list[_Found], list[_Found]]:
    of_split = [row for row in rows if row.split == claim.split]
    return [row for row in of_split if sides.runs.has(row.run)], [row for row in of_split if sides.than.has(row.run)]


def _pairs(claim: Claim, rows: Sequence[_Found]) -> list[list[_Pair]]:
    """The comparable pairs of each row of the claim: one, or of an order the one before and the one after."""

    def alike(one: _Found, other: _Found) -> bool:
        """Besides, what was trained on for a better score began with the other's stages."""
        mine, theirs = (stages_of(each.run.config) for each in (one, other))
        may_differ = claim.of_cost or len(mine) == len(theirs)
        goes_on = may_differ or all(stage == first for stage, first in zip(mine, theirs, strict=False))
        return goes_on and one.conditions(claim.varies) == other.conditions(claim.varies)

    def same(before: _Pair, after: _Pair) -> bool:
        both = zip(before, after, strict=True)
        return all(one.run.model == other.run.model and alike(one, other) for one, other in both)

    sides = [product(*_of(claim, each, rows)) for each in claim.sides()]
    first, *later = (
        [(one, other) for one, other in each if one.row.keys != other.row.keys and alike(one, other)] for each in sides
    )
    if not later:
        return [[pair] for pair in first]
    return [[before, after] for before, after in product(first, later[0]) if same(before, after)]


def _finding(pair: _Pair, claim: Claim, snapshots: dict[str, Run]) -> tuple[Finding, SeedsOfSides | None]:
    """A pair without its test, and the images' numbers by seed where these can be tested."""
    one, other = pair
    after, before = ([snapshots[key] for key in each.row.keys] for each in pair)
    means = [spread.mean if (spread := each.row.scores.get(claim.metric)) else None for each in (other, one)]
    score = ScoreChange(claim.split, claim.metric, means[0], means[1])
    sides, no_interval = numbers_to_test(before, after, claim.split, claim.metric)
    by_image = [mean_of_seeds(side) for side in sides]
    complete = (len(sides[0]), len(sides[1])) == (len(before), len(after)) and all(by_image)
    testable = None not in means and complete and by_image[0].keys() == by_image[1].keys()
    reasons = [f"{each.run.model}: {why}" for each in pair if (why := _why(each.row, claim.metric))]
    reasons += [] if testable else [NO_NUMBERS]
    finding = Finding(
        (one.run.model, other.run.model),
        (one.row.seeds, other.row.seeds),
        replace(score, no_interval=no_interval),
        "; ".join(reasons) or None,
        tuple(f"{each.run.model} was still learning" for each in pair if each.row.still_learning),
    )
    return finding, sides if testable else None


def _why(row: Row, metric: str) -> str | None:
    standing, gain = row.standings.get(metric), row.gain
    if standing is not None and standing.reason not in (None, ALONE):
        return standing.reason
    if gain is None or gain.finished:
        return None
    return f"still gains by longer training, {100 * gain.difference:.1f} points by {gain.times:g} times the updates"


def _verdict(claim: Claim, findings: Sequence[Finding], limit: float | None) -> tuple[Verdict, str]:
    """What the tests say, at 5 % after the correction; by the signs of all findings, or by a bound on the only one."""
    unfit = list(dict.fromkeys(why for each in findings if (why := each.why)))
    remarks = "".join(f"; {said}" for said in dict.fromkeys(said for each in findings for said in each.said))
    if unfit:
        return "cannot be told", "; ".join(unfit)
    if any(each.score.over != OVER_SEEDS or each.score.no_interval for each in findings):
        return "cannot be told", f"no test over seeds and images{remarks}"
    signs = [_sign(each) for each in findings]
    if 0 in signs:
        score = findings[0].score
        # The largest bound that says that there is no difference worth a claim.
        most = NO_DIFFERENCE * max(score.before or 0.0, score.after or 0.0) if limit is None else limit
        if len(findings) == 1 and (bound := _bound(score)) is not None and bound <= most:
            return "no difference", f"no difference larger than {100 * bound:.1f} points{remarks}"
        needs = _needs([each for each, sign in zip(findings, signs, strict=True) if not sign])
        why = f"the interval holds either sign, or p is not below {ALPHA:g} for all tests"
        return "cannot be told", f"{why}{needs}{remarks}"
    if claim.direction == "reversed":
        turned = signs[0] != signs[1]
        holds = turned and signs[0] * (claim.published.difference or 0.0) > 0
        told = f"the order is {'another' if holds else 'turned the other way' if turned else 'the same'}"
    else:
        direction = "higher" if signs[0] > 0 else "lower"
        holds, told = claim.direction == direction, f"significantly {direction}"
    return ("supported" if holds else "contradicted"), f"{told}{remarks}"


def _bound(score: ScoreChange) -> float | None:
    """What the difference is surely smaller than, by two one-sided tests at 5 % (a 90 % interval)."""
    wide = score.architecture
    if wide is None or wide.error is None or wide.degrees is None:
        return None
    half = float(t_quantile(1 - 2 * ALPHA, np.asarray(wide.degrees))) * wide.error
    return abs(wide.difference) + half


def _needs(findings: Sequence[Finding]) -> str:
    found = [each.score.needed for each in findings if each.score.needed is not None]
    if not found:
        return ""
    said = []
    for what, counts in zip(("seeds", "images"), zip(*found, strict=True), strict=True):
        known = [count for count in counts if count is not None]
        said += [f"{max(known):,} {what}"] if len(known) == len(found) else []
    if not said:
        return "; no number of seeds or images would probably tell a difference as small"
    return f"; {' or '.join(said)} would probably tell a difference of this size"


def _sign(finding: Finding) -> int:
    test = finding.score.test
    return 0 if test is None or test.adjusted >= ALPHA else 1 if test.difference > 0 else -1


def _without(number: int, claim: Claim, rows: Sequence[_Found], any_runs: bool) -> ClaimRow:
    """The row of a claim that nothing can be compared for: runs or scores are missing, or all conditions differ."""
    if any_runs and not any(row.split == claim.split for row in rows):
        return ClaimRow(number, claim, "no runs", f"no finished run has a score by {claim.metric} on {claim.split}")
    there = [(sides, _of(claim, sides, rows)) for sides in claim.sides()]
    claimed = [each for sides, found in there for each in zip((sides.runs, sides.than), found, strict=True)]
    missing = [runs.described() for runs, found in claimed if not found]
    if missing:
        return ClaimRow(number, claim, "no runs", f"no finished run of {'; '.join(dict.fromkeys(missing))}")
    # The fields that may not vary in which the two most similar rows differ.
    pairs = [pair for _, both in there for pair in product(*both)]
    found = [differing(other.conditions(claim.varies), one.conditions(claim.varies)) for one, other in pairs]
    nearest = min(filter(None, found), key=len, default=["nothing but their first stages, or not at all"])
    return ClaimRow(number, claim, "not comparable", f"the sides differ in {'; '.join(nearest)}")
