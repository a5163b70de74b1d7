"""The look that terminal tables share: no frame, and names that break after one of their own signs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.table import Table

_NAME_WIDTH = 40
_PART = re.compile(r"[^/_ ,]+[/_ ,]*|[/_ ,]+")


def plain_table(texts: Iterable[str], numbers: Iterable[str], last: Iterable[str] = ()) -> Table:
    """A table still without rows: columns of text, of numbers, and of text again."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for place, heading in enumerate(texts):
        table.add_column(heading, overflow="fold", min_width=0 if place else 14)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in last:
        table.add_column(heading, no_wrap=True)
    return table


def folded(name: str, width: int = _NAME_WIDTH) -> str:
    """A name too long for its column on several lines, none of which ends within a word."""
    lines = [""]
    for part in _PART.findall(name):
        if lines[-1] and len(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)
