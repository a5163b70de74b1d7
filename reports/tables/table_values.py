"""Single numbers as a reader sees them: a score, a cost, or a dash with a mark that leads to its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from reports.tables import numbers
from results.records import Quantity
from results.runs.leaderboard import Row
from results.runs.spreads import Spread
from results.runs.standings import ALONE, NOT_ABOVE, STILL_LEARNING, FloorTest, Standing
from results.statistics.architecture import NEEDS_SEEDS, OVER_IMAGES

NOISY = "latency_noisy"
_MARKED_AS_NOISY = ("latency_median", "latency_throughput")
_NOISE = "noisy: timings of the same work spread or drift, or other processes kept the machine busy"


@dataclass(frozen=True, slots=True)
class TableValue:
    """One number of a table: the text to show and the value to sort by, or a dash with the reason and its note's mark.

    `spread` is the standard deviation over seeds as text, empty with one seed; `interval` what bounds the value.
    `bounds` are those of a score's interval, `ranks` the best and the worst of a place. `by_metric` has what stands
    here where the table is sorted by another metric. `other_machine`: not to be compared with the rest of its column.
    """

    text: str
    value: float | None
    spread: str = ""
    interval: str = ""
    reason: str | None = None
    mark: str = ""
    bounds: tuple[float, float] | None = None
    ranks: tuple[int, int] | None = None
    by_metric: Mapping[str, TableValue] = field(default_factory=dict)
    other_machine: bool = False


@dataclass(slots=True)
class Notes:
    """Reasons of missing numbers under one table, each with a mark: a, b, c ... in order of appearance."""

    marks: dict[str, str] = field(default_factory=dict)

    def mark(self, reason: str) -> str:
        """The reason's mark, a new one for a new reason."""
        if reason not in self.marks:
            number, letters = len(self.marks), ""
            while number >= 0:
                number, letters = number // 26 - 1, chr(ord("a") + number % 26) + letters
            self.marks[reason] = letters
        return self.marks[reason]


def score_value(spread: Spread | None, notes: Notes) -> TableValue:
    """A score over seeds; where seeds lack it the reason is a note."""
    if spread is None:
        return missing("not stored for this run", notes)
    if spread.mean is None:
        return missing(spread.reason or "no seed has it", notes)
    return TableValue(
        numbers.percent(spread.mean),
        spread.mean,
        numbers.percent(spread.sd) if spread.sd is not None else "",
        interval(spread),
        spread.reason,
        notes.mark(spread.reason) if spread.reason else "",
        None if spread.low is None or spread.high is None else (spread.low, spread.high),
    )


def place_value(standing: Standing | None, notes: Notes) -> TableValue:
    """A row's place as "1–3"; where it has none, why in a few words, with a note."""
    if standing is None:
        return TableValue("", None)
    if standing.is_floor:
        return TableValue("floor", None, reason="what other rows have to be significantly above")
    if standing.not_above:
        reason = f"{NOT_ABOVE}: {_not_above(standing.not_above)}"
        return TableValue(NOT_ABOVE, None, reason=reason, mark=notes.mark(reason))
    if standing.best is None or standing.worst is None:
        return _no_place(standing.reason or "", notes)
    p = standing.against_best
    reason = "the best row" if p is None else f"against the best row, p = {p:.2g}"
    text = str(standing.best) if standing.best == standing.worst else f"{standing.best}–{standing.worst}"
    ranks = standing.best, standing.worst
    return TableValue(text, standing.best + standing.worst / 1000, reason=reason, ranks=ranks)


def _no_place(reason: str, notes: Notes) -> TableValue:
    """In few words where the reason is a common one: they have a column's room."""
    if reason == ALONE:
        return TableValue("", None, reason=reason)
    said = {
        NEEDS_SEEDS: f"{NEEDS_SEEDS} (--seeds 3)",
        STILL_LEARNING: f"{STILL_LEARNING} (--place-unfinished places it)",
    }
    sentence = said.get(reason, reason)
    return TableValue(reason.partition(":")[0], None, reason=sentence, mark=notes.mark(sentence))


