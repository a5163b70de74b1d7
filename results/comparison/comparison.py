"""Two runs, or the runs of two stores, side by side: conditions, scores with tests, costs and changed captions.

A score is tested over seeds and images where both sides have several seeds, else over images; `bench regress --against`
and `bench compare --pairs` use the same tests.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from statistics import fmean
from typing import Any, Final, Self

import numpy as np
from sqlalchemy import Connection

from results.comparison.conditions import Row, differing, distinguishing, newest_runs, row_of
from results.costs import OTHER_SEED, compared_costs
from results.metrics import RANKING_METRIC
from results.records import ImageRecord, Quantity, without_code
from results.runs.facts import KINDS, fact_metric
from results.runs.reading import StoredRuns, captions_of, image_influences, image_scores
from results.runs.run import Run
from results.runs.spreads import depends_on_machine
from results.statistics.architecture import (
    OVER_IMAGES,
    OVER_SEEDS,
    TTest,
    architecture_difference,
    joint_degrees,
    p_of_t,
    t_quantile,
)
from results.statistics.estimate import Estimate
from results.statistics.learning import mean_learning
from results.statistics.score_matrix import ScoreMatrix
from results.statistics.significance import (
    SUMS,
    ImageChanges,
    PairedScores,
    group_by_images,
    holm,
    holm_levels,
    paired_differences,
    sign_flip_intervals,
)
from results.store.store import Store

_MORE_IS_SLOWER: Final = {"s": True, "images/s": False}
_NO_TIMES: Final = frozenset({"latency_iqr", "latency_margin"})  # in seconds, but how much a time varies


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a pair: a model's runs over seeds, the code that ran, and how long they were trained.

    `budget` is that of `bench run --budgets`; `state` is how training ended, by the mean of the seeds.
    """

    model: str
    role: str
    seeds: tuple[int, ...]
    keys: tuple[str, ...]
    code: str
    budget: int = 1
    updates: int | None = None
    state: str = "unknown"


@dataclass(frozen=True, slots=True)
class PairedTest:
    """A test of the images' numbers of two sides, whose means are `before` and `after`.

    The p of the `change` is corrected for all tests of the comparison, `uncorrected_p` is that of this test alone.
    `over_seeds` is the test over seeds and images; None where it is over images, by sign flips.
    """

    before: float
    after: float
    change: Estimate
    uncorrected_p: float
    over_seeds: TTest | None = None


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """One metric of one split, fractions, means over seeds; None with a reason where a side has none.

    `test` is of the images' scores, or of their influences where the metric is no mean of these. Where a run has no
    influences, `no_interval` says so: the single images' scores are tested.
    """

    split: str
    metric: str
    before: float | None
    after: float | None
    test: PairedTest | None = None
    reason: str | None = None
    no_interval: str | None = None

    @property
    def estimate(self) -> Estimate:
        """`after` less `before`: p corrected for all tests of the comparison, the interval at the level that leaves."""
        if self.test is None:
            return Estimate(None, reason=self.reason or "")
        if self.no_interval is None:
            return self.test.change
        return replace(self.test.change, low=None, high=None, reason=self.no_interval)

    @property
    def over(self) -> str | None:
        """What the test is over; None without a test."""
        if self.test is None:
            return None
        return OVER_IMAGES if self.test.over_seeds is None else OVER_SEEDS


@dataclass(frozen=True, slots=True)
class CostChange:
    """A cost's mean over seeds; `ratio` is after by before, `slowdown` that of times, where more is slower.

    `range_before` and `range_after` are the least and the greatest value of a seed.
    """

    name: str
    unit: str
    before: float
    after: float
    ratio: float | None
    slowdown: float | None
    range_before: tuple[float, float]
    range_after: tuple[float, float]


@dataclass(frozen=True, slots=True)
class CaptionChange:
    """An image whose caption differs, with its CIDEr-D on either side, fractions."""

    model: str
    split: str
    image: ImageRecord
    before: str
    after: str
    score_before: float
    score_after: float

    @property
    def change(self) -> float:
        return self.score_after - self.score_before


