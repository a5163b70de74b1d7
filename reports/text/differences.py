"""Differences between two results in words and tables, as the regression gate and `bench compare` share them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reports.tables.numbers import DASH, amount, cost_kind
from results.comparison.comparison import CostChange

NEAR_ZERO: Final = 0.001


def points(fraction: float, sign: str = "") -> str:
    """A fraction times 100; `sign` "+" for differences."""
    return f"{100 * fraction:{sign}.2f}"


def interval(low: float, high: float) -> str:
    """A difference's 95 % interval."""
    return f"{points(low, '+')}…{points(high, '+')}"


def p_value(p: float) -> str:
    """A p-value as papers print it."""
    return f"<{NEAR_ZERO}" if p < NEAR_ZERO else f"{p:.3f}"


def cost_line(change: CostChange) -> str:
    """A cost before and after, in its unit."""
    return " → ".join(amount(change.name, side, change.unit) for side in (change.before, change.after))


def cost_ratio(change: CostChange) -> str:
    """How many times as much was spent, a dash where a ratio is meaningless."""
    return DASH if cost_kind(change.name, change.unit).flag else ratio(change.ratio) or DASH


def ratio(value: float | None) -> str:
    """How many times as much."""
    return "" if value is None else f"{value:.2f}×"


def markdown_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose first column is text, the others numbers; cells are Markdown already."""
    names = list(headings)
    lines = [names, ["---", *["---:"] * (len(names) - 1)], *(list(row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
