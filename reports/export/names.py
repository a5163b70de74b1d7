"""Titles, names and cells as Markdown and LaTeX share them, before either escapes them."""

from __future__ import annotations

from collections.abc import Sequence

from reports.tables.leaderboard_page import separations
from reports.tables.numbers import printable
from reports.tables.table_values import TableValue
from reports.tables.tables import Line
from results.runs.leaderboard import Group
from results.runs.standings import STILL_LEARNING


def one_line(text: str) -> str:
    """Whatever ends a line ends a table's row too, or a comment."""
    return " ".join(printable(text).splitlines())


def cell_text(cell: TableValue) -> str:
    """A number with its deviation over seeds."""
    return cell.text + (f" ±{cell.spread}" if cell.spread else "")


def described(line: Line) -> str:
    """What sets a row apart in words; that its model was still learning is said by its place."""
    labels = (badge.label for badge in line.badges if badge.label != STILL_LEARNING.partition(":")[0])
    return ", ".join(filter(None, (line.tag, *labels, line.differs)))


def title(group: Group) -> str:
    """The group's name and track."""
    return group.name + (f", {group.track} track" if group.rows else "")


def separated_by(group: Group, groups: Sequence[Group]) -> str:
    """What keeps the group's table apart from others of its split."""
    return ", ".join(f"{each.field}: {each.own}" for each in separations(group, groups))
