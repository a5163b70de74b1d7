"""The further metrics of rows as a table of its own, where `bench run --more-metrics` measured any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.tables import numbers
from reports.tables.table_values import Notes, TableValue, missing
from reports.tables.tables import Heading, Line, Table, badges, differences
from results.runs.leaderboard import Group, Row
from results.runs.more_metrics import BETTER, MORE_METRICS, base_name, depends_on, more_order
from results.runs.spreads import Spread

TITLE = "More metrics"
_SHORT = {"caption_words": "Words", "caption_words_sd": "Words SD", "vocabulary_used": "Vocabulary"}


@dataclass(frozen=True, slots=True)
class MoreMetrics:
    """The table; a sentence on each of its metrics; why others, that were asked for, have no value in any row."""

    table: Table
    meanings: tuple[str, ...]
    absent: tuple[str, ...]


def more_metrics(groups: Sequence[Group]) -> MoreMetrics | None:
    """What was measured of the rows of one group or several of one split, None where nothing was."""
    rows = [row for group in groups for row in (*group.rows, *group.references)]
    stored = more_order(name for row in rows for name in row.more)
    shown = [name for name in stored if any(_has_value(row, name) for row in rows)]
    if not shown:
        return None
    known = {base_name(name) for name in shown}
    absent: dict[str, list[str]] = {}
    for name in stored:
        if base_name(name) not in known:
            absent.setdefault(_reason(rows, name), []).append(name)
    return MoreMetrics(
        _table(groups, shown),
        tuple(_meaning(name) for name in shown),
        tuple(f"{', '.join(names)}: {reason}" for reason, names in absent.items()),
    )


def _table(groups: Sequence[Group], names: Sequence[str]) -> Table:
    notes, labels = Notes(), _labels(names)
    headings = tuple(
        Heading(labels[name], labels[name], _meaning(name), MORE_METRICS[base_name(name)].better != "lower")
        for name in names
    )
    ranked = [_line(row, group, names, notes) for group in groups for row in group.rows if row.more]
    beside = [_line(row, group, names, notes) for group in groups for row in group.references if row.more]
    return Table(headings, tuple(ranked), tuple(beside), notes)


def _line(row: Row, group: Group, names: Sequence[str], notes: Notes) -> Line:
    return Line(
        row.model,
        "" if row.role == "reference" else differences(row.differs),
        tuple(zip(row.seeds, row.keys, strict=True)),
        tuple(_cell(row.more.get(name, row.more.get(base_name(name))), name, notes) for name in names),
        badges=badges(row, group, notes),
    )


def _labels(names: Sequence[str]) -> Mapping[str, str]:
    """The short name of each metric; the stored one where several are of one metric."""
    bases = [base_name(name) for name in names]
    return {
        name: _SHORT.get(base, base) if bases.count(base) == 1 else name
        for name, base in zip(names, bases, strict=True)
    }


def _meaning(name: str) -> str:
    metric, model = MORE_METRICS[base_name(name)], depends_on(name)
    label = _SHORT.get(base_name(name), base_name(name))
    scale = ", times 100" if metric.share else ""
    better = "neither direction is better" if metric.better == "neither" else f"{BETTER[metric.better]} is better"
    return f"{label}: {metric.meaning}{scale}; {better}" + (f" ({model})" if model else "")


def _cell(spread: Spread | None, name: str, notes: Notes) -> TableValue:
    if spread is None:
        return missing("not measured for this row", notes)
    if spread.mean is None:
        return missing(spread.reason or "no seed has it", notes)
    whole = name == "vocabulary_used"
    show = numbers.percent if MORE_METRICS[base_name(name)].share else numbers.count if whole else numbers.significant
    return TableValue(
        show(spread.mean),
        spread.mean,
        "" if spread.sd is None else show(spread.sd),
        numbers.bounds(spread.low, spread.high, show),
        spread.reason,
        notes.mark(spread.reason) if spread.reason else "",
    )


def _has_value(row: Row, name: str) -> bool:
    return name in row.more and row.more[name].mean is not None


def _reason(rows: Sequence[Row], name: str) -> str:
    return next((row.more[name].reason for row in rows if name in row.more), None) or "no row has it"