@dataclass(frozen=True, slots=True)
class Differing:
    """How many of a split's captions differ, and how many of these score better and worse."""

    split: str
    of: int
    captions: int
    better: int
    worse: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides that are compared.

    `conditions` are the fields of the signature that differ, `settings` those of the configuration of one model.
    `hardware` is in what the machines differ, so that times have no ratio. `captions` are those that changed most, of
    `caption_seeds`. `separating_fields` distinguish the first side from that of other pairs of its model.
    `facts` are F of each kind, corrected among themselves. `missing_costs` are why a side lacks one of the main costs.
    """

    before: Side
    after: Side
    conditions: tuple[str, ...]
    settings: tuple[str, ...]
    scores: tuple[ScoreChange, ...]
    costs: tuple[CostChange, ...]
    hardware: tuple[str, ...]
    differing: tuple[Differing, ...]
    captions: tuple[CaptionChange, ...]
    caption_seeds: tuple[int, int]
    separating_fields: str = ""
    facts: tuple[ScoreChange, ...] = ()
    missing_costs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All pairs; `only_before` and `only_after` name runs without a counterpart; `tests` were corrected together.

    `others` are further pairs of the same two models, each under equal conditions.
    """

    pairs: tuple[Pair, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    tests: int
    others: tuple[tuple[Side, Side], ...] = ()


NO_INTERVAL: Final = (
    "the single images' scores are tested, whose mean is not the score, since a run has no influences of images on it"
)

OTHER_IMAGES: Final = "scored on other images"
TOO_FEW_IMAGES: Final = "the images are too few for one that is corrected for so many tests"

Stores = tuple[Store, Store]


@dataclass(frozen=True, slots=True)
class ScoresToTest:
    """Numbers of the images whose mean is the score, of all runs of both sides; None with a `reason`.

    They are scores of metrics that are means, influences on others. Where a run lacks influences, they are scores of
    single images, and `no_interval` says so.
    """

    scores: PairedScores | None
    reason: str | None = None
    no_interval: str | None = None


def scores_to_test(
    stores: Stores, before: Sequence[Run], after: Sequence[Run], split: str, metric: str
) -> ScoresToTest:
    """Read from both stores what tests of a metric need; the scores of this one alone are held then."""
    sides = _read_sides(image_influences, stores, (before, after), split, metric)
    no_interval = None
    if sides is None:
        sides = _read_sides(image_scores, stores, (before, after), split, metric)
        no_interval = NO_INTERVAL if metric in SUMS else None
    if sides is None:
        return ScoresToTest(None, "the database has no scores of single images")
    run_ids = [[run.id for run in runs] for runs in (before, after)]
    masks = [matrix.common(runs) for matrix, runs in zip(sides, run_ids, strict=True)]
    images = [matrix.images[mask] for matrix, mask in zip(sides, masks, strict=True)]
    same_data = len({run.fingerprint for run in (*before, *after)}) == 1
    same_images = len(images[0]) > 0 and np.array_equal(images[0], images[1])
    if no_interval is None:  # over seeds and images no image of a seed may be left out
        same_images &= all(matrix.have_same_images(runs) for matrix, runs in zip(sides, run_ids, strict=True))
    if not (same_data and same_images):
        return ScoresToTest(None, OTHER_IMAGES)
    numbers = [matrix.of_images(runs, mask) for matrix, runs, mask in zip(sides, run_ids, masks, strict=True)]
    return ScoresToTest(PairedScores(images[0], *numbers), no_interval=no_interval)


_Reader = Callable[[Connection, Sequence[Run], str, str], ScoreMatrix]


def _read_sides(
    read: _Reader, stores: Stores, sides: tuple[Sequence[Run], Sequence[Run]], split: str, metric: str
) -> list[ScoreMatrix] | None:
    """The numbers of all runs of both sides; None where a run has none."""
    matrices = []
    for store, runs in zip(stores, sides, strict=True):
        with store.reading() as connection:
            matrix = read(connection, runs, split, metric)
        if not all(matrix.has(run.id) for run in runs):
            return None
        matrices.append(matrix)
    return matrices


@dataclass(frozen=True, slots=True)
class UntestedScore:
    """A score with what its corrected test needs, which is less than the scores of all seeds.

    `over_seeds` is the test over seeds and images, None where it is over images.
    """

    score: ScoreChange
    changes: ImageChanges
    over_seeds: TTest | None

    @classmethod
    def from_scores(cls, score: ScoreChange, scores: PairedScores) -> Self:
        """One that says why it has no interval is tested over images, whatever its seeds."""
        over_seeds = None
        if score.no_interval is None:
            test = architecture_difference(scores.after, scores.before)
            over_seeds = None if test.estimate.p is None else test
        return cls(score, scores.changes(), over_seeds)


def with_tests(scores: Sequence[UntestedScore]) -> list[ScoreChange]:
    """Scores with their tests, all corrected together."""
    tests = _corrected_tests(scores)
    return [replace(score.score, test=test) for score, test in zip(scores, tests, strict=True)]


def with_corrected_intervals(scores: Sequence[UntestedScore]) -> list[ScoreChange]:
    """As `with_tests`, with intervals at the level that the correction leaves to each test.

    So an interval leaves out 0 exactly where the corrected p is below 5 %. It holds the differences that the same test
    does not reject: by t over seeds and images, by sign flips over images.
    """
    tests = _corrected_tests(scores)
    intervals = _corrected_intervals(tests, [score.changes for score in scores])
    changes = []
    for untested, test, (low, high) in zip(scores, tests, intervals, strict=True):
        score = untested.score
        if math.isinf(low):
            test = replace(test, change=replace(test.change, low=None, high=None))
            changes.append(replace(score, test=test, no_interval=score.no_interval or TOO_FEW_IMAGES))
        else:
            changes.append(replace(score, test=replace(test, change=replace(test.change, low=low, high=high))))
    return changes


def _corrected_tests(scores: Sequence[UntestedScore]) -> list[PairedTest]:
    """The test of every score, with p corrected for all of them and intervals that are not."""
    tests = []
    for score, change in zip(scores, paired_differences([score.changes for score in scores]), strict=True):
        if score.over_seeds is not None:
            by_t = score.over_seeds.estimate
            change = replace(change, low=by_t.low, high=by_t.high, p=by_t.p)
        assert change.p is not None
        tests.append(PairedTest(score.changes.before, score.changes.after, change, change.p, score.over_seeds))
    adjusted = holm([_correctable_p(test, len(tests)) for test in tests])
    return [replace(test, change=replace(test.change, p=p)) for test, p in zip(tests, adjusted, strict=True)]


def _correctable_p(test: PairedTest, tests: int) -> float:
    """The p-value that a correction for so many tests may take."""
    by_t = test.over_seeds
    if by_t is None or by_t.error is None or by_t.degrees is None:
        return test.uncorrected_p
    degrees = joint_degrees(by_t.degrees, by_t.seeds, tests)
    return float(p_of_t(*map(np.asarray, (by_t.estimate.value, by_t.error, degrees))))


def _corrected_intervals(tests: Sequence[PairedTest], changes: Sequence[ImageChanges]) -> list[tuple[float, float]]:
    """The interval of every change at the level that the correction leaves; infinite where images are too few."""
    levels = holm_levels([_correctable_p(test, len(tests)) for test in tests])
    intervals: dict[int, tuple[float, float]] = {}
    over_images: list[int] = []
    for index, (test, level) in enumerate(zip(tests, levels, strict=True)):
        by_t = test.over_seeds
        if by_t is None or by_t.estimate.value is None or by_t.error is None or by_t.degrees is None:
            over_images.append(index)
        else:
            degrees = joint_degrees(by_t.degrees, by_t.seeds, len(tests))
            half = float(t_quantile(1 - level, np.asarray(degrees))) * by_t.error
            intervals[index] = by_t.estimate.value - half, by_t.estimate.value + half
    for members in group_by_images([changes[index] for index in over_images]):
        indices = [over_images[member] for member in members]
        differences = np.array([changes[index].changes for index in indices]).T
        of_members = sign_flip_intervals(differences, [levels[index] for index in indices])
        intervals |= zip(indices, of_members, strict=True)
    return [intervals[index] for index in range(len(tests))]


def cost_changes(before: Sequence[Run], after: Sequence[Run]) -> list[CostChange]:
    """The costs that every run of both sides has, or of times the seed that was timed; in the first run's order."""
    changes = []
    for name, first in before[0].costs.items():
        sides = [_values(runs, name) for runs in (before, after)]
        if all(sides) and not any(_lacks(run, name) for run in (*before, *after)):
            unit = first.unit
            mean_before, mean_after = map(fmean, sides)
            ratio = _times(mean_after, mean_before)
            slowdown = None
            if unit in _MORE_IS_SLOWER and name not in _NO_TIMES and mean_after > 0:
                slowdown = ratio if _MORE_IS_SLOWER[unit] else _times(mean_before, mean_after)
            ranges = [(min(side), max(side)) for side in sides]
            changes.append(CostChange(name, unit, mean_before, mean_after, ratio, slowdown, *ranges))
    return changes


def _lacks(run: Run, cost: str) -> bool:
    """Whether a run has no value of a cost, other than because another seed was timed."""
    quantity = run.costs.get(cost)
    return quantity is None or (quantity.value is None and quantity.reason != OTHER_SEED)


def missing_costs(before: Sequence[Run], after: Sequence[Run]) -> dict[str, str]:
    """Why the main costs that some run lacks were not measured, by cost; those without a reason are left out."""
    reasons: dict[str, str] = {}
    for cost in compared_costs():
        for run in (*before, *after):
            if _lacks(run, cost.name) and cost.name in run.costs and (reason := run.costs[cost.name].reason):
                reasons.setdefault(cost.name, reason)
    return reasons


def _values(runs: Sequence[Run], cost: str) -> list[float]:
    """A cost of the runs that have it."""
    values = (run.costs[cost].value for run in runs if cost in run.costs)
    return [value for value in values if value is not None]


def hardware_differences(before: Run, after: Run) -> list[str]:
    """In what the machines of two runs differ, or are not known to be equal, with both values."""
    hardware_before, hardware_after = (_hardware(run.environment) for run in (before, after))
    return [
        f"{name} {hardware_before[name] or 'unknown'} → {hardware_after[name] or 'unknown'}"
        for name in hardware_before
        if hardware_before[name] != hardware_after[name] or hardware_before[name] is None
    ]


def _hardware(environment: Mapping[str, Any]) -> dict[str, str | None]:
    """The machine, its processor and the device; None where a run does not say."""
    device = environment.get("device")
    if isinstance(device, dict):
        device = " ".join(str(device[field]) for field in ("type", "name") if field in device)
    values = {"machine": environment.get("machine"), "cpu": environment.get("cpu"), "device": device}
    return {name: None if value is None else str(value) for name, value in values.items()}


def _times(numerator: float, denominator: float) -> float | None:
    times = numerator / denominator if denominator > 0 else math.inf
    return times if math.isfinite(times) else None


Images = Mapping[str, Mapping[int, ImageRecord]]
_Runs = list[Run]
_Sides = tuple[_Runs, _Runs]


def compare_models(
    before: StoredRuns, after: StoredRuns, images: Images, most: int, metrics: Collection[str] | None = None
) -> Comparison:
    """The runs of a model, or one alone, beside those of another: the newest of each seed.

    Of several conditions, those that both sides have, or else the newest of each. Only `metrics` are tested, or all.
    """
    ours = rows_of_runs(before.runs)
    theirs = rows_of_runs(after.runs)
    pairs = []
    for our_row, our_runs in ours.items():
        pairs += [(our_runs, their_runs) for their_row, their_runs in theirs.items() if their_row[-1] == our_row[-1]]
    candidates = pairs or list(product(ours.values(), theirs.values()))
    pair = max(candidates, key=lambda sides: min(max(run.ended for run in side) for side in sides))
    others = tuple((_side(sides[0]), _side(sides[1])) for sides in pairs if sides is not pair)
    comparison = _comparison([pair], (before.store, after.store), images, most, metrics)
    return replace(comparison, others=others)


def compare_stores(
    before: StoredRuns, after: StoredRuns, images: Images, most: int, metrics: Collection[str] | None = None
) -> Comparison:
    """The newest runs of two stores, paired by role, model and conditions; a model's only rows, whatever conditions.

    Scores are of all seeds where both sides have several: seeds are unpaired. Elsewhere, and for costs and captions,
    those that both sides have count, or else the first of each. Only `metrics` are tested, or all.
    """
    ours = rows_of_runs(before.runs)
    theirs = rows_of_runs(after.runs)
    pairs = [(ours.pop(row), theirs.pop(row)) for row in list(ours) if row in theirs]
    for row in list(ours):
        same_model = [[other for other in side if other[:2] == row[:2]] for side in (ours, theirs)]
        if len(same_model[0]) == len(same_model[1]) == 1:
            pairs.append((ours.pop(row), theirs.pop(same_model[1][0])))
    comparison = _comparison(pairs, (before.store, after.store), images, most, metrics)
    only_before, only_after = _names(ours, theirs)
    return replace(comparison, only_before=only_before, only_after=only_after)


def rows_of_runs(runs: Iterable[Run]) -> dict[Row, _Runs]:
    """The newest run of every seed, ascending, by role, model and conditions."""
    rows: dict[Row, _Runs] = {}
    for run in sorted(newest_runs(runs), key=lambda run: run.seed):
        rows.setdefault(row_of(run), []).append(run)
    return rows


def _names(*sides: Mapping[Row, _Runs]) -> list[tuple[str, ...]]:
    """The rows of each side, and what distinguishes those of one model, of whichever side."""
    separating_fields = iter(distinguishing([runs[0] for rows in sides for runs in rows.values()]))

    def name(runs: _Runs) -> str:
        seeds = ",".join(str(run.seed) for run in runs)
        fields = next(separating_fields)
        text = f"{runs[0].model} seed {seeds}"
        return f"{text} ({fields})" if fields else text

    return [tuple(map(name, rows.values())) for rows in sides]


def scored_sides(before: _Runs, after: _Runs) -> _Sides:
    """The seeds whose scores are compared: all where both sides have several, else those in common."""
    return (before, after) if min(len(before), len(after)) > 1 else _common_seeds(before, after)


def _common_seeds(before: _Runs, after: _Runs) -> _Sides:
    common = {run.seed for run in before} & {run.seed for run in after}
    if not common:
        return before[:1], after[:1]
    return [run for run in before if run.seed in common], [run for run in after if run.seed in common]


def _comparison(
    pairs: Sequence[_Sides], stores: Stores, images: Images, most: int, metrics: Collection[str] | None
) -> Comparison:
    def chosen(run: Run) -> dict[str, dict[str, Quantity]]:
        overall = _overall(run)
        if metrics is None:
            return overall
        return {split: {name: scores[name] for name in scores if name in metrics} for split, scores in overall.items()}

    scored_pairs = [scored_sides(*pair) for pair in pairs]
    common_pairs = [_common_seeds(*pair) for pair in pairs]
    scores, facts = (tested_pairs(scored_pairs, stores, quantities) for quantities in (chosen, _facts))
    separating = distinguishing([before[0] for before, _ in scored_pairs])
    described = []
    for scored, common, of_scores, of_facts, fields in zip(
        scored_pairs, common_pairs, scores, facts, separating, strict=True
    ):
        pair = _pair(scored, common, stores, images, most)
        described.append(replace(pair, scores=of_scores, facts=of_facts, separating_fields=fields))
    tests = sum(score.test is not None for of_pair in scores for score in of_pair)
    return Comparison(tuple(described), (), (), tests)


_Quantities = Callable[[Run], Mapping[str, Mapping[str, Quantity]]]


def _overall(run: Run) -> dict[str, dict[str, Quantity]]:
    return {split: run.scores.metrics(split) for split in run.scores.splits}


def _facts(run: Run) -> dict[str, dict[str, Quantity]]:
    names = {fact_metric("F", kind) for kind in KINDS}
    facts = {split: run.scores.metrics(split, kind="fact") for split in run.scores.splits}
    return {split: {name: of_split[name] for name in of_split if name in names} for split, of_split in facts.items()}


def tested_pairs(pairs: Sequence[_Sides], stores: Stores, quantities: _Quantities) -> list[tuple[ScoreChange, ...]]:
    """The scores of every pair, all tests corrected together."""
    scores = [list(_scores(*sides, stores, quantities)) for sides in pairs]
    untested = [score for of_pair in scores for score in of_pair if isinstance(score, UntestedScore)]
    tested = iter(with_corrected_intervals(untested))
    return [
        tuple(next(tested) if isinstance(score, UntestedScore) else score for score in of_pair) for of_pair in scores
    ]


def _scores(
    before: _Runs, after: _Runs, stores: Stores, quantities: _Quantities
) -> Iterator[ScoreChange | UntestedScore]:
    """Every score that either side has, untested, or with the reason why it cannot be."""
    names = (
        (split, metric) for run in (*before, *after) for split, metrics in quantities(run).items() for metric in metrics
    )
    for split, metric in dict.fromkeys(names):
        (mean_before, reason_before), (mean_after, reason_after) = (
            _mean(side, split, metric, quantities) for side in (before, after)
        )
        score = ScoreChange(split, metric, mean_before, mean_after, reason=reason_before or reason_after)
        if score.reason is not None:
            yield score
            continue
        to_test = scores_to_test(stores, before, after, split, metric)
        score = replace(score, reason=to_test.reason, no_interval=to_test.no_interval)
        yield score if to_test.scores is None else UntestedScore.from_scores(score, to_test.scores)


def _mean(runs: _Runs, split: str, metric: str, quantities: _Quantities) -> tuple[float | None, str | None]:
    missing = Quantity(None, "not measured")
    scores = [quantities(run).get(split, {}).get(metric, missing) for run in runs]
    values = [score.value for score in scores if score.value is not None]
    if len(values) == len(scores):
        return fmean(values), None
    return None, next(score.reason for score in scores if score.value is None)


def _pair(scored: _Sides, common: _Sides, stores: Stores, images: Images, most: int) -> Pair:
    """All but its scores: those are of one pair of sides, costs and captions of the other."""
    first = common[0][0]
    second = common[1][0]
    same_model = (first.role, first.model) == (second.role, second.model)
    machines = (hardware_differences(before, after) for before, after in zip(*common, strict=True))
    hardware = tuple(dict.fromkeys(chain.from_iterable(machines)))
    costs = cost_changes(*common)
    if hardware:
        costs = [replace(cost, ratio=None) if depends_on_machine(cost.name, cost.unit) else cost for cost in costs]
    counts, captions = _captions(first, second, stores, images.get(first.fingerprint, {}), most)
    conditions = tuple(differing(without_code(first.conditions), without_code(second.conditions)))
    has_settings = same_model and not first.is_system  # what tells systems apart is among their conditions
    settings = tuple(differing(_settings(first.variant), _settings(second.variant))) if has_settings else ()
    before, after = map(_side, scored)
    of_captions = counts, captions, (first.seed, second.seed)
    missing = missing_costs(*common)
    return Pair(before, after, conditions, settings, (), tuple(costs), hardware, *of_captions, missing_costs=missing)


def _side(runs: _Runs) -> Side:
    first = runs[0]
    seeds = tuple(run.seed for run in runs)
    keys = tuple(run.key for run in runs)
    code = ", ".join(dict.fromkeys(run.made_by for run in runs))
    steps = first.costs.get("train_steps")
    updates = None if steps is None or not steps.value else round(steps.value)
    endings = [ended for run in runs if (ended := run.learning) is not None]
    state = mean_learning(endings).state if endings else "unknown"
    return Side(first.model, first.role, seeds, keys, code, first.budget, updates, state)


def _settings(variant: Mapping[str, str]) -> dict[str, str]:
    texts = {"code_version", "code", "captions"}  # which are no JSON; what captions are is no setting
    settings = {name: json.loads(value) for name, value in variant.items() if name not in texts}
    single = (pair for name, value in settings.items() for pair in _single(name, value))
    return {path: setting for path, setting in single if not path.endswith(".summary")}


def _single(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Dotted paths to single values, those of lists by number."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, inner in parts:
        yield from _single(f"{name}.{part}", inner)
    if not parts:
        yield name, json.dumps(value, ensure_ascii=False)


def _captions(
    before: Run, after: Run, stores: Stores, images: Mapping[int, ImageRecord], most: int
) -> tuple[tuple[Differing, ...], tuple[CaptionChange, ...]]:
    """How many captions differ by split, and the `most` whose CIDEr-D changed most; of one data set alone."""
    if before.fingerprint != after.fingerprint:
        return (), ()
    counts = []
    changes = []
    captions_after = captions_of(stores[1], after)
    for split, captions in captions_of(stores[0], before).items():
        if not (captions_now := captions_after.get(split)):
            continue  # a published copy has none
        ciders_before, ciders_after = (
            _ciders(store, run, split) for store, run in zip(stores, (before, after), strict=True)
        )
        common = [image for image in captions if image in captions_now]
        differing_images = [image for image in common if captions[image] != captions_now[image]]
        changed = [
            CaptionChange(
                after.model,
                split,
                images[image],
                captions[image],
                captions_now[image],
                ciders_before[image],
                ciders_after[image],
            )
            for image in differing_images
            if image in ciders_before and image in ciders_after and image in images
        ]
        better, worse = (sum(sign * change.change > 0 for change in changed) for sign in (1, -1))
        counts.append(Differing(split, len(common), len(differing_images), better, worse))
        changes += changed
    changes.sort(key=lambda change: (-abs(change.change), change.split, change.image.image_id))
    return tuple(counts), tuple(changes[:most])


def _ciders(store: Store, run: Run, split: str) -> dict[int, float]:
    with store.reading() as connection:
        return image_scores(connection, [run], split, RANKING_METRIC).by_image(run.id)
