"""Two runs, or the runs of two stores, side by side: conditions, scores with tests, costs and changed captions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from results.comparison.baseline_making import differing, distinguishing, newest_runs, run_of
from results.comparison.comparison_types import CaptionChange, Comparison, Differing, Pair, ScoreChange, Side
from results.comparison.repeats import MACHINE, cost_changes, other_hardware
from results.comparison.run_snapshot import RunSnapshot
from results.comparison.score_tests import SeedsOfSides, numbers_to_test, with_tests
from results.records import ImageRecord, Quantity
from results.runs.leaderboard import RANKING_METRIC
from results.runs.machines import depends_on_machine
from results.statistics.paired import mean_of_seeds

Images = Mapping[str, Mapping[int, ImageRecord]]
_Runs = list[RunSnapshot]
_Sides = tuple[_Runs, _Runs]
_Row = tuple[str, str, frozenset[tuple[str, str]]]


def compare_runs(before: RunSnapshot, after: RunSnapshot, images: Images, most: int) -> Comparison:
    """Two runs, whatever their models; `images` by data set and id; of the captions that changed, the `most`."""
    sides = [before], [after]
    return _comparison([(sides, sides)], images, most)


def compare_stores(
    before: Iterable[RunSnapshot], after: Iterable[RunSnapshot], images: Images, most: int
) -> Comparison:
    """The newest runs of two stores, paired by role, model and conditions; a model's only rows, whatever conditions.

    Scores are of all seeds where both sides have several: seeds are unpaired. Elsewhere, and for costs and captions,
    those that both sides have count, or else the first of each.
    """
    ours, theirs = _rows(before), _rows(after)
    pairs = [(ours.pop(row), theirs.pop(row)) for row in list(ours) if row in theirs]
    for row in list(ours):
        alike = [[other for other in side if other[:2] == row[:2]] for side in (ours, theirs)]
        if len(alike[0]) == len(alike[1]) == 1:
            pairs.append((ours.pop(row), theirs.pop(alike[1][0])))
    found = _comparison([(_tested(*pair), _common_seeds(*pair)) for pair in pairs], images, most)
    return replace(found, only_before=_names(ours), only_after=_names(theirs))


def _rows(runs: Iterable[RunSnapshot]) -> dict[_Row, _Runs]:
    """The newest run of every seed, ascending, by role, model and conditions."""
    rows: dict[_Row, _Runs] = {}
    for each, run in sorted(newest_runs(runs), key=lambda pair: pair[1].seed):
        rows.setdefault((run.role, run.model, run.identity[-1]), []).append(each)
    return rows


def _names(rows: Mapping[_Row, _Runs]) -> tuple[str, ...]:
    apart = distinguishing([runs[0] for runs in rows.values()])
    return tuple(
        f"{runs[0].run.model} seed {','.join(str(each.run.seed) for each in runs)}{f' ({told})' if told else ''}"
        for runs, told in zip(rows.values(), apart, strict=True)
    )


def _tested(before: _Runs, after: _Runs) -> _Sides:
    """The runs whose scores are compared."""
    return (before, after) if min(len(before), len(after)) > 1 else _common_seeds(before, after)


def _common_seeds(before: _Runs, after: _Runs) -> _Sides:
    common = {each.run.seed for each in before} & {each.run.seed for each in after}
    if not common:
        return before[:1], after[:1]
    return [each for each in before if each.run.seed in common], [each for each in after if each.run.seed in common]


def _comparison(pairs: Sequence[tuple[_Sides, _Sides]], images: Images, most: int) -> Comparison:
    """Of pairs of the sides whose scores are compared, and those whose costs and captions are."""
    scored = [list(_scores(*compared)) for compared, _ in pairs]
    testable = [(score, sides) for found in scored for score, sides in found if sides is not None]
    tests = iter(with_tests(testable))
    tested = [tuple(score if sides is None else next(tests) for score, sides in of_pair) for of_pair in scored]
    apart = distinguishing([before[0] for (before, _), _ in pairs])
    found = []
    for (compared, common), scores, told in zip(pairs, tested, apart, strict=True):
        pair = _pair(*common, scores, images, most)
        found.append(replace(pair, before=_side(compared[0]), after=_side(compared[1]), apart=told))
    return Comparison(tuple(found), (), (), len(testable))


def _scores(before: _Runs, after: _Runs) -> Iterator[tuple[ScoreChange, SeedsOfSides | None]]:
    """Every score that either side has, without its test, and the images' numbers by seed where these can be tested."""
    runs = [each.run for each in (*before, *after)]
    names = ((split, metric) for run in runs for split, found in run.scores.items() for metric in found["overall"])
    same_data = len({run.fingerprint for run in runs}) == 1
    for split, metric in dict.fromkeys(names):
        (one, why), (two, why_not) = (_mean(side, split, metric) for side in (before, after))
        score = ScoreChange(split, metric, one, two, reason=why or why_not)
        sides, no_interval = numbers_to_test(before, after, split, metric)
        if score.reason is None and (len(sides[0]), len(sides[1])) != (len(before), len(after)):
            score = replace(score, reason="the database has no scores of single images")
        if score.reason is None:
            by_image = mean_of_seeds(sides[0]), mean_of_seeds(sides[1])
            if same_data and by_image[0] and by_image[0].keys() == by_image[1].keys():
                yield replace(score, no_interval=no_interval), sides
                continue
            score = replace(score, reason="scored on other images")
        yield score, None


