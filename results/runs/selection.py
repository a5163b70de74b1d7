"""Some rows of a group: their ranks among each other, by the tests of the whole group."""

from collections.abc import Collection
from dataclasses import replace

from results.runs.leaderboard import Group
from results.runs.standings import ALONE, Comparisons, RankInterval


def keep_models(group: Group, models: Collection[str]) -> Group:
    """The group with the rows of these models alone.

    Tests stay those of the whole group, corrected for all of its pairs: rows are not chosen by what would make them
    significant. Ranks on the group's metric are counted among the rows that are left; those on other metrics, whose
    pairs are not kept, are left out.
    """
    indices = [index for index, row in enumerate(group.rows) if row.model in models]
    references = tuple(row for row in group.references if row.model in models)
    if len(indices) == len(group.rows):
        return replace(group, references=references)
    comparisons = group.comparisons and _among(group.comparisons, indices)
    rows = []
    for new, old in enumerate(indices):
        row = group.rows[old]
        rank = row.ranks.get(group.metric)
        ranks = {} if rank is None else {group.metric: rank}
        if rank is not None and rank.best is not None and comparisons is not None:
            ranks = {group.metric: _rank(new, rank, comparisons)}
        rows.append(replace(row, ranks=ranks))
    return replace(group, rows=tuple(rows), references=references, comparisons=comparisons)


def _among(comparisons: Comparisons, kept: list[int]) -> Comparisons:
    """The comparisons between the rows of these numbers, which are counted anew from 0."""
    new_index = {old: new for new, old in enumerate(kept)}
    pairs = tuple(
        replace(pair, first=new_index[pair.first], second=new_index[pair.second])
        for pair in comparisons.pairs
        if pair.first in new_index and pair.second in new_index
    )
    return replace(comparisons, rows=tuple(new_index[row] for row in comparisons.rows if row in new_index), pairs=pairs)


def _rank(index: int, rank: RankInterval, comparisons: Comparisons) -> RankInterval:
    """A row's ranks: from 1 plus the rows that are significantly better to all rows less those that are worse."""
    if len(comparisons.rows) < 2:
        return replace(rank, best=None, worst=None, reason=ALONE, p_against_best=None, p_against_above=None)
    significant = [pair for pair in comparisons.pairs if pair.estimate.is_significant]
    better = sum(pair.second == index for pair in significant)
    worse = sum(pair.first == index for pair in significant)
    p_values = {frozenset((pair.first, pair.second)): pair.estimate.p for pair in comparisons.pairs}
    above = max((other for other in comparisons.rows if other < index), default=None)
    best = min(comparisons.rows)
    return replace(
        rank,
        best=1 + better,
        worst=len(comparisons.rows) - worse,
        p_against_best=p_values.get(frozenset((best, index))),
        p_against_above=None if above is None else p_values.get(frozenset((above, index))),
    )
