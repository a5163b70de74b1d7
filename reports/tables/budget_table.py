"""Tables of budgets: scores and ranks after longer trainings, and which differences change."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from statistics import fmean

from reports.columns import RANK, Cell, Column, noted_cell, rank_cell, score_cell
from reports.numbers import DASH, listed, percent
from reports.tables.leaderboards import Titled
from reports.tables.table import Table, line_of
from results.runs.leaderboard import Group, Row
from results.runs.standings import AT_CHANCE

_NAMED = 6
_Key = tuple[str, object]


def budget_table(group: Group, groups: Sequence[Group], facets: Mapping[str, Mapping[str, str]]) -> Titled | None:
    """The ranks of a group's models under every budget; None unless it is the one that was trained longest."""
    series = group.budget_series, group.split
    budgets = [
        candidate for candidate in groups if candidate.rows and (candidate.budget_series, candidate.split) == series
    ]
    budgets.sort(key=lambda budget: budget.budget)
    if len(budgets) < 2 or budgets[-1] is not group:
        return None
    seeds: dict[_Key, list[tuple[int, ...]]] = {}
    for row in (row for budget in budgets for row in budget.rows):
        seeds.setdefault(_key(row), []).append(row.seeds)
    common = {key: tuple(sorted(set.intersection(*map(set, by_budget)))) for key, by_budget in seeds.items()}
    fewer = {key for key, by_budget in seeds.items() if len(set(by_budget)) > 1}
    same_seeds = len(fewer) > 1 and len(set(common.values())) == 1
    columns = [column for budget in budgets for column in _columns(budget, common, fewer, same_seeds)]
    gains = {_key(row): row.gain.difference for row in budgets[-2].rows if row.gain}

    def gain_cell(row: Row, _: Group) -> Cell:
        gain = gains.get(_key(row))
        return Cell("") if gain is None else Cell(f"{100 * gain:+.1f}", gain)

    meaning = f"what {updates(budgets[-1])} updates gave over {updates(budgets[-2])}, in points"
    columns.append(Column("Gain", gain_cell, meaning, "Gain"))
    longest = {_key(row): (row, budget) for budget in budgets for row in budget.rows}
    ordered = sorted(longest.values(), key=lambda pair: (-pair[1].budget, -(pair[0].mean(pair[1].metric) or 0.0)))
    lines = tuple(line_of(row, budget, columns, facets, badged=False) for row, budget in ordered)
    sentences = (*_kept_differences(budgets), *_changed_differences(budgets))
    note = f"{group.metric} and ranks after longer trainings: {', '.join(map(updates, budgets))} updates."
    if same_seeds and (which := next(iter(common.values()))):
        note += f" Scores are of {_seeds(which)} alone, which all have under every budget."
    return Titled("By budget of training", note, Table(tuple(columns), lines, sentences=sentences))


def _columns(
    group: Group, common: Mapping[_Key, tuple[int, ...]], fewer: Collection[_Key], same_seeds: bool
) -> tuple[Column, Column]:
    """Score and rank after a group's updates; scores are over the `common` seeds; `fewer` have others, too.

    Notes of cells say which, unless they are the `same_seeds` for every model.
    """
    rows = {_key(row): row for row in group.rows}

    def score(row: Row, _: Group) -> Cell:
        row_here = rows.get(_key(row))
        which = common[_key(row)]
        if row_here is None:
            return Cell("")
        if _key(row) not in fewer:
            return replace(score_cell(row_here.scores.get(group.metric)), deviation_text="", note=_at_chance(row_here))
        if not which or not row_here.by_seed.keys() >= set(which):
            return noted_cell(DASH, f"{row.model} has no seed under every budget, so that its scores do not compare")
        mean = fmean(row_here.by_seed[seed] for seed in which)
        note = _at_chance(row_here)
        if not same_seeds:
            seeds_note = f"{row.model} has {_seeds(which)} under every budget: scores are of these alone"
            note = f"{seeds_note}; {note}" if note else seeds_note
        return Cell(percent(mean), mean, note=note)

    def rank(row: Row, _: Group) -> Cell:
        row_here = rows.get(_key(row))
        return Cell("") if row_here is None else rank_cell(row_here.ranks.get(group.metric))

    count = updates(group)
    return (
        Column(f"After {count}", score, f"{group.metric} after {count} updates, times 100", count),
        Column(f"Rank after {count}", rank, f"ranks after {count} updates", "Rank", descending=False, key=RANK),
    )


def _kept_differences(budgets: Sequence[Group]) -> list[str]:
    """How many differences are significant under every budget, in one direction; () where no pair is under all."""
    verdicts = [_verdicts(group) for group in budgets]
    pairs = set.intersection(*map(set, verdicts))
    if not pairs:
        return []
    count = sum(all(of_budget[pair] == "better" for of_budget in verdicts) for pair in pairs)
    return [f"{count} of {len(pairs) // 2} differences are significant under every budget and never change sign."]


def _changed_differences(budgets: Sequence[Group]) -> list[str]:
    """Which significant differences change sign under a longer budget, and which are significant no more."""
    sentences: list[str] = []
    significant_after: dict[tuple[_Key, _Key], str] = {}  # the better and the worse model: after how many updates
    before = ""
    for group in budgets:
        after = updates(group)
        verdicts = _verdicts(group)
        lost = [
            f"{better[0]} over {worse[0]}"
            for (better, worse), count in significant_after.items()
            if count == before and verdicts.get((better, worse), "better") not in ("better", "worse")
        ]
        reversed_pairs: dict[str, list[str]] = {}
        for better, worse in [pair for pair, verdict in verdicts.items() if verdict == "better"]:
            if count := significant_after.pop((worse, better), ""):
                reversed_pairs.setdefault(count, []).append(f"{better[0]} over {worse[0]}")
            significant_after[better, worse] = after
        for count, names in reversed_pairs.items():
            sentences.append(f"Reversed between {count} and {after} updates: {listed(names, most=_NAMED)}.")
        if lost:
            sentences.append(f"Significant after {before} updates and not after {after}: {listed(lost, most=_NAMED)}.")
        before = after
    return sentences


def _verdicts(group: Group) -> dict[tuple[_Key, _Key], str]:
    """Of each pair of rows, either way round, what the group says of the first."""
    comparisons = group.comparisons
    if comparisons is None:
        return {}
    verdicts: dict[tuple[_Key, _Key], str] = {}
    for first, second in permutations(comparisons.rows, 2):
        if compared := comparisons.between(first, second):
            verdicts[_key(group.rows[first]), _key(group.rows[second])] = compared[1]
    return verdicts


def _key(row: Row) -> _Key:
    return row.model, row.without_schedule


def updates(group: Group) -> str:
    return group.name.partition(" after ")[2].partition(" update")[0] or f"{group.budget} times"


def _seeds(common: Sequence[int]) -> str:
    return f"{'seeds' if len(common) > 1 else 'seed'} {', '.join(map(str, common))}"


def _at_chance(row: Row) -> str:
    return AT_CHANCE if row.training_end == "at chance" else ""
