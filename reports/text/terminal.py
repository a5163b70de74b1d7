"""The leaderboard as tables for an 80-column terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from reports.tables import tables
from reports.tables.numbers import DASH, caption_count, count, percent, printable
from reports.tables.people import TITLE, beside_people
from reports.tables.table_values import Notes, TableValue, cost_value, interval_value, marked, place_value
from reports.tables.tables import Line, Table
from reports.tables.verdict import needs_longer_training, verdict
from reports.text.layout import folded, plain_table
from reports.text.more_metrics import print_more_metrics
from results.runs import reading
from results.runs.leaderboard import RANKING_METRIC, Group, Row, leaderboard
from results.runs.run import Run
from results.runs.standings import SignificanceTest
from results.store.store import Store

_PLACE, _INTERVAL, _SEEDS, _MAC = "Place", "95 %", "±", "MAC"
_COSTS = {"Params": "parameters", "Latency": "latency_median", "Training": "train_seconds"}
_SHOWN = ("CIDEr-D", "BLEU-4", "METEOR", "ROUGE-L", "SPICE", "BLEU-1", "BLEU-2", "BLEU-3", _MAC, *_COSTS)
"""Columns after the ranking metric, as they stand."""
_FIRST = (
    _PLACE,
    _INTERVAL,
    "CIDEr-D",
    _MAC,
    _SEEDS,
    "Latency",
    "Training",
    "BLEU-4",
    "SPICE",
    "METEOR",
    "ROUGE-L",
    "Params",
)
"""After the ranking metric, what is shown first where room is short: a number that is cut is another number."""
_METRICS = ("CIDEr-D", "BLEU-4", "METEOR", "ROUGE-L")
"""Beside people."""
_APART = "reference, not ranked"
_MARK = re.compile(r" ([a-z]+)\)")
_LISTED_PLANNED = 5
"""Most runs that are planned and not begun to be listed one by one."""
_STYLES = {"failed": "bold red", "skipped": "yellow", "running": "cyan", "interrupted": "cyan", "planned": "dim"}


@dataclass(frozen=True, slots=True)
class _Column:
    """A header and a text for every row, ranked ones first."""

    header: str
    texts: list[Text]

    @property
    def shows(self) -> bool:
        """Whether any row has something to read here."""
        return any(text.plain.strip(DASH) and text.plain[0] != DASH for text in self.texts)

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
    groups = leaderboard(store, metric, place_unfinished=place_unfinished, every_metric=False)
    failures = reading.failures(store)  # before anything is printed: reading may fail
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
    seeds = _seeds_of_all(table.lines)
    names = [_name(line, seeds) for line in (*table.lines, *table.references)]
    columns = _columns(group, table)
    wide = [*names, Text(_APART)] if table.references else names
    shown, gone = _fitted(wide, columns, group.metric, console)
    rich = _rich_table(wide, shown, seeds)
    for number, name in enumerate(names):
        if number == len(table.lines):
            rich.add_row(Text(_APART, style="dim italic"))
        apart = "dim" if number >= len(table.lines) else ""
        rich.add_row(name, *(column.texts[number] for column in shown.values()), style=apart)

    title = group.name + (f", {group.track} track" if group.rows else "")
    console.print()
    console.print(Text(printable(title), style="bold"))
    for sentence in verdict(group):
        console.print(Text(printable(sentence)))
    console.print(rich)
    _print_notes(table, [*names, *(text for column in shown.values() for text in column.texts)], console)
    if gone:
        console.print(Text(f"No room here for {', '.join(gone)}; bench report shows every column.", style="dim"))
    if absent := tables.absent_levels(group):
        console.print(Text(absent, style="dim"))
    if group.separating:
        own = ", ".join(f"{name}: {group.signature.get(name, 'none')}" for name in group.separating)
        console.print(Text(f"Not comparable with this split's other tables; here {printable(own)}", style="yellow"))
    print_more_metrics(group, console)
    _print_people(group, console)


def _print_notes(table: Table, shown: Iterable[Text], console: Console) -> None:
    """Each note by its mark where that is shown, by the columns that it is about where these have no number."""
    marks = {mark for text in shown for mark in _MARK.findall(text.plain)}
    for reason, mark in table.notes.marks.items():
        if mark in marks:
            console.print(Text(f"{mark}) {printable(reason)}", style="dim"))
            continue
        lines = (*table.lines, *table.references)
        empty = [
            heading.name
            for place, heading in enumerate(table.headings)
            if heading.name in _SHOWN
            and all(line.cells[place].value is None for line in lines)
            and any(line.cells[place].mark == mark for line in lines)
        ]
        if empty:
            console.print(Text(f"{', '.join(empty)}: {printable(reason)}", style="dim"))


def _print_people(group: Group, console: Console) -> None:
    people = beside_people(group)
    if people is None:
        return
    table, seeds = people.table, _seeds_of_all(people.table.lines[1:])
    names = [_name(line, seeds) for line in table.lines]
    columns = {name: column for name in _METRICS if (column := _column(table, name, group.metric)) is not None}
    rich = _rich_table(names, columns, seeds)
    for number, name in enumerate(names):
        rich.add_row(name, *(column.texts[number] for column in columns.values()))
    console.print()
    console.print(Text(f"{TITLE}, {group.name}", style="bold"))
    console.print(rich)
    for reason, mark in table.notes.marks.items():
        console.print(Text(f"{mark}) {printable(reason)}", style="dim"))
    console.print(Text(people.note, style="dim"))


def _rich_table(names: Sequence[Text], columns: Mapping[str, _Column], seeds: int | None) -> RichTable:
    """A table still without rows; all names of one number of seeds say it once, in their heading."""
    rich = plain_table([f"{seeds} seeds each" if seeds else ""], [column.header for column in columns.values()])
    rich.columns[0].min_width = _width(names)
    return rich


def _fitted(
    names: Sequence[Text], columns: Mapping[str, _Column], metric: str, console: Console
) -> tuple[dict[str, _Column], list[str]]:
    """The columns that have room beside the names, and the headers of the others."""
    room, chosen = console.width - _width(names), set()
    for name in (metric, *_FIRST, *columns):
        if name in columns and name not in chosen and columns[name].width <= room:
            room -= columns[name].width
            chosen.add(name)
    gone = [column.header for name, column in columns.items() if name not in chosen]
    return {name: column for name, column in columns.items() if name in chosen}, gone


def _width(names: Sequence[Text]) -> int:
    return max(len(line) for name in names for line in name.plain.split("\n"))


def _columns(group: Group, table: Table) -> dict[str, _Column]:
    """The columns that have something to show, in order; intervals and deviations over seeds are of the metric."""
    rows, notes = (*group.rows, *group.references), table.notes
    scores = [row.scores.get(group.metric) for row in rows]
    places = (place_value(row.standings.get(group.metric), notes) for row in rows)
    intervals = (interval_value(spread, notes) for spread in scores)
    deviations = (percent(spread.sd) if spread and spread.sd is not None else "" for spread in scores)
    found = {
        _PLACE: _Column(_PLACE, [_number(_short(place), False) for place in places]),
        group.metric: _column(table, group.metric, group.metric),
        _INTERVAL: _Column(_INTERVAL, [_number(interval, False) for interval in intervals]),
        _SEEDS: _Column(_SEEDS, [Text(text, style="dim") for text in deviations]),
    }
    work = caption_count({name for row in rows for name in row.costs})
    for name in _SHOWN:
        if name == _MAC:
            found[name] = _Column(name, [_cost(row, work, notes) for row in rows])
        elif name in _COSTS:
            found[name] = _Column(name, [_cost(row, _COSTS[name], notes) for row in rows])
        elif name != group.metric:
            found[name] = _column(table, name, group.metric)
    return {name: column for name, column in found.items() if column and column.shows}


def _cost(row: Row, name: str, notes: Notes) -> Text:
    """A row's cost, blank for rows without a model; multiply-accumulates are counted in thousands, millions ..."""
    if row.role == "reference" and (name not in row.costs or row.costs[name].value is None):
        return Text("")
    cell = marked(cost_value(row.costs.get(name), notes), row, name, notes)
    if cell.value is not None and row.costs[name].unit == "GMAC":
        cell = replace(cell, text=count(1e9 * cell.value))
    return _number(cell, False)


