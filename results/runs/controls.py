"""Control pairs beside a leaderboard: differences that cannot come of the architecture, since it is the same.

Further seeds: a row of four seeds or more, its second half against its first. Another preprocessing: a row whose
signature has the field `preprocessing` and is otherwise the same, against the row without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median
from typing import Final, Literal

from results.runs.leaderboard import RANKING_METRIC, Group
from results.runs.reading import FINISHED, image_scores, read_runs
from results.runs.run import ByImage, Run
from results.runs.standings import FLOORS
from results.statistics.architecture import architecture_difference
from results.statistics.significance import matrix
from results.store.store import Store

PREPROCESSING: Final = "preprocessing"
"""The signature's field of a control run that says how its preprocessing differs."""
NEEDS_IMAGE_SCORES: Final = "needs the scores of single images: some are not stored, or are of other images"
_POINTS: Final = 100
_HALVED: Final = 4

Kind = Literal["seeds", "preprocessing"]


@dataclass(frozen=True, slots=True)
class ControlPair:
    """One model against itself: mean CIDEr-D of the changed runs less that of the others, in points.

    `change` is the value of the field `preprocessing`, None for further seeds. Interval and two-sided p are over seeds
    and images; all three are None for the `reason`.
    """

    model: str
    kind: Kind
    change: str | None
    difference: float
    low: float | None
    high: float | None
    p: float | None
    reason: str | None
    seeds: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Controls:
    """The control pairs of a group, and the absolute differences of all pairs of its ranked rows, in points.

    `largest` and `median` are of the mean CIDEr-D; None where fewer than two rows besides the floors have one.
    """

    pairs: tuple[ControlPair, ...] = ()
    largest: float | None = None
    median: float | None = None


@dataclass(frozen=True, slots=True)
class _Sides:
    """The runs of a pair that have a score on the split, by seed."""

    model: str
    split: str
    change: str | None
    changed: Sequence[Run]
    others: Sequence[Run]


def controls(store: Store, groups: Sequence[Group], read: Sequence[Run] | None = None) -> list[Controls]:
    """The controls of each of the groups, in their order; the groups are those of `leaderboard(store)`.

    `read` are all finished runs, where they have been read already.
    """
    with store.reading() as connection:
        runs = {run.key: run for run in (read_runs(connection, FINISHED) if read is None else read)}
        rows = [[_scored([runs[key] for key in row.keys], group.split) for row in group.rows] for group in groups]
        sides = _sides(groups, rows)
        involved = {run.id: run for pairs in sides for pair in pairs for run in (*pair.changed, *pair.others)}
        by_image = image_scores(connection, list(involved.values()), RANKING_METRIC)
    return [
        Controls(tuple(_pair(pair, by_image) for pair in pairs), *_table(group))
        for group, pairs in zip(groups, sides, strict=True)
    ]


def _sides(groups: Sequence[Group], rows: Sequence[Sequence[Sequence[Run]]]) -> list[list[_Sides]]:
    changed: dict[object, list[Sequence[Run]]] = {}
    for group, members in zip(groups, rows, strict=True):
        for own in members:
            if own and PREPROCESSING in own[0].signature:
                changed.setdefault(_same(own[0], group.split), []).append(own)
    found: list[list[_Sides]] = []
    for group, members in zip(groups, rows, strict=True):
        pairs = []
        for own in filter(None, members):
            model, split, half = own[0].model, group.split, len(own) // 2
            if len(own) >= _HALVED:
                pairs.append(_Sides(model, split, None, own[half:], own[:half]))
            if PREPROCESSING not in own[0].signature:
                pairs += [
                    _Sides(model, split, other[0].signature[PREPROCESSING], other, own)
                    for other in changed.get(_same(own[0], split), ())
                ]
        found.append(pairs)
    return found


def _same(run: Run, split: str) -> object:
    """Equal for runs that differ in nothing but the seed and the preprocessing; another release is no difference."""
    fingerprint, track, signature = run.comparable
    rest = frozenset(item for item in signature if item[0] != PREPROCESSING)
    return fingerprint, track, rest, run.model, frozenset(run.variant.items()), split


def _scored(runs: Sequence[Run], split: str) -> list[Run]:
    return sorted((run for run in runs if _score(run, split) is not None), key=lambda run: run.seed)


def _score(run: Run, split: str) -> float | None:
    score = run.scores[split].get("overall", {}).get(RANKING_METRIC)
    return None if score is None else score.value


def _pair(sides: _Sides, by_image: Mapping[tuple[int, str], ByImage]) -> ControlPair:
    changed, others = ([by_image[run.id, sides.split] for run in runs] for runs in (sides.changed, sides.others))
    kind: Kind = "seeds" if sides.change is None else "preprocessing"
    seeds = len(changed), len(others)
    if matrix([*changed, *others]) is None:
        means = [fmean(_score(run, sides.split) or 0.0 for run in runs) for runs in (sides.changed, sides.others)]
        gap = _POINTS * (means[0] - means[1])
        return ControlPair(sides.model, kind, sides.change, gap, None, None, None, NEEDS_IMAGE_SCORES, seeds)
    first, second = (side for runs in (changed, others) if (side := matrix(runs)) is not None)
    test = architecture_difference(_POINTS * first, _POINTS * second)
    return ControlPair(
        sides.model, kind, sides.change, test.difference, test.low, test.high, test.p, test.reason, seeds
    )


def _table(group: Group) -> tuple[float | None, float | None]:
    found = (row.mean(RANKING_METRIC) for row in group.rows if row.model not in FLOORS)
    means = [mean for mean in found if mean is not None]
    gaps = [_POINTS * abs(one - other) for one, other in combinations(means, 2)]
    return (max(gaps), median(gaps)) if gaps else (None, None)
