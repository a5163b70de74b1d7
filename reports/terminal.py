"""The leaderboard as tables for an 80-column terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from reports import tables
from reports.numbers import printable
from reports.tables import Cell, Line
from results import queries
from results.store import Store
from results.views import Failure, Group

# In the order in which papers print them; standard deviations are shown for CIDEr-D alone, to fit 80 columns.
_SHOWN = ("BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "SPICE", "CIDEr-D", "Parameters")
_MAIN = "CIDEr-D"
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
    columns = {heading.name: index for index, heading in enumerate(table.headings)}
    shown = [name for name in _SHOWN if name in columns]
    rich = RichTable(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1), pad_edge=False, header_style="dim")
    rich.add_column("", overflow="fold", min_width=16)
    for name in shown:
        rich.add_column(table.headings[columns[name]].short, justify="right", no_wrap=True)

    def add(lines: Sequence[Line], style: str) -> None:
        for line in lines:
            numbers = (_number(line.cells[columns[name]], main=name == _MAIN) for name in shown)
            rich.add_row(_name(line), *numbers, style=style)

    add(table.lines, "")
    if table.references:
        rich.add_row(Text("reference, not ranked", style="dim italic"))
        add(table.references, "dim")

    title = f"{group.dataset} {group.split}" + (f", {group.track} track" if group.rows else "")
    console.print()
    console.print(Text(printable(title), style="bold"))
    console.print(rich)
    for reason, mark in table.notes.marks.items():
        console.print(Text(f"{mark}) {printable(reason)}", style="dim"))
    if absent := tables.absent_levels(group):
        console.print(Text(absent, style="dim"))
    if group.separating:
        own = ", ".join(f"{name}: {group.signature.get(name, 'none')}" for name in group.separating)
        console.print(Text(f"Not comparable with this split's other tables; here {printable(own)}", style="yellow"))


def _name(line: Line) -> Text:
    name = Text(printable(line.model))
    if len(line.runs) > 1:
        name.append(f" ×{len(line.runs)}", style="dim")
    if line.differs:
        name.append(f"\n{printable(line.differs)}", style="dim")
    return name


def _number(cell: Cell, main: bool) -> Text:
    text = Text(cell.text.replace("\u202f", " "), style="bold" if main else "")
    if cell.spread and main:
        text.append(f" ±{cell.spread}", style="not bold dim")
    if cell.mark:
        text.append(f" {cell.mark})", style="dim")
    return text


def _print_failures(failures: Sequence[Failure], console: Console) -> None:
    console.print()
    console.print(Text("Not finished", style="bold"))
    for failure in failures:
        line = Text(f"{failure.status:8}", style=_STYLES.get(failure.status, ""))
        line.append(f" {printable(failure.model)}, seed {failure.seed}", style="not bold default")
        console.print(line)
        what = ": ".join(printable(part) for part in (failure.error_class, failure.reason) if part)
        if what:
            console.print(Padding(Text(what, style="dim"), (0, 0, 0, 9)))
