"""Tables of budgets: scores and places after ever longer trainings, and which models overtake which."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from statistics import fmean

from reports.columns import PLACE, Cell, Column, noted, rank_cell, score_cell
from reports.numbers import DASH, listed, percent
from reports.tables.leaderboards import Titled
from reports.tables.table import Table, line_of
from results.runs.leaderboard import Group, Row
from results.runs.standings import AT_CHANCE

_NAMED = 6
_Key = tuple[str, object]


def budget_table(group: Group, groups: Sequence[Group], facets: Mapping[str, Mapping[str, str]]) -> Titled | None:
    """The places of a group's models under every budget; None unless it is the one that was trained longest."""
    series = group.budget_series, group.split
    budgets = [other for other in groups if other.rows and (other.budget_series, other.split) == series]
    budgets.sort(key=lambda other: other.budget)
    if len(budgets) < 2 or budgets[-1] is not group:
        return None
    seeds: dict[_Key, list[tuple[int, ...]]] = {}
    for row in (row for of_budget in budgets for row in of_budget.rows):
        seeds.setdefault(_key(row), []).append(row.seeds)
    common = {key: tuple(sorted(set.intersection(*map(set, of)))) for key, of in seeds.items()}
    fewer = {key for key, of in seeds.items() if len(set(of)) > 1}
    same_seeds = len(fewer) > 1 and len(set(common.values())) == 1
    columns = [column for of_budget in budgets for column in _columns(of_budget, common, fewer, same_seeds)]
    gains = {_key(row): row.gain.difference for row in budgets[-2].rows if row.gain}

    def gain(row: Row, _: Group) -> Cell:
        found = gains.get(_key(row))
        return Cell("") if found is None else Cell(f"{100 * found:+.1f}", found)

    meaning = f"what {updates(budgets[-1])} updates gave over {updates(budgets[-2])}, in points"
    columns.append(Column("Gain", gain, meaning, "Gain"))
    longest = {_key(row): (row, of_budget) for of_budget in budgets for row in of_budget.rows}
    ordered = sorted(longest.values(), key=lambda pair: (-pair[1].budget, -(pair[0].mean(pair[1].metric) or 0.0)))
    lines = tuple(line_of(row, of_budget, columns, facets, badged=False) for row, of_budget in ordered)
    sentences = (*_held(budgets), *_changes(budgets))
    note = f"{group.metric} and places after ever longer trainings: {', '.join(map(updates, budgets))} updates."
    if same_seeds and (which := next(iter(common.values()))):
        note += f" Scores are of {_seeds(which)} alone, which all have under every budget."
    return Titled("By budget of training", note, Table(tuple(columns), lines, sentences=sentences))


def _key(row: Row) -> _Key:
    return row.model, row.budget_series


def updates(group: Group) -> str:
    return group.name.partition(" after ")[2].partition(" update")[0] or f"{group.budget} times"


def _seeds(common: Sequence[int]) -> str:
    return f"{'seeds' if len(common) > 1 else 'seed'} {', '.join(map(str, common))}"


def _columns(
    group: Group, common: Mapping[_Key, tuple[int, ...]], fewer: Collection[_Key], same_seeds: bool
) -> tuple[Column, Column]:
    """Score and place after a group's updates; scores are over the `common` seeds; `fewer` have others, too.

    Cells tell which, unless they are the `same_seeds` for every model.
    """
    rows = {_key(row): row for row in group.rows}

    def score(row: Row, _: Group) -> Cell:
        found, which = rows.get(_key(row)), common[_key(row)]
        if found is None:
            return Cell("")
        if _key(row) not in fewer:
            return replace(score_cell(found.scores.get(group.metric)), spread="", note=_at_chance(found))
        if not which or not found.by_seed.keys() >= set(which):
            return noted(DASH, f"{row.model} has no seed under every budget, so that its scores do not compare")
        mean = fmean(found.by_seed[seed] for seed in which)
        of = "" if same_seeds else f"{row.model} has {_seeds(which)} under every budget: scores are of these alone"
        return Cell(percent(mean), mean, note="; ".join(filter(None, (of, _at_chance(found)))))

    def place(row: Row, _: Group) -> Cell:
        found = rows.get(_key(row))
        return Cell("") if found is None else rank_cell(found.ranks.get(group.metric))

    many = updates(group)
    return (
        Column(f"After {many}", score, f"{group.metric} after {many} updates, times 100", many),
        Column(f"Rank after {many}", place, f"ranks after {many} updates", "Rank", descending=False, key=PLACE),
    )


def _at_chance(row: Row) -> str:
    return AT_CHANCE if row.training_end == "at chance" else ""


def _held(budgets: Sequence[Group]) -> list[str]:
    """How many pairs every budget tells, and in one direction; nothing where no pair is compared under all."""
    verdicts = [_verdicts(group) for group in budgets]
    pairs = set.intersection(*map(set, verdicts))
    held = sum(all(each[pair] == "better" for each in verdicts) for pair in pairs)
    return [f"Every budget tells {held} of {len(pairs) // 2} pairs, and in the same direction."] if pairs else []


def _changes(budgets: Sequence[Group]) -> list[str]:
    """What each budget turns of what shorter ones told, and what it does not tell of what the one before did."""
    said: list[str] = []
    told: dict[tuple[_Key, _Key], str] = {}
    before = ""
    for group in budgets:
        after, found, turned = updates(group), _verdicts(group), dict[str, list[str]]()
        lost = [
            f"{one[0]} over {other[0]}"
            for (one, other), many in told.items()
            if many == before and found.get((one, other), "better") not in ("better", "worse")
        ]
        for one, other in [pair for pair, verdict in found.items() if verdict == "better"]:
            if many := told.pop((other, one), ""):
                turned.setdefault(many, []).append(f"{one[0]} over {other[0]}")
            told[one, other] = after
        for many, of in turned.items():
            said.append(f"After {after} updates the other way round than after {many}: {listed(of, most=_NAMED)}.")
        if lost:
            said.append(f"What {before} updates told is not told after {after}: {listed(lost, most=_NAMED)}.")
        before = after
    return said


def _verdicts(group: Group) -> dict[tuple[_Key, _Key], str]:
    """Of each pair of rows, either way round, what the group says of the first."""
    compared = group.comparisons
    pairs = permutations(compared.rows, 2) if compared else ()
    return {
        (_key(group.rows[first]), _key(group.rows[second])): found[1]
        for first, second in pairs
        if compared and (found := compared.between(first, second))
    }
