"""How a leaderboard's columns are laid out: what fits a screen first, and the whiskers of the score that ranks it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reports.tables.leaderboard_page import Board
from reports.tables.numbers import caption_count, percent
from reports.tables.tables import Heading, Table

WIDTH = 140.0
"""Of a whisker bar, in pixels."""
_FIRST = ("CIDEr-D", "BLEU-4", "METEOR", "ROUGE-L", "SPICE")
_NAMES = {"gmac_beam_mean_length": "Computation", "gmac_beam": "Computation"}
_LEVELS = ("majority", "blind", "retrieval", "human")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a board: the place of its cells in a line, its heading, and whether it waits for "all metrics"."""

    at: int
    heading: Heading
    more: bool


@dataclass(frozen=True, slots=True)
class Scale:
    """The common scale of a table's scores, from 0 to `most`.

    `ticks` is the path of a tick for each floor and level that the rows are seen against, and `meaning` names them.
    """

    most: float
    ticks: str
    meaning: str

    def at(self, value: float) -> float:
        """The pixel of a score."""
        return round(1 + (WIDTH - 2) * max(0.0, value) / self.most, 1)


@dataclass(frozen=True, slots=True)
class BoardLayout:
    """A board's columns as shown, how many ranks its places have, and the scale of the score that ranks it."""

    columns: tuple[Column, ...]
    ranks: int
    scale: Scale | None


def board_layout(board: Board) -> BoardLayout:
    """Places, scores and costs first; all else is behind "all metrics"."""
    table = board.table
    keys = [heading.key for heading in table.headings]
    shown = ("place", keys[0], *_FIRST, "parameters", caption_count(keys), "latency_median", "train_seconds")
    first = [keys.index(key) for key in dict.fromkeys(shown) if key in keys]
    rest = [place for place in range(len(keys)) if place not in first]
    columns = tuple(
        Column(place, _named(table.headings[place]), place in rest) for place in (*first, *rest)
    )  # the interval is in the rest: its bar stands beside the score
    ranks = max((cell.ranks[1] for line in table.all_lines for cell in line.cells if cell.ranks), default=1)
    return BoardLayout(columns, ranks, _scale(table))


def _named(heading: Heading) -> Heading:
    return replace(heading, name=_NAMES.get(heading.key, heading.name))


def _scale(table: Table) -> Scale | None:
    """None where no row has an interval to draw."""
    cells = [line.cells[0] for line in table.all_lines]
    most = max((bound for cell in cells for bound in (*(cell.bounds or ()), cell.value or 0.0)), default=0.0)
    if most <= 0 or not any(cell.bounds for cell in cells):
        return None
    scores = {line.model: line.cells[0].value for line in reversed(table.all_lines) if line.model in _LEVELS}
    levels = sorted((value, name) for name, value in scores.items() if value is not None)
    meaning = f"Bars are 95 % intervals on a scale from 0 to {percent(most)}"
    if levels:
        named = ", ".join(f"{name} {percent(value)}" for value, name in levels)
        meaning += f"; {'its tick is' if len(levels) == 1 else 'its ticks are, from left to right,'} {named}"
    plain = Scale(most, "", f"{meaning}.")
    return replace(plain, ticks="".join(f"M{plain.at(value):g} 0v12" for value, _ in levels))