def _mean(runs: _Runs, split: str, metric: str) -> tuple[float | None, str | None]:
    missing = Quantity(None, "not measured")
    found = [each.run.scores.get(split, {}).get("overall", {}).get(metric, missing) for each in runs]
    values = [score.value for score in found if score.value is not None]
    if len(values) == len(found):
        return fmean(values), None
    return None, next(score.reason for score in found if score.value is None)


def _pair(before: _Runs, after: _Runs, scores: tuple[ScoreChange, ...], images: Images, most: int) -> Pair:
    one, two = before[0].run, after[0].run
    sides = [[run_of(run) for run in side] for side in (before, after)]
    same_model = (one.role, one.model) == (two.role, two.model)
    hardware = tuple(other_hardware(sides[0], sides[1], MACHINE))
    costs = cost_changes(*sides)
    if hardware:
        costs = [replace(cost, ratio=None) if depends_on_machine(cost.name, cost.unit) else cost for cost in costs]
    counts, captions = _captions(before[0], after[0], images.get(one.fingerprint, {}), most)
    return Pair(
        before=_side(before),
        after=_side(after),
        conditions=tuple(differing(sides[0][0].conditions, sides[1][0].conditions)),
        settings=tuple(_settings(one.variant, two.variant)) if same_model else (),
        scores=scores,
        costs=tuple(costs),
        hardware=hardware,
        differing=counts,
        captions=captions,
        caption_seeds=(one.seed, two.seed),
    )


def _side(runs: _Runs) -> Side:
    first = runs[0].run
    seeds, keys = tuple(each.run.seed for each in runs), tuple(each.run.key for each in runs)
    return Side(first.model, first.role, seeds, keys, ", ".join(dict.fromkeys(run.code for run in runs)))


def _settings(one: Mapping[str, str], two: Mapping[str, str]) -> list[str]:
    """The settings that differ, less those that only describe others."""
    telling = [
        {
            path: shown
            for name, value in side.items()
            if name not in {"code_version", "code"}
            for path, shown in _single(name, json.loads(value))
            if not path.endswith(".summary")
        }
        for side in (one, two)
    ]
    return differing(*telling)


def _single(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Dotted paths to single values, those of lists by number."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, inner in parts:
        yield from _single(f"{name}.{part}", inner)
    if not parts:
        yield name, json.dumps(value, ensure_ascii=False)


def _captions(
    before: RunSnapshot, after: RunSnapshot, images: Mapping[int, ImageRecord], most: int
) -> tuple[tuple[Differing, ...], tuple[CaptionChange, ...]]:
    """How many captions differ by split, and the `most` whose CIDEr-D changed most; of one data set alone."""
    if before.run.fingerprint != after.run.fingerprint:
        return (), ()
    counts, changes = [], []
    for split, captions in before.captions.items():
        now = after.captions.get(split, {})
        scores = [run.by_image.get(split, {}).get(RANKING_METRIC, {}) for run in (before, after)]
        both = [image for image in captions if image in now]
        found = [
            CaptionChange(
                after.run.model, split, images[image], captions[image], now[image], scores[0][image], scores[1][image]
            )
            for image in both
            if captions[image] != now[image] and image in scores[0] and image in scores[1] and image in images
        ]
        better, worse = (sum(sign * each.change > 0 for each in found) for sign in (1, -1))
        counts.append(Differing(split, len(both), sum(captions[image] != now[image] for image in both), better, worse))
        changes += found
    changes.sort(key=lambda each: (-abs(each.change), each.split, each.image.image_id))
    return tuple(counts), tuple(changes[:most])
