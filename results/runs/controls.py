"""Control pairs beside a leaderboard: differences that cannot come of the architecture, since it is the same.

Further seeds: a row of four seeds or more, its second half against its first. Another preprocessing: a row whose
signature has the field `preprocessing` and is otherwise the same, against the row without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median
from typing import Final

from results.runs.leaderboard import RANKING_METRIC, Group
from results.runs.reading import image_scores
from results.runs.run import ByImage, Run
from results.runs.standings import FLOORS
from results.statistics.architecture import architecture_difference
from results.statistics.significance import matrix
from results.store.store import Store

PREPROCESSING: Final = "preprocessing"
NEEDS_IMAGE_SCORES: Final = "needs the scores of single images: some are not stored, or are of other images"
_POINTS: Final = 100
_HALVED: Final = 4


@dataclass(frozen=True, slots=True)
class ControlPair:
    """One model against itself: mean CIDEr-D of the changed runs less that of the others, in points.

    `change` is the value of the field `preprocessing`, None for further seeds. Interval and two-sided p are over seeds
    and images; all three are None for the `reason`.
    """

    model: str
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


_Sides = tuple[str | None, Sequence[Run], Sequence[Run]]


def controls(store: Store, groups: Sequence[Group], runs: Mapping[str, Run]) -> list[Controls]:
    """The controls of each of the groups of `leaderboard(store)`, in their order; `runs` are the finished ones."""
    rows = [
        [[runs[key] for key in row.keys if _score(runs[key], group.split) is not None] for row in group.rows]
        for group in groups
    ]
    sides = _sides(groups, rows)
    involved = {run.id: run for pairs in sides for _, *both in pairs for side in both for run in side}
    with store.reading() as connection:
        by_image = image_scores(connection, list(involved.values()), RANKING_METRIC)
    found = []
    for group, pairs in zip(groups, sides, strict=True):
        means = (row.mean(RANKING_METRIC) for row in group.rows if row.model not in FLOORS)
        known = combinations((mean for mean in means if mean is not None), 2)
        gaps = [_POINTS * abs(one - other) for one, other in known]
        tested = tuple(_pair(group.split, *pair, by_image) for pair in pairs)
        found.append(Controls(tested, max(gaps, default=None), median(gaps) if gaps else None))
    return found


def _sides(groups: Sequence[Group], rows: Sequence[Sequence[Sequence[Run]]]) -> list[list[_Sides]]:
    changed: dict[object, list[Sequence[Run]]] = {}
    for group, members in zip(groups, rows, strict=True):
        for own in members:
            if own and PREPROCESSING in own[0].signature:
                changed.setdefault(_same(own[0], group.split), []).append(own)
    found: list[list[_Sides]] = []
    for group, members in zip(groups, rows, strict=True):
        pairs: list[_Sides] = []
        for own in filter(None, members):
            half = len(own) // 2
            if len(own) >= _HALVED:
                pairs.append((None, own[half:], own[:half]))
            if PREPROCESSING not in own[0].signature:
                others = changed.get(_same(own[0], group.split), ())
                pairs += [(other[0].signature[PREPROCESSING], other, own) for other in others]
        found.append(pairs)
    return found


def _same(run: Run, split: str) -> object:
    """Equal for runs that differ in nothing but the seed and the preprocessing; another release is no difference."""
    fingerprint, track, signature = run.comparable
    rest = frozenset(item for item in signature if item[0] != PREPROCESSING)
    return fingerprint, track, rest, run.model, frozenset(run.variant.items()), split


def _score(run: Run, split: str) -> float | None:
    score = run.scores[split].get("overall", {}).get(RANKING_METRIC)
    return None if score is None else score.value


def _pair(
    split: str,
    change: str | None,
    changed: Sequence[Run],
    others: Sequence[Run],
    by_image: Mapping[tuple[int, str], ByImage],
) -> ControlPair:
    model, seeds = changed[0].model, (len(changed), len(others))
    every = matrix([by_image[run.id, split] for run in (*changed, *others)])
    if every is None:
        means = [fmean(_score(run, split) or 0.0 for run in runs) for runs in (changed, others)]
        gap = _POINTS * (means[0] - means[1])
        return ControlPair(model, change, gap, None, None, None, NEEDS_IMAGE_SCORES, seeds)
    first, second = every[: seeds[0]], every[seeds[0] :]
    test = architecture_difference(_POINTS * first, _POINTS * second)
    return ControlPair(model, change, test.difference, test.low, test.high, test.p, test.reason, seeds)
