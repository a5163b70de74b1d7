"""Which scores and costs a leaderboard has as columns, and why others that were asked for are empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reports.tables import numbers
from results.runs.leaderboard import Row


@dataclass(frozen=True, slots=True)
class Columns:
    """Names in the store of the scores and costs shown, in their order; `absent` says why others are left out."""

    metrics: tuple[str, ...]
    costs: tuple[str, ...]
    absent: Mapping[str, str] = field(default_factory=dict)


def every_column(rows: Sequence[Row], metric: str) -> Columns:
    """Every stored score, that of the ranking first, then parameters and the GMAC of a caption where measured."""
    measured = {name for row in rows for name in row.costs}
    costs = (name for name in ("parameters", numbers.caption_count(measured)) if name in measured)
    return Columns(_metrics(rows, metric), tuple(costs))


def filled_columns(rows: Sequence[Row], metric: str) -> Columns:
    """As `every_column`, with latency and training time, without what no row has."""
    measured = {name for row in rows for name in row.costs}
    wanted = ("parameters", numbers.caption_count(measured), "latency_median", "train_seconds")
    costs = [name for name in wanted if name in measured]
    scores = _metrics(rows, metric)
    absent = {
        name: _usual(row.scores[name].reason for row in rows if name in row.scores)
        for name in scores
        if name != metric and all(name not in row.scores or row.scores[name].mean is None for row in rows)
    }
    unmeasured = {
        name: _usual(row.costs[name].reason for row in rows if name in row.costs)
        for name in costs
        if all(name not in row.costs or row.costs[name].value is None for row in rows)
    }
    labels = {numbers.cost_kind(name, "").label: reason for name, reason in unmeasured.items()}
    return Columns(
        tuple(name for name in scores if name not in absent),
        tuple(name for name in costs if name not in unmeasured),
        absent | labels,
    )


def absent_columns(columns: Columns) -> str:
    """What is left out and why, in a sentence a reason; "" where nothing is."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in columns.absent.items():
        by_reason.setdefault(reason, []).append(name)
    return " ".join(f"No row has {_listed(names)}: {reason}." for reason, names in by_reason.items())


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _metrics(rows: Sequence[Row], metric: str) -> tuple[str, ...]:
    found = numbers.metric_order(name for row in rows for name in row.scores)
    return tuple(sorted(found, key=lambda name: name != metric))


def _usual(reasons: Iterable[str | None]) -> str:
    """The most frequent reason."""
    counted = Counter(reason or "not measured" for reason in reasons)
    return counted.most_common(1)[0][0]
