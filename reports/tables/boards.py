"""The leaderboard page: large comparability groups first, each in its table; small ones together in one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reports.tables.budget_table import budget_table
from reports.tables.contents import Contents
from reports.tables.leaderboards import Titled, absent_levels, leaderboards, more_metrics, people
from reports.tables.table import Table, differences
from reports.tables.verdict import Pairs, no_places, pair_table, verdict
from results.metrics import RANKING_METRIC
from results.runs.leaderboard import Group
from results.signature import format_fields, format_signature

FEW_ROWS = 2


Separation = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Board:
    """One table of the leaderboard, of one group; or of several of few rows, and then without a `signature`.

    `remarks` say which columns are empty in every row, and which levels are still to be measured. `further_tables` are
    those of further scores.
    """

    id: str
    title: str
    data: str
    metric: str
    table: Table
    remarks: tuple[str, ...]
    further_tables: tuple[Titled, ...]
    groups: int = 1
    track: str = ""
    images: int | None = None
    separations: tuple[Separation, ...] = ()
    verdict: tuple[str, ...] = ()
    pairs: Pairs | None = None
    signature: str = ""

    @property
    def separating_fields(self) -> str:
        return format_fields({field: value for field, value, _ in self.separations})

    @property
    def several_seeds(self) -> bool:
        return any(len(line.runs) > 1 for line in self.table.all_lines)


def boards(contents: Contents) -> list[Board]:
    """The groups, those with most rows first; groups of few rows beside a larger one share a table of their split."""
    found: list[Board] = []
    small: dict[tuple[str, str], list[Group]] = {}
    mains: dict[tuple[str, str], Group] = {}
    joint = no_places(contents.groups)
    for group in contents.groups:
        place = (group.dataset, group.split)
        if mains.setdefault(place, group) is not group and 0 < len(group.rows) <= FEW_ROWS:
            small.setdefault(place, []).append(group)
            continue
        [table], absent = leaderboards([group], contents.runs, contents.facets)
        budgets = budget_table(group, contents.groups, contents.facets)
        further_tables = (budgets, more_metrics([group], contents.facets), people(group, contents.facets))
        found.append(
            Board(
                *(f"group-{len(found) + 1}", contents.title(group), group.dataset, group.metric, table),
                remarks=tuple(filter(None, (absent, absent_levels(group)))),
                further_tables=tuple(filter(None, further_tables)),
                track=group.track if group.rows else "",
                images=contents.images.get((group.fingerprint, group.split)),
                separations=separations(group, contents.groups),
                verdict=() if joint else verdict(group),
                pairs=pair_table(group),
                signature=format_signature(group.signature, RANKING_METRIC, group.split) if group.rows else "",
            )
        )
    for (dataset, split), members in small.items():
        found.append(_together(f"group-{len(found) + 1}", f"{dataset} {split}, other conditions", members, contents))
    return found


def separations(group: Group, groups: Iterable[Group]) -> tuple[Separation, ...]:
    """What separates a group from the other groups of its split `in_order`, with the values on both sides."""
    rivals = [other for other in groups if (other.dataset, other.split) == (group.dataset, group.split)]
    found = []
    for name, own in _separating(group).items():
        others = dict.fromkeys(other.fields_beside(group).get(name, "none") for other in rivals if other is not group)
        found.append((name, own, tuple(value for value in others if value != own)))
    return tuple(found)


def _separating(group: Group) -> dict[str, str]:
    return in_order({name: group.fields.get(name, "none") for name in group.separating})


def separated_by(group: Group, between: str = ", ") -> str:
    """The fields that separate a group from others of its split `in_order`, with its values."""
    return format_fields(_separating(group), between)


def separating_fields(group: Group) -> str:
    fields = {name: group.signature[name] for name in group.separating if name in group.signature}
    return format_fields(in_order(fields))


def in_order(fields: Mapping[str, str]) -> dict[str, str]:
    """Fields that separate groups, with a group's values: titles are cut, so that those that say most come first."""
    rank = {"pretraining": 0, "reward": 2 if fields.get("reward") == "none" else 1}
    return {name: fields[name] for name in sorted(fields, key=lambda name: rank.get(name, 2))}


def row_labels(groups: Sequence[Group]) -> dict[str, str]:
    """By run, what distinguishes its row from others of its model: configuration, or else the group's conditions."""
    rows = [(row, group) for group in groups for row in group.rows]
    return {key: differences(row.differs) or separating_fields(group) for row, group in rows for key in row.keys}


def _together(id: str, title: str, members: Sequence[Group], contents: Contents) -> Board:
    """Small groups in one table, a body each, whose title says what separates it; references are left out."""
    alone = [replace(group, references=()) for group in members]
    tables, absent = leaderboards(alone, contents.runs, contents.facets)
    bodies = ((separated_by(group, "; "), table.lines) for group, table in zip(members, tables, strict=True))
    table = Table(tables[0].columns, (), (), tuple(bodies))
    remarks, more = (absent,) if absent else (), more_metrics(alone, contents.facets)
    place = id, title, members[0].dataset, members[0].metric
    return Board(*place, table, remarks, (more,) if more else (), groups=len(members))
