"""The leaderboard as tables for an 80-column terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from reports.content import tables
from reports.content.numbers import DASH, percent, printable
from reports.content.people import TITLE, beside_people
from reports.content.table_values import TableValue, interval_value, place_value
from reports.content.tables import Line, Table
from reports.content.verdict import needs_longer_training, verdict
from results.db.store import Store
from results.queries import fetch
from results.queries.leaderboard import RANKING_METRIC
from results.queries.views import Failure, Group, SignificanceTest

_PLACE, _INTERVAL, _SEEDS = "Place", "95 %", "±"
_METRICS = ("BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "SPICE", "CIDEr-D")  # in the order in which papers print them
# On a narrow terminal, the first first: a number that is cut is another number.
_GIVING_WAY = ("BLEU-1", "Parameters", "ROUGE-L", "METEOR", "SPICE", "BLEU-4", _SEEDS, _INTERVAL)
_APART = "reference, not ranked"
_NAME_WIDTH = len(_APART) + 1
_LISTED_PLANNED = 5
"""Most runs that are planned and not begun to be listed one by one."""
_STYLES = {"failed": "bold red", "skipped": "yellow", "running": "cyan", "interrupted": "cyan", "planned": "dim"}


@dataclass(frozen=True, slots=True)
class _Column:
    """A header and a text for every row, ranked ones first."""

    header: str
    texts: list[Text]

    @property
    def width(self) -> int:
        """With the space before it."""
        return 2 + max(len(self.header), *(text.cell_len for text in self.texts))


def print_leaderboard(
    store: Store, console: Console, metric: str = RANKING_METRIC, *, place_unfinished: bool = False
) -> None:
    """Print one table a comparability group with its verdict, references apart, then the runs without a result and why.

    Rows are sorted and placed by `metric`; with `place_unfinished` also those that were still learning.

    Raises:
        StoreError: the store cannot be read, or has no score of this metric.
    """
    groups = fetch.leaderboard(store, metric, place_unfinished=place_unfinished)
    failures = fetch.failures(store)  # before anything is printed: reading may fail
    for group in groups:
        _print_group(group, console)
    if not groups:
        console.print("No run has finished yet.")
    for test in [group.test for group in groups if group.test is not None][:1]:
        console.print()
        floors = any(group.test is not None and group.test.floor_tests for group in groups)
        console.print(Text(_legend(test, floors), style="dim"))
    if longer := needs_longer_training(groups):
        console.print()
        console.print(Text(printable(longer), style="yellow"))
    if failures:
        _print_failures(failures, console)


def _print_group(group: Group, console: Console) -> None:
    table = tables.leaderboard(group)
    names = [_name(line) for line in (*table.lines, *table.references)]
    columns = _columns(group, table)
    rich, gone = _fitted(names, columns, console)
    for number, name in enumerate(names):
        if number == len(table.lines):
            rich.add_row(Text(_APART, style="dim italic"))
        apart = "dim" if number >= len(table.lines) else ""
        rich.add_row(name, *(column.texts[number] for column in columns.values()), style=apart)

    title = f"{group.dataset} {group.split}" + (f", {group.track} track" if group.rows else "")
    console.print()
    console.print(Text(printable(title), style="bold"))
    for sentence in verdict(group):
        console.print(Text(printable(sentence)))
    console.print(rich)
    for reason, mark in table.notes.marks.items():
        noted = [
            heading.name
            for place, heading in enumerate(table.headings)
            if any(line.cells[place].mark == mark for line in (*table.lines, *table.references))
        ]
        sign = f"{mark})" if not noted or set(noted) & columns.keys() else f"{', '.join(noted)}:"
        console.print(Text(f"{sign} {printable(reason)}", style="dim"))
    if gone:
        console.print(Text(f"No room here for {', '.join(gone)}; bench report shows every column.", style="dim"))
    if absent := tables.absent_levels(group):
        console.print(Text(absent, style="dim"))
    if group.separating:
        own = ", ".join(f"{name}: {group.signature.get(name, 'none')}" for name in group.separating)
        console.print(Text(f"Not comparable with this split's other tables; here {printable(own)}", style="yellow"))
    _print_people(group, console)


def _print_people(group: Group, console: Console) -> None:
    people = beside_people(group)
    if people is None:
        return
    table, names = people.table, [_name(line) for line in people.table.lines]
    columns = {name: column for name in _METRICS if (column := _column(table, name, group.metric)) is not None}
    rich, _ = _fitted(names, columns, console)
    for number, name in enumerate(names):
        rich.add_row(name, *(column.texts[number] for column in columns.values()))
    console.print()
    console.print(Text(f"{TITLE}, {group.dataset} {group.split}", style="bold"))
    console.print(rich)
    for reason, mark in table.notes.marks.items():
        console.print(Text(f"{mark}) {printable(reason)}", style="dim"))
    console.print(Text(people.note, style="dim"))


def _fitted(names: Sequence[Text], columns: dict[str, _Column], console: Console) -> tuple[RichTable, list[str]]:
    """A table still without rows, after taking out of `columns` those without room, and the headers of these."""
    width = min(_NAME_WIDTH, max(len(line) for name in names for line in name.plain.split("\n")))
    gone = []
    for giving_way in _GIVING_WAY:
        if giving_way in columns and width + sum(column.width for column in columns.values()) > console.width:
            gone.append(columns.pop(giving_way).header)
    rich = RichTable(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    rich.add_column("", overflow="fold", min_width=width)
    for column in columns.values():
        rich.add_column(column.header, justify="right", no_wrap=True)
    return rich, gone


def _columns(group: Group, table: Table) -> dict[str, _Column]:
    """The columns that have something to show, in order; intervals and deviations over seeds are of CIDEr-D."""
    rows = (*group.rows, *group.references)
    main = [row.scores.get(group.metric) for row in rows]
    places = (place_value(row.standings.get(group.metric), table.notes) for row in rows)
    found = {_PLACE: _Column(_PLACE, [_number(_short(place), False) for place in places])}
    metrics = [name for name in _METRICS if name != group.metric]
    for name in (*metrics, group.metric, "Parameters"):
        if name == "Parameters":
            intervals = (interval_value(spread, table.notes) for spread in main)
            found[_INTERVAL] = _Column(_INTERVAL, [_number(interval, False) for interval in intervals])
            deviations = [percent(spread.sd) if spread and spread.sd is not None else "" for spread in main]
            found[_SEEDS] = _Column(_SEEDS, [Text(text, style="dim") for text in deviations])
        if (column := _column(table, name, group.metric)) is not None:
            found[name] = column
    return {name: column for name, column in found.items() if any(text.plain for text in column.texts)}


def _column(table: Table, name: str, main: str) -> _Column | None:
    """A column of the table, None where it has no number; that of the `main` metric is bold."""
    lines = (*table.lines, *table.references)
    place = next((place for place, heading in enumerate(table.headings) if heading.name == name), None)
    if place is None or all(line.cells[place].value is None for line in lines):
        return None
    cells = [line.cells[place] for line in lines]
    return _Column(table.headings[place].short, [_number(cell, name == main) for cell in cells])


def _short(place: TableValue) -> TableValue:
    """A place, short enough for a terminal: a dash where a note says why there is none."""
    return replace(place, text=DASH) if place.mark else place


def _legend(test: SignificanceTest, floors: bool) -> str:
    without = "A row that is not significantly above every floor has no place. " if floors else ""
    return (
        f"Place: the ranks that the differences in {test.metric} between all rows allow, over seeds and images, with a "
        f"probability of {1 - test.alpha:.0%} for the whole table. {without}"
        "95 %: interval of the mean over seeds and images. ±: standard deviation over seeds."
    )


def _name(line: Line) -> Text:
    name = Text(printable(line.model))
    if len(line.runs) > 1:
        name.append(f" ×{len(line.runs)}", style="dim")
    for badge in line.badges:
        name.append(f" {badge.mark})", style="dim")
    if line.differs:
        name.append(f"\n{printable(line.differs)}", style="dim")
    return name


def _number(cell: TableValue, main: bool) -> Text:
    text = Text(cell.text.replace("\u202f", " "), style="bold" if main else "")
    if cell.mark:
        text.append(f" {cell.mark})", style="dim")
    return text


def _print_failures(failures: Sequence[Failure], console: Console) -> None:
    console.print()
    console.print(Text("Not finished", style="bold"))
    waiting = [failure for failure in failures if failure.status == "planned"]
    listed = [failure for failure in failures if failure.status != "planned" or len(waiting) <= _LISTED_PLANNED]
    for failure in listed:
        line = Text(f"{failure.state:8}", style=_STYLES.get(failure.state, ""))
        line.append(f" {printable(failure.model)}, seed {failure.seed}", style="not bold default")
        console.print(line)
        what = ": ".join(printable(part) for part in (failure.error_class, failure.reason) if part)
        if what:
            console.print(Padding(Text(what, style="dim"), (0, 0, 0, 9)))
    if len(waiting) > _LISTED_PLANNED:
        console.print(Text(f"planned  {len(waiting)} more runs", style=_STYLES.get("planned", "")))
