"""The further metrics of a group as terminal tables: as many columns at once as there is room for."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from reports.tables.more_metrics import TITLE, more_metrics
from reports.tables.numbers import printable
from reports.tables.tables import Line
from reports.text.layout import folded, plain_table
from results.runs.leaderboard import Group


def print_more_metrics(group: Group, console: Console) -> None:
    """The values of every row, what each metric is, and why some are missing; nothing where none was measured."""
    found = more_metrics([group])
    if found is None:
        return
    table = found.table
    lines = (*table.lines, *table.references)
    names = [_name(line) for line in lines]
    texts = [
        [cell.text.replace("\u202f", " ") + (f" {cell.mark})" if cell.mark else "") for cell in line.cells]
        for line in lines
    ]
    console.print()
    console.print(Text(f"{TITLE}, {group.name}", style="bold"))
    left = list(range(len(table.headings)))
    while left:
        room = console.width - max(14, *(len(part) for name in names for part in name.split("\n")))
        chosen: list[int] = []
        for place in left:
            room -= 2 + max(len(table.headings[place].name), *(len(row[place]) for row in texts))
            if room < 0 and chosen:
                break
            chosen.append(place)
        left = left[len(chosen) :]
        rich = plain_table([""], [table.headings[place].name for place in chosen])
        for name, row in zip(names, texts, strict=True):
            rich.add_row(Text(name), *(Text(row[place]) for place in chosen))
        console.print(rich)
    for reason, mark in table.notes.marks.items():
        console.print(Text(f"{mark}) {printable(reason)}", style="dim"))
    for sentence in (*found.meanings, *found.absent):
        console.print(Text(printable(sentence), style="dim"))


def _name(line: Line) -> str:
    """As the leaderboard has it: the seeds, the marks of its notes, and what sets it apart from its namesakes."""
    marks = "".join(f" {badge.mark})" for badge in line.badges)
    name = folded(printable(line.model)) + (f" ×{len(line.runs)}" if len(line.runs) > 1 else "") + marks
    return f"{name}\n{folded(printable(line.differs))}" if line.differs else name
