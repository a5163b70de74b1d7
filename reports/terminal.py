"""The leaderboard as tables for an 80-column terminal."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from reports import tables
from reports.tables import Cell, Line
from results import queries
from results.store import Store
from results.views import Failure, Group

_SHOWN = ("B-1", "B-4", "M", "R", "C", "S")
_STYLES = {"failed": "bold red", "skipped": "yellow", "running": "cyan", "planned": "dim"}


def print_leaderboard(store: Store, console: Console) -> None:
    """Print one table a comparability group, references apart, then the runs without a result and why.

    Raises:
        StoreError: the store cannot be read.
    """
    groups = queries.leaderboard(store)
    for group in groups:
        _print_group(group, console)
    if not groups:
        console.print("No run has finished yet.")
    failures = queries.failures(store)
    if failures:
        _print_failures(failures, console)


def _print_group(group: Group, console: Console) -> None:
    table = tables.leaderboard(group)
    shown = [index for index, heading in enumerate(table.headings) if heading.short in (*_SHOWN, "Params")]
    title = f"{group.dataset} {group.split}" + (f", {group.track} track" if group.rows else "")
    rich = RichTable(title=Text(title), title_justify="left", title_style="bold", box=None, padding=(0, 1), pad_edge=False)
    rich.add_column("", overflow="fold", min_width=12)
    for index in shown:
        rich.add_column(table.headings[index].short, justify="right", no_wrap=True)
    for line in table.lines:
        rich.add_row(_name(line), *(_number(line.cells[index]) for index in shown))
    if table.references:
        rich.add_section()
        rich.add_row(Text("reference, not ranked", style="dim italic"))
        for line in table.references:
            rich.add_row(_name(line), *(_number(line.cells[index]) for index in shown), style="dim")
    console.print()
    console.print(rich)
    for reason, mark in table.notes.marks.items():
        console.print(Text(f"  {mark}) {reason}", style="dim"))
    if group.separating:
        fields = ", ".join(group.separating)
        console.print(Text(f"  not comparable with this split's other tables, which differ in: {fields}", style="yellow"))


def _name(line: Line) -> Text:
    name = Text(line.model)
    if len(line.runs) > 1:
        name.append(f" ×{len(line.runs)}", style="dim")
    if line.differs:
        name.append(f"\n{line.differs}", style="dim")
    return name


def _number(cell: Cell) -> Text:
    text = Text(cell.text.replace("\u202f", " "))
    if cell.spread:
        text.append(f" ±{cell.spread}", style="dim")
    if cell.mark:
        text.append(f" {cell.mark})", style="dim")
    return text


def _print_failures(failures: list[Failure], console: Console) -> None:
    console.print()
    console.print(Text("Not finished", style="bold"))
    for failure in failures:
        line = Text()
        line.append(f"{failure.status:8}", style=_STYLES.get(failure.status, ""))
        line.append(f" {failure.model}, seed {failure.seed}")
        what = ": ".join(part for part in (failure.error_class, failure.reason) if part)
        console.print(Padding(line, (0, 0, 0, 2)))
        if what:
            console.print(Padding(Text(what, style="dim"), (0, 0, 0, 11)))
