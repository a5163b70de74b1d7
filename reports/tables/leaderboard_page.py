"""The leaderboard page: large comparability groups first, each in its table; small ones together in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reports.tables import table_values, tables
from reports.tables.columns import Columns, absent_columns, filled_columns
from reports.tables.controls import control_sentences
from reports.tables.facts import card, objective
from reports.tables.fields import ROLES
from reports.tables.more_metrics import MoreMetrics, more_metrics
from reports.tables.people import People, beside_people
from reports.tables.printed import PUBLISHED, has_published, published_cell
from reports.tables.table_values import Notes, TableValue
from reports.tables.tables import Body, Heading, Line, Table, signature_text
from reports.tables.verdict import verdict
from results.runs.controls import Controls
from results.runs.leaderboard import RANKING_METRIC, Group, Row
from results.runs.run import DatasetInfo, Run
from results.runs.standings import Standing

FEW_ROWS = 2
ONE_MODEL = "one model each"

_PLACE = Heading(
    "Place", "Place", "the ranks that the differences between rows allow; see Method", descending=False, key="place"
)
_INTERVAL = Heading("95 % interval", "95 %", "of the mean over seeds and images; see Method", sortable=False)


@dataclass(frozen=True, slots=True)
class Separation:
    """A field that separates a group from others of its split: its own value and theirs."""

    field: str
    own: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One table of the leaderboard, of one group; or of several of few rows, and then without a `signature`.

    `left_out` says which columns are empty in every row, and why.
    """

    id: str
    title: str
    track: str
    data: str
    images: int | None
    separations: tuple[Separation, ...]
    absent_levels: str
    left_out: str
    several_seeds: bool
    verdict: tuple[str, ...]
    controls: tuple[str, ...]
    table: Table
    signature: str
    people: People | None = None
    more: MoreMetrics | None = None
    groups: int = 1

    @property
    def apart(self) -> str:
        """What separates it from the others of its split, on one line."""
        return ", ".join(f"{each.field}: {each.own}" for each in self.separations)


def boards(
    groups: Sequence[Group],
    datasets: Sequence[DatasetInfo],
    runs: Mapping[str, Run],
    controls: Sequence[Controls] = (),
) -> list[Board]:
    """The groups, those with most rows first; groups of few rows beside a larger one share a table of their split.

    `controls`, where there are any, are in the order of the groups.
    """
    ordered = by_size(groups)
    beside = {id(group): control_sentences(found) for group, found in zip(groups, controls, strict=bool(controls))}
    images = {(dataset.fingerprint, split): n for dataset in datasets for split, n in dataset.evaluated.items()}
    found: list[Board] = []
    small: dict[tuple[str, str], list[Group]] = {}
    for group in ordered:
        place = (group.dataset, group.split)
        main = next(other for other in ordered if (other.dataset, other.split) == place)
        if group is not main and len(group.rows) <= FEW_ROWS:
            small.setdefault(place, []).append(group)
            continue
        columns = filled_columns([*group.rows, *group.references], group.metric)
        table = ranked_table(group, runs, columns=columns)
        found.append(
            Board(
                id=f"group-{len(found) + 1}",
                title=group_title(group, datasets),
                track=group.track if group.rows else "",
                data=group.dataset,
                images=images.get((group.fingerprint, group.split)),
                separations=separations(group, groups),
                absent_levels=tables.absent_levels(group),
                left_out=absent_columns(columns),
                several_seeds=any(len(row.seeds) > 1 for row in (*group.rows, *group.references)),
                verdict=verdict(group),
                controls=beside.get(id(group), ()),
                table=table,
                signature=signature_text(group.signature, group.split) if group.rows else "",
                people=_people(group, runs),
                more=_more([group], runs),
            )
        )
    for (dataset, split), members in small.items():
        found.append(_together(f"group-{len(found) + 1}", dataset, split, members, groups, runs))
    return found


def by_size(groups: Iterable[Group]) -> list[Group]:
    """Groups of most rows first, in the store's order among equals."""
    return sorted(groups, key=lambda group: -len(group.rows))


def separations(group: Group, groups: Iterable[Group]) -> tuple[Separation, ...]:
    """What separates a group from the other groups of its split `in_order`, with the values on both sides."""
    rivals = [other for other in groups if (other.dataset, other.split) == (group.dataset, group.split)]
    found = []
    for name, own in in_order({name: field_value(group, name) for name in group.separating}).items():
        others = dict.fromkeys(field_value(other, name) for other in rivals if other is not group)
        found.append(Separation(name, own, tuple(value for value in others if value != own)))
    return tuple(found)


def field_value(group: Group, name: str) -> str:
    """A field of a group's conditions; "none" where it has no such field."""
    known = {"data": group.fingerprint, "track": group.track} | group.signature
    return known.get(name, "none")


def apart(group: Group) -> str:
    """What separates a group from the others of its split, on one line."""
    own = in_order({name: group.signature[name] for name in group.separating if name in group.signature})
    return ", ".join(f"{name}: {value}" for name, value in own.items())


def in_order(fields: Mapping[str, str]) -> dict[str, str]:
    """Fields that separate groups, with a group's values: titles are cut, so that those that say most come first."""
    rank = {"pretraining": 0, "reward": 2 if fields.get("reward") == "none" else 1}
    return {name: fields[name] for name in sorted(fields, key=lambda name: rank.get(name, 2))}


