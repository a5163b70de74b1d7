"""The ladder of budgets: scores and places after ever longer trainings, and which models overtake which."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from statistics import fmean

from reports.tables.columns import PLACE, Titled, score_cell, standing_cell
from reports.tables.numbers import DASH, listed, percent
from reports.tables.table import Cell, Column, Table, line_of, noted
from results.runs.leaderboard import Group, Row
from results.runs.standings import AT_CHANCE

_NAMED = 6


def ladder_table(group: Group, groups: Sequence[Group], facets: Mapping[str, Mapping[str, str]]) -> Titled | None:
    """The places of a group's models under every budget; None unless it is the one that was trained longest."""
    rungs = [each for each in groups if each.rows and each.ladder == group.ladder and each.split == group.split]
    rungs.sort(key=lambda rung: rung.budget)
    if len(rungs) < 2 or rungs[-1] is not group:
        return None
    seeds: dict[str, list[tuple[int, ...]]] = {}
    for row in (row for rung in rungs for row in rung.rows):
        seeds.setdefault(row.model, []).append(row.seeds)
    common = {model: tuple(sorted(set.intersection(*map(set, of)))) for model, of in seeds.items()}
    fewer = {model for model, of in seeds.items() if len(set(of)) > 1}
    alike = len(fewer) > 1 and len(set(common.values())) == 1
    columns = [column for rung in rungs for column in _columns(rung, common, fewer, alike)]
    gains = {row.model: row.gain.difference for row in rungs[-2].rows if row.gain}

    def gain(row: Row, _: Group) -> Cell:
        return Cell(f"{100 * gains[row.model]:+.1f}", gains[row.model]) if row.model in gains else Cell("")

    meaning = f"what {updates(rungs[-1])} updates gave over {updates(rungs[-2])}, in points"
    columns.append(Column("Gain", gain, meaning, "Gain"))
    newest: dict[str, tuple[Row, Group]] = {row.model: (row, rung) for rung in rungs for row in rung.rows}
    ordered = sorted(newest.values(), key=lambda found: (-found[1].budget, -(found[0].mean(found[1].metric) or 0.0)))
    lines = tuple(line_of(row, rung, columns, facets, badged=False) for row, rung in ordered)
    changes = [sentence for one, other in pairwise(rungs) for sentence in _overtaking(one, other)]
    sentences = (*_held(rungs), *changes)
    note = f"{group.metric} and places after ever longer trainings: {', '.join(map(updates, rungs))} updates."
    if alike and (which := next(iter(common.values()))):
        note += f" Scores are of {_seeds(which)} alone, which all have under every budget."
    return Titled("By budget of training", note, Table(tuple(columns), lines, sentences=sentences))


def updates(group: Group) -> str:
    return group.name.partition(" after ")[2].partition(" update")[0] or f"{group.budget} times"


def _seeds(common: Sequence[int]) -> str:
    return f"{'seeds' if len(common) > 1 else 'seed'} {', '.join(map(str, common))}"


def _columns(
    rung: Group, common: Mapping[str, tuple[int, ...]], fewer: Collection[str], alike: bool
) -> tuple[Column, Column]:
    """Score and place after a rung's updates; scores are over the `common` seeds; `fewer` have others, too.

    Cells tell which, unless it is `alike` for every model.
    """
    by_model = {row.model: row for row in rung.rows}

    def score(row: Row, _: Group) -> Cell:
        found, which = by_model.get(row.model), common[row.model]
        if found is None:
            return Cell("")
        if row.model not in fewer:
            return replace(score_cell(found.scores.get(rung.metric)), spread="", note=_at_chance(found))
        if not which or not found.by_seed.keys() >= set(which):
            return noted(DASH, f"{row.model} has no seed under every budget, so that its scores do not compare")
        mean = fmean(found.by_seed[seed] for seed in which)
        of = "" if alike else f"{row.model} has {_seeds(which)} under every budget: scores are of these alone"
        return Cell(percent(mean), mean, note="; ".join(filter(None, (of, _at_chance(found)))))

    def place(row: Row, _: Group) -> Cell:
        found = by_model.get(row.model)
        return Cell("") if found is None else standing_cell(found.standings.get(rung.metric))

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


def _overtaking(one: Group, other: Group) -> list[str]:
    """Which models are surely worse in the first group and surely better in the second, and which lose their lead."""
    turned, lost, later = [], [], _verdicts(other)
    for (first, second), verdict in _verdicts(one).items():
        if verdict == "better" and later.get((first, second)) == "worse":
            turned.append(f"{second} is better than {first}")
        elif verdict == "better" and later.get((first, second), "better") != "better":
            lost.append(f"{first} over {second}")
    before, after, said = updates(one), updates(other), []
    if turned:
        said.append(f"After {after} updates {listed(turned, most=_NAMED)}, the other way round than after {before}.")
    if lost:
        said.append(f"What {before} updates told is not told after {after}: {listed(lost, most=_NAMED)}.")
    return said


def _verdicts(rung: Group) -> dict[tuple[str, str], str]:
    """Of each pair of models, either way round, what the rung says of the first."""
    compared = rung.comparisons
    pairs = permutations(compared.rows, 2) if compared else ()
    return {
        (rung.rows[first].model, rung.rows[second].model): found[1]
        for first, second in pairs
        if compared and (found := compared.between(first, second))
    }