def interval_value(spread: Spread | None, notes: Notes) -> TableValue:
    """The 95 % interval of a score, with a note where it is not of the architecture but of one seed's weights."""
    if spread is None or not (text := interval(spread)):
        return TableValue("", None)
    if spread.over != OVER_IMAGES:
        return TableValue(text, None, reason=spread.over)
    sentence = f"one seed: the 95 % interval is of {OVER_IMAGES}"
    return TableValue(text, None, reason=sentence, mark=notes.mark(sentence))


def _not_above(tests: Sequence[FloorTest]) -> str:
    """How far a row is from floors that it is not above, as "not significantly better than majority (p = 0.4)"."""
    by_verdict: dict[str, list[str]] = {}
    for test in tests:
        verdict = "significantly worse than" if test.significant else "not significantly better than"
        by_verdict.setdefault(verdict, []).append(f"{test.floor} (p = {test.p:.2g})")
    return ", ".join(f"{verdict} {' and '.join(floors)}" for verdict, floors in by_verdict.items())


def interval(spread: Spread) -> str:
    """The 95 % interval of a score as text, empty where there is none."""
    return numbers.bounds(spread.low, spread.high, numbers.percent)


def cost_value(quantity: Quantity | None, notes: Notes) -> TableValue:
    """A cost in its own unit."""
    if quantity is None:
        return missing("not measured for this run", notes)
    if quantity.value is None:
        return missing(quantity.reason or "not measured", notes)
    text = numbers.cost(quantity.value, quantity.unit)
    between = numbers.bounds(quantity.low, quantity.high, lambda bound: numbers.cost(bound, quantity.unit))
    return TableValue(text, quantity.value, interval="" if between == f"{text}\u2013{text}" else between)


def quantity_value(quantity: Quantity | None, notes: Notes) -> TableValue:
    """One seed's score."""
    if quantity is None:
        return missing("not stored for this run", notes)
    if quantity.value is None:
        return missing(quantity.reason or "not measured", notes)
    return TableValue(
        numbers.percent(quantity.value),
        quantity.value,
        interval=numbers.bounds(quantity.low, quantity.high, numbers.percent),
    )


def is_noise(row: Row, name: str) -> bool:
    """Whether this cost of the row is a latency that is noise."""
    noisy = row.costs.get(NOISY)
    return name in _MARKED_AS_NOISY and noisy is not None and bool(noisy.value)


def is_of_other_machine(row: Row, name: str) -> bool:
    """Whether this cost of the row is of another machine than most of its group's."""
    other = row.other_machines.get(name)
    return other is not None and not other.seeds


def estimated(cell: TableValue, name: str, notes: Notes) -> TableValue:
    """The cell of a cost; of an estimate the bounds, with what it assumes as a note."""
    kind = numbers.cost_kind(name, "")
    if cell.value is None or not kind.estimate:
        return cell
    return replace(
        cell, text=cell.interval or cell.text, interval="", reason=kind.meaning, mark=notes.mark(kind.meaning)
    )


def marked(cell: TableValue, row: Row, name: str, notes: Notes) -> TableValue:
    """The cell of a cost, marked where that is an estimate, noise or of another machine than others."""
    cell = estimated(cell, name, notes)
    if cell.value is None:
        return cell
    reasons = [cell.reason] if cell.reason else []
    if is_noise(row, name):
        cell = replace(cell, text=f"~{cell.text}")
        reasons.append(_NOISE)
    if other := row.other_machines.get(name):
        cell = replace(cell, other_machine=is_of_other_machine(row, name))
        reasons.append(other.said)
    if not reasons:
        return cell
    reason = "; ".join(reasons)
    return replace(cell, reason=reason, mark=notes.mark(reason))


def missing(reason: str, notes: Notes) -> TableValue:
    """A dash, with the reason as a note."""
    return TableValue(numbers.DASH, None, reason=reason, mark=notes.mark(reason))
