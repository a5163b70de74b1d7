"""All pairs of a leaderboard's rows: who is better than whom, as a square of letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reports.tables.numbers import percent
from results.runs.leaderboard import Group
from results.runs.standings import Verdict

LETTERS: Final[dict[Verdict, str]] = {"better": "B", "worse": "W", "same": "S", "unknown": "·"}
MEANING: Final = "B: the row is better than the column; W: worse; S: the same within the margin; ·: not known yet"


@dataclass(frozen=True, slots=True)
class PairCell:
    """What is known of a row and a column: the letter, the verdict that it stands for, and the numbers behind it."""

    letter: str
    verdict: str
    said: str


@dataclass(frozen=True, slots=True)
class PairTable:
    """The compared rows of a group in its order, each with a cell for every one of them; None on the diagonal."""

    metric: str
    rows: tuple[tuple[str, tuple[PairCell | None, ...]], ...]


def pair_table(group: Group) -> PairTable | None:
    found = group.comparisons
    if found is None or len(found.rows) < 3:
        return None
    order = sorted(found.rows)
    rows = tuple((group.rows[one].model, tuple(pair_cell(group, one, other) for other in order)) for one in order)
    return PairTable(group.metric, rows)


def pair_cell(group: Group, one: int, other: int) -> PairCell | None:
    """What is known of two rows, by their numbers; None where they were not compared."""
    found = group.comparisons.between(one, other) if group.comparisons else None
    if found is None:
        return None
    pair, verdict = found
    gap, low, high = pair.difference, pair.low, pair.high
    if pair.first != one:
        gap, low, high = -gap, -high, -low
    names = f"{group.rows[one].model} less {group.rows[other].model}"
    at_once = " for all pairs at once" if group.comparisons and len(group.comparisons.pairs) > 1 else ""
    said = f"{names}: {_signed(gap)} ({_signed(low)} to {_signed(high)}{at_once}, p {pair.p:.2g})"
    if verdict == "unknown":
        needs = [f"{count:,} {what}" for count, what in ((pair.seeds, "seeds"), (pair.images, "images")) if count]
        said += f"; {' or '.join(needs)} would probably tell" if needs else "; no number of seeds or images would tell"
    return PairCell(LETTERS[verdict], verdict, said)


def _signed(value: float) -> str:
    return f"{'+' if value >= 0 else '−'}{percent(abs(value))}"
