"""The leaderboards, each of rows that were made under the same conditions; those with most rows first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reports.numbers import percent
from reports.tables.budget_table import budget_table
from reports.tables.conditions import Conditions, menus
from reports.tables.contents import Contents
from reports.tables.leaderboards import Titled, absent_levels, leaderboards, more_metrics, people
from reports.tables.table import Table, differences
from reports.tables.verdict import (
    PairTable,
    best_row,
    cost_of_best,
    headline,
    no_ranks,
    pair_table,
    part_of_split_note,
    verdict,
)
from results.metrics import RANKING_METRIC
from results.runs.leaderboard import Group
from results.signature import format_fields, format_signature

Separation = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Board:
    """One leaderboard and its page.

    Attributes:
        headline, elsewhere: which row is best, and how sure that is; and a better one under other conditions.
        images_missing: which images the scores are not of; "" if they are of all.
        best, cost: the model that the headline speaks of, and what it costs, as label and amount.
        remarks: which columns are empty in every row, and which levels are still to be measured.
        further_tables: those of further scores.
        images: how many are scored.
        separations: the fields that separate it from other leaderboards of its split, with the values on both sides.
    """

    id: str
    file: str
    title: str
    conditions: Conditions
    metric: str
    table: Table
    headline: str
    elsewhere: str
    images_missing: str
    best: str
    cost: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    further_tables: tuple[Titled, ...]
    track: str = ""
    images: int | None = None
    separations: tuple[Separation, ...] = ()
    verdict: tuple[str, ...] = ()
    pairs: PairTable | None = None
    signature: str = ""

    @property
    def several_seeds(self) -> bool:
        return any(len(line.runs) > 1 for line in self.table.all_lines)


def boards(contents: Contents) -> list[Board]:
    """The leaderboards, those with most rows first."""
    joint = no_ranks(contents.groups)
    varying = menus(contents.conditions)
    all_boards = []
    for index, (group, conditions) in enumerate(zip(contents.groups, contents.conditions, strict=True), start=1):
        [table], absent = leaderboards([group], contents.runs, contents.facets)
        budgets = budget_table(group, contents.groups, contents.facets)
        further_tables = (budgets, more_metrics([group], contents.facets), people(group, contents.facets))
        best = best_row(group)
        all_boards.append(
            Board(
                id=f"group-{index}",
                file="index.html" if index == 1 else f"leaderboard-{index}.html",
                title=conditions.title(varying),
                conditions=conditions,
                metric=group.metric,
                table=table,
                headline=headline(group),
                elsewhere=higher_elsewhere(group, contents),
                images_missing=part_of_split_note(group),
                best="" if best is None else best.model,
                cost=cost_of_best(group),
                remarks=tuple(filter(None, (absent, absent_levels(group)))),
                further_tables=tuple(filter(None, further_tables)),
                track=group.track if group.rows else "",
                images=_images_scored(group, contents),
                separations=separations(group, contents.groups),
                verdict=() if joint else verdict(group),
                pairs=pair_table(group),
                signature=format_signature(group.signature, RANKING_METRIC, group.split) if group.rows else "",
            )
        )
    return all_boards


def _images_scored(group: Group, contents: Contents) -> int | None:
    if group.scored_part is not None:
        return group.scored_part[0]
    return contents.images.get((group.fingerprint, group.split))


def higher_elsewhere(group: Group, contents: Contents) -> str:
    """The best row of another leaderboard of the same images that is above every row of this one; "" without any."""
    best = best_row(group)
    highest = 0.0 if best is None else best.mean(group.metric) or 0.0
    sentence = ""
    for other in contents.groups:
        rival = best_row(other)
        if rival is None or (other.fingerprint, other.split) != (group.fingerprint, group.split):
            continue
        score = rival.mean(group.metric)
        if score is not None and score > highest:
            highest = score
            beside = contents.conditions_of(other).beside(contents.conditions_of(group))
            sentence = f"The model {rival.model} scores {percent(score)} under other conditions: {beside}."
    return sentence


def separations(group: Group, groups: Iterable[Group]) -> tuple[Separation, ...]:
    """What separates a group from the other groups of its split `in_order`, with the values on both sides."""
    rivals = [
        group_of_split
        for group_of_split in groups
        if (group_of_split.dataset, group_of_split.split) == (group.dataset, group.split)
    ]
    separations = []
    for name, own_value in _separating(group).items():
        other_values = dict.fromkeys(
            group_of_split.fields_compared_with(group).get(name, "none")
            for group_of_split in rivals
            if group_of_split is not group
        )
        separations.append((name, own_value, tuple(value for value in other_values if value != own_value)))
    return tuple(separations)


def _separating(group: Group) -> dict[str, str]:
    return in_order({name: group.fields.get(name, "none") for name in group.separating})


def separated_by(group: Group, between: str = ", ") -> str:
    """The fields that separate a group from others of its split `in_order`, with its values."""
    return format_fields(_separating(group), between)


def in_order(fields: Mapping[str, str]) -> dict[str, str]:
    """Fields that separate groups, with a group's values: titles are cut, so that those that say most come first."""
    rank = {"pretraining": 0, "reward": 2 if fields.get("reward") == "none" else 1}
    return {name: fields[name] for name in sorted(fields, key=lambda name: rank.get(name, 2))}


def row_labels(contents: Contents) -> dict[str, str]:
    """By run, what distinguishes its row from others of its model: configuration, or else the group's conditions."""
    rows = [(row, group) for group in contents.groups for row in group.rows]
    return {key: differences(row.differs) or contents.details(group) for row, group in rows for key in row.keys}