def _column(table: Table, name: str, main: str) -> _Column | None:
    """A column of the table, None where it has none; that of the `main` metric is bold."""
    place = next((place for place, heading in enumerate(table.headings) if heading.name == name), None)
    if place is None:
        return None
    cells = [line.cells[place] for line in (*table.lines, *table.references)]
    return _Column(table.headings[place].short, [_number(cell, name == main) for cell in cells])


def _short(place: TableValue) -> TableValue:
    """A place, short enough for a terminal: a dash where a note says why there is none."""
    return replace(place, text=DASH) if place.mark else place


def _legend(test: SignificanceTest, floors: bool) -> str:
    without = "A row that is not significantly above every floor has no place. " if floors else ""
    return (
        f"Place: the ranks that the differences in {test.metric} between all rows allow, over seeds and images, with a "
        f"probability of {100 * (1 - test.alpha):g} % for the whole table. {without}"
        "95 %: interval of the mean over seeds and images. ±: standard deviation over seeds. MAC: multiply-accumulates "
        "of one image's caption by beam search; Latency: its time. Training: of all steps."
    )


def _seeds_of_all(lines: Sequence[Line]) -> int | None:
    """How many seeds every line has, None where they differ or have one."""
    seeds = {len(line.runs) for line in lines}
    return seeds.pop() if len(seeds) == 1 and seeds != {1} else None


def _name(line: Line, said: int | None) -> Text:
    name = Text(folded(printable(line.model)))
    if len(line.runs) > 1 and len(line.runs) != said:
        name.append(f" ×{len(line.runs)}", style="dim")
    for badge in line.badges:
        name.append(f" {badge.mark})", style="dim")
    if line.differs:
        name.append(f"\n{folded(printable(line.differs))}", style="dim")
    return name


def _number(cell: TableValue, main: bool) -> Text:
    text = Text(cell.text.replace("\u202f", " "), style="bold" if main else "")
    if cell.mark:
        text.append(f" {cell.mark})", style="dim")
    return text


def _print_failures(failures: Sequence[Run], console: Console) -> None:
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