def group_title(group: Group, datasets: Sequence[DatasetInfo]) -> str:
    """The group's name; with the data's digest where several data sets share the name."""
    twins = [dataset for dataset in datasets if dataset.name == group.dataset]
    digest = f" #{group.fingerprint.rpartition('#')[2][:8]}" if len(twins) > 1 else ""
    return f"{group.name}{digest}"


def row_labels(groups: Sequence[Group]) -> dict[str, str]:
    """By run, what distinguishes its row from others of its model: configuration, or else the group's conditions."""
    return {
        key: tables.differences(row.differs) or apart(group)
        for group in groups
        for row in group.rows
        for key in row.keys
    }


def dressed(lines: Iterable[Line], runs: Mapping[str, Run]) -> tuple[Line, ...]:
    """Lines with the level that their row marks, and the values that filters select by; references stay in them all."""
    found = []
    families = shown_families(runs)
    for line in lines:
        run = runs[line.runs[0][1]]
        facets = {} if run.role == "reference" else {"family": families[run.model], "objective": objective(run)}
        found.append(replace(line, tag=ROLES.get(line.model, ("", ""))[0], facets=facets))
    return tuple(found)


def shown_families(runs: Mapping[str, Run]) -> dict[str, str]:
    """By model the family to choose it by; families of one model are one."""
    families = {run.model: card(run).family for run in runs.values() if run.role == "model"}
    sizes = Counter(families.values())
    return {model: family if sizes[family] > 1 else ONE_MODEL for model, family in families.items()}


def ranked_table(
    group: Group,
    runs: Mapping[str, Run],
    like: Sequence[Group] = (),
    notes: Notes | None = None,
    columns: Columns | None = None,
) -> Table:
    """The leaderboard with interval, place and, on splits that papers print, published score after the first metric.

    `like`, `notes` and `columns` are as for `tables.leaderboard`; of groups that share a table each has places of its
    own.
    """
    plain = tables.leaderboard(group, like, notes, columns)
    together = like or (group,)
    placed = any(_standing(row, each) for each in together for row in each.rows)
    rows = [row for each in together for row in (*each.rows, *each.references)]
    bounded = any(table_values.interval(row.scores[group.metric]) for row in rows if group.metric in row.scores)
    beside = group.metric == RANKING_METRIC and any(has_published(each) for each in together)
    shown = {_INTERVAL: bounded, _PLACE: placed, PUBLISHED: beside}
    extra_headings = [heading for heading, is_shown in shown.items() if is_shown]
    headings = list(plain.headings)
    headings[1:1] = extra_headings

    def widened(lines: Sequence[Line], rows: Sequence[Row]) -> tuple[Line, ...]:
        wide = []
        for line, row in zip(dressed(lines, runs), rows, strict=True):
            extra = [table_values.interval_value(row.scores.get(group.metric), plain.notes)] if bounded else []
            extra += [_place(row, group, plain.notes)] if placed else []
            extra += [published_cell(row, group, runs, plain.notes)] if beside else []
            wide.append(replace(line, cells=(*line.cells[:1], *extra, *line.cells[1:])))
        return tuple(wide)

    lines, references = widened(plain.lines, group.rows), widened(plain.references, group.references)
    return Table(tuple(headings), lines, references, plain.notes)


def _people(group: Group, runs: Mapping[str, Run]) -> People | None:
    people = beside_people(group)
    return people and replace(people, table=replace(people.table, lines=dressed(people.table.lines, runs)))


def _more(groups: Sequence[Group], runs: Mapping[str, Run]) -> MoreMetrics | None:
    more = more_metrics(groups)
    if more is None:
        return None
    lines, references = dressed(more.table.lines, runs), dressed(more.table.references, runs)
    return replace(more, table=replace(more.table, lines=lines, references=references))


def _place(row: Row, group: Group, notes: Notes) -> TableValue:
    """The row's place on the group's metric, and those on the others for tables that are sorted by these."""
    shown = table_values.place_value(_standing(row, group), notes)
    others = {name: table_values.place_value(standing, Notes()) for name, standing in row.standings.items()}
    return replace(shown, by_metric=others if len(group.rows) > 1 else {})


def _standing(row: Row, group: Group) -> Standing | None:
    """The standing to show: a row alone in its group has none to be compared with, but may be below a floor."""
    standing = row.standings.get(group.metric)
    return standing if len(group.rows) > 1 or (standing and standing.not_above) else None


def _together(
    id: str, dataset: str, split: str, members: Sequence[Group], groups: Sequence[Group], runs: Mapping[str, Run]
) -> Board:
    """Small groups in one table, a body each, whose title says what separates it."""
    notes = Notes()
    columns = filled_columns([row for group in members for row in group.rows], members[0].metric)
    found = [ranked_table(replace(group, references=()), runs, members, notes, columns) for group in members]
    bodies = []
    for number, (group, table) in enumerate(zip(members, found, strict=True), start=1):
        title = "; ".join(f"{each.field}: {each.own}" for each in separations(group, groups))
        bodies.append(Body(title, table.lines, f"{id}-{number}"))
    return Board(
        id=id,
        title=f"{dataset} {split}, other conditions",
        track="",
        data=dataset,
        images=None,
        separations=(),
        absent_levels="",
        left_out=absent_columns(columns),
        several_seeds=any(len(row.seeds) > 1 for group in members for row in group.rows),
        verdict=(),
        controls=(),
        table=Table(found[0].headings, (), (), notes, tuple(bodies)),
        signature="",
        more=_more([replace(group, references=()) for group in members], runs),
        groups=len(members),
    )
