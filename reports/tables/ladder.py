"""The ladder of budgets: scores and places after ever longer trainings, and which models overtake which."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from statistics import fmean

from reports.tables.columns import PLACE, Titled, rank_cell, score_cell
from reports.tables.numbers import DASH, listed, percent
from reports.tables.table import Cell, Column, Table, line_of, noted
from results.runs.leaderboard import Group, Row
from results.runs.standings import AT_CHANCE

_NAMED = 6
_Key = tuple[str, object]


def ladder_table(group: Group, groups: Sequence[Group], facets: Mapping[str, Mapping[str, str]]) -> Titled | None:
    """The places of a group's models under every budget; None unless it is the one that was trained longest."""
    rungs = [each for each in groups if each.rows and each.ladder == group.ladder and each.split == group.split]
    rungs.sort(key=lambda rung: rung.budget)
    if len(rungs) < 2 or rungs[-1] is not group:
        return None
    seeds: dict[_Key, list[tuple[int, ...]]] = {}
    for row in (row for rung in rungs for row in rung.rows):
        seeds.setdefault(_key(row), []).append(row.seeds)
    common = {key: tuple(sorted(set.intersection(*map(set, of)))) for key, of in seeds.items()}
    fewer = {key for key, of in seeds.items() if len(set(of)) > 1}
    alike = len(fewer) > 1 and len(set(common.values())) == 1
    columns = [column for rung in rungs for column in _columns(rung, common, fewer, alike)]
    gains = {_key(row): row.gain.difference for row in rungs[-2].rows if row.gain}

    def gain(row: Row, _: Group) -> Cell:
        found = gains.get(_key(row))
        return Cell("") if found is None else Cell(f"{100 * found:+.1f}", found)

    meaning = f"what {updates(rungs[-1])} updates gave over {updates(rungs[-2])}, in points"
    columns.append(Column("Gain", gain, meaning, "Gain"))
    longest = {_key(row): (row, rung) for rung in rungs for row in rung.rows}
    ordered = sorted(longest.values(), key=lambda found: (-found[1].budget, -(found[0].mean(found[1].metric) or 0.0)))
    lines = tuple(line_of(row, rung, columns, facets, badged=False) for row, rung in ordered)
    sentences = (*_held(rungs), *_changes(rungs))
    note = f"{group.metric} and places after ever longer trainings: {', '.join(map(updates, rungs))} updates."
    if alike and (which := next(iter(common.values()))):
        note += f" Scores are of {_seeds(which)} alone, which all have under every budget."
    return Titled("By budget of training", note, Table(tuple(columns), lines, sentences=sentences))


def _key(row: Row) -> _Key:
    return row.model, row.ladder


def updates(group: Group) -> str:
    return group.name.partition(" after ")[2].partition(" update")[0] or f"{group.budget} times"


def _seeds(common: Sequence[int]) -> str:
    return f"{'seeds' if len(common) > 1 else 'seed'} {', '.join(map(str, common))}"


def _columns(
    rung: Group, common: Mapping[_Key, tuple[int, ...]], fewer: Collection[_Key], alike: bool
) -> tuple[Column, Column]:
    """Score and place after a rung's updates; scores are over the `common` seeds; `fewer` have others, too.

    Cells tell which, unless it is `alike` for every model.
    """
    rows = {_key(row): row for row in rung.rows}

    def score(row: Row, _: Group) -> Cell:
        found, which = rows.get(_key(row)), common[_key(row)]
        if found is None:
            return Cell("")
        if _key(row) not in fewer:
            return replace(score_cell(found.scores.get(rung.metric)), spread="", note=_at_chance(found))
        if not which or not found.by_seed.keys() >= set(which):
            return noted(DASH, f"{row.model} has no seed under every budget, so that its scores do not compare")
        mean = fmean(found.by_seed[seed] for seed in which)
        of = "" if alike else f"{row.model} has {_seeds(which)} under every budget: scores are of these alone"
        return Cell(percent(mean), mean, note="; ".join(filter(None, (of, _at_chance(found)))))

    def place(row: Row, _: Group) -> Cell:
        found = rows.get(_key(row))
        return Cell("") if found is None else rank_cell(found.ranks.get(rung.metric))

    many = updates(rung)
    return (
        Column(f"After {many}", score, f"{rung.metric} after {many} updates, times 100", many),
        Column(f"Place after {many}", place, f"places after {many} updates", "Place", descending=False, key=PLACE),
    )


def _at_chance(row: Row) -> str:
    return AT_CHANCE if row.training_end == "at chance" else ""


def _held(rungs: Sequence[Group]) -> list[str]:
    """How many pairs every budget tells, and in one direction; nothing where no pair is compared under all."""
    verdicts = [_verdicts(rung) for rung in rungs]
    pairs = set.intersection(*map(set, verdicts))
    held = sum(all(each[pair] == "better" for each in verdicts) for pair in pairs)
    return [f"Every budget tells {held} of {len(pairs) // 2} pairs, and in the same direction."] if pairs else []


def _changes(rungs: Sequence[Group]) -> list[str]:
    """What each budget turns of what shorter ones told, and what it does not tell of what the one before did."""
    said: list[str] = []
    told: dict[tuple[_Key, _Key], str] = {}
    before = ""
    for rung in rungs:
        after, found, turned = updates(rung), _verdicts(rung), dict[str, list[str]]()
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


def _verdicts(rung: Group) -> dict[tuple[_Key, _Key], str]:
    """Of each pair of rows, either way round, what the rung says of the first."""
    compared = rung.comparisons
    pairs = permutations(compared.rows, 2) if compared else ()
    return {
        (_key(rung.rows[first]), _key(rung.rows[second])): found[1]
        for first, second in pairs
        if compared and (found := compared.between(first, second))
    }
