"""How far other seeds moved the rows of a leaderboard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from statistics import variance

from results.runs.finished_runs import FinishedRun
from results.runs.views import Group, Reseeding


def reseeding(rows: Iterable[Sequence[FinishedRun]], split: str, metric: str) -> Reseeding | None:
    """Of the rows with several seeds that were scored; None where there is none."""
    several = [scores for runs in rows if len(scores := _scores(runs, split, metric)) > 1]
    if not several:
        return None
    degrees = sum(len(scores) - 1 for scores in several)
    squares = sum((len(scores) - 1) * variance(scores) for scores in several)
    seeds = min(map(len, several))
    largest = max(max(scores) - min(scores) for scores in several)
    return Reseeding(len(several), seeds, sqrt(squares / degrees), largest, _ranks(several, seeds))


def with_reseeding(groups: Sequence[Group], newest: Mapping[int, float]) -> list[Group]:
    """Groups without rows of several seeds have the record of the newest of the same data set and split that has some.

    `newest` is when the last run of each group finished, by the group's place.
    """
    known = [place for place, group in enumerate(groups) if group.reseeding is not None]

    def nearest(group: Group) -> Reseeding | None:
        alike = [at for at in known if (groups[at].dataset, groups[at].split) == (group.dataset, group.split)]
        return groups[max(alike, key=lambda at: newest[at])].reseeding if alike else None

    return [group if group.reseeding else replace(group, reseeding=nearest(group)) for group in groups]


def _scores(runs: Sequence[FinishedRun], split: str, metric: str) -> list[float]:
    found = (run.scores[split]["overall"].get(metric) for run in runs)
    return [score.value for score in found if score is not None and score.value is not None]


def _ranks(rows: Sequence[Sequence[float]], seeds: int) -> int | None:
    """The most ranks that a row moves where its first, second ... seeds are ranked apart."""
    if len(rows) < 2:
        return None
    ranked: list[list[int]] = []
    for seed in range(seeds):
        order = sorted(range(len(rows)), key=lambda row: -rows[row][seed])
        ranked.append([order.index(row) for row in range(len(rows))])
    return max(max(of[row] for of in ranked) - min(of[row] for of in ranked) for row in range(len(rows)))
