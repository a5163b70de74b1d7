"""The columns: every one that pages, terminal, Markdown and LaTeX show, and how its cells are read from a row.

Those of a metric or a cost are made of its line in `results/metrics.py` or `results/costs.py`. Another column of the
leaderboard is one more `Column` in `leaderboard_columns`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reports import numbers
from reports.numbers import DASH
from results.costs import cost_info, cost_order, exported_costs, leaderboard_costs, with_unit
from results.metrics import (
    BETTER,
    RANKING_METRIC,
    MetricInfo,
    depends_on,
    metric_info,
    metric_names,
    metric_order,
    more_metric_info,
)
from results.records import Quantity
from results.runs.leaderboard import Group, Row
from results.runs.spreads import Spread
from results.runs.standings import ALONE, NOT_ABOVE, STILL_LEARNING, BaselineTest, RankInterval
from results.statistics.architecture import AS_GIVEN, NEEDS_SEEDS, OVER_IMAGES

RANK, INTERVAL, PUBLISHED = "rank", "interval", "published"
NOISY = "latency_noisy"
_MARKED_AS_NOISY = ("latency_median", "latency_throughput")
_NOISE = "noisy: timings of the same work spread or drift, or other processes kept the machine busy"


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of a table: the text to show and the value to sort by, or a dash and why.

    `deviation` is the standard deviation over seeds, `spread` its text, `interval` what bounds the value. `reason`
    explains the text where it is pointed at, `note` below the table. `ranks` are the best and the worst rank.
    `by_metric` has what stands here where the table is sorted by another metric. `other_machine`: not to be compared
    with its column.
    """

    text: str
    value: float | None = None
    spread: str = ""
    deviation: float | None = None
    interval: str = ""
    reason: str | None = None
    note: str = ""
    bounds: tuple[float, float] | None = None
    ranks: tuple[int, int] | None = None
    by_metric: Mapping[str, Cell] = field(default_factory=dict)
    other_machine: bool = False


def noted(text: str, reason: str, value: float | None = None) -> Cell:
    """A text whose reason is a note, too; of a dash, why there is no number."""
    return Cell(text, value, reason=reason, note=reason)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, how a cell is read from a row of a group, what it means, and whether more is better.

    `short` is its name where room is scarce. `barred` columns show bars. `key` is the name of its score or cost in the
    store, or of what else it shows, `csv` its name in CSV, where a score has its deviation and interval beside it
    (`is_score`). `more` waits for "all metrics" on the page. Those of a low `priority` get room first in a narrow
    terminal, which leaves out those without one. `compared`: one end of its values is the better one.
    """

    name: str
    read: Callable[[Row, Group], Cell]
    meaning: str
    short: str
    descending: bool = True
    barred: bool = False
    sortable: bool = True
    key: str = ""
    more: bool = True
    priority: int | None = None
    compared: bool = False
    csv: str = ""
    is_score: bool = False


def leaderboard_columns(metric: str, rows: Sequence[Row], published: Column | None = None) -> list[Column]:
    """The columns of leaderboards: rank, the metric that ranks, printed scores, the other scores, and costs."""
    stored = metric_order({name for row in rows for name in row.scores} - {metric})
    others = sorted(stored, key=lambda name: metric_info(name).secondary)
    measured = {name for row in rows for name in row.costs}
    columns = [rank_column(), score_column(metric), interval_column()]
    if published is not None:
        columns.append(published)
    columns += [score_column(name) for name in others]
    columns += [cost_column(cost.name, rows) for cost in leaderboard_costs(measured)]
    return columns


def default_columns(metric: str) -> list[str]:
    """The names of the columns that exports to Markdown have without `--metrics`, in their order."""
    metrics = [name for name in metric_order(metric_names()) if not metric_info(name).secondary]
    costs = [cost.label for cost in exported_costs()]
    return list(dict.fromkeys((metric, interval_column().name, rank_column().name, *metrics, *costs)))


def paper_columns(metric: str) -> list[str]:
    """The same of a paper's table: numbers have their deviation instead of an interval, and the rank is last."""
    last = rank_column().name
    return [*(name for name in default_columns(metric) if name not in {last, interval_column().name}), last]


def rank_column() -> Column:
    return Column(
        "Rank",
        row_rank_cell,
        "the ranks that the differences between rows allow; see Method",
        "Rank",
        descending=False,
        key=RANK,
        more=False,
        priority=0,
    )


def interval_column() -> Column:
    return Column(
        "95 % interval",
        interval_cell,
        "of the mean over seeds and images; see Method",
        "95 %",
        sortable=False,
        key=INTERVAL,
        priority=1,
    )


def score_column(name: str) -> Column:
    info = metric_info(name)
    return Column(
        name,
        lambda row, _: score_cell(row.scores.get(name)),
        f"{name}, times 100; {_direction(info)}",
        info.short_heading,
        descending=info.better != "lower",
        key=name,
        more=info.secondary,
        priority=info.priority,
        compared=info.better != "neither",
        csv=csv_name(name),
        is_score=True,
    )


def csv_name(name: str) -> str:
    """A metric's name as that of a column in CSV: "cider_d" for CIDEr-D."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def held_out_column(name: str) -> Column:
    """The score against one reference fewer."""
    return replace(
        score_column(name),
        read=lambda row, _: score_cell(row.held_out.get(name)),
        meaning=f"{name} against one reference fewer, times 100; {_direction(metric_info(name))}",
        barred=name == RANKING_METRIC,
    )


def domain_column(metric: str, domain: str, images: int | None) -> Column:
    """The score of a domain, or of "overall", with its number of images in the heading if known."""

    def read(row: Row, _: Group) -> Cell:
        return score_cell((row.scores if domain == "overall" else row.domains.get(domain, {})).get(metric))

    whose = "of the whole split" if domain == "overall" else f"of the {domain} images"
    name = f"{domain}, {images:,}" if images else domain
    return Column(name, read, f"{metric} {whose}, times 100", name)


def more_column(name: str, *, alone: bool) -> Column:
    """A metric of `--more-metrics` by its stored name; `alone`: no other column is of the same metric."""
    info = more_metric_info(name)
    scale = ", times 100" if info.number == "percent" else ""
    meaning = f"{info.heading}: {info.meaning}{scale}; {_direction(info)}"
    if model := depends_on(name):
        meaning += f" ({model})"

    def read(row: Row, _: Group) -> Cell:
        return score_cell(row.more.get(name, row.more.get(info.name)), numbers.SCORE_FORMATS[info.number])

    heading = info.heading if alone else name
    return Column(heading, read, meaning, heading, descending=info.better != "lower")


def _direction(info: MetricInfo) -> str:
    """Which direction is better, in words."""
    if info.better == "neither":
        return "neither direction is better"
    return f"{BETTER[info.better]} is better"


def cost_column(name: str, rows: Sequence[Row]) -> Column:
    unit = next((row.costs[name].unit for row in rows if name in row.costs and row.costs[name].unit), "")
    info = cost_info(name, unit)
    return Column(
        info.label,
        lambda row, _: cost_cell(row, name),
        info.meaning,
        info.short_heading,
        descending=info.better == "higher",
        key=name,
        more=False,
        priority=info.priority,
        csv=info.csv or with_unit(name, unit),
    )


def published_column(read: Callable[[Row, Group], Cell]) -> Column:
    """The nearest number that a paper prints."""
    return Column(
        "Published",
        read,
        f"{RANKING_METRIC} as a paper prints it, not ranked: see its note",
        "Pub.",
        sortable=False,
        key=PUBLISHED,
        csv=f"{csv_name(RANKING_METRIC)}_published",
    )


def score_cell(spread: Spread | Quantity | None, show: Callable[[float], str] = numbers.percent) -> Cell:
    """A score over seeds, or of one; where seeds lack it the reason is a note."""
    if spread is None:
        return noted(DASH, "not stored for this run")
    value = spread.value if isinstance(spread, Quantity) else spread.mean
    if value is None:
        return noted(DASH, spread.reason or "no seed has it")
    interval = numbers.bounds(spread.low, spread.high, show)
    if isinstance(spread, Quantity):
        return Cell(show(value), value, interval=interval)
    deviation = "" if spread.sd is None else show(spread.sd)
    bounds = None if spread.low is None or spread.high is None else (spread.low, spread.high)
    return Cell(show(value), value, deviation, spread.sd, interval, spread.reason, spread.reason or "", bounds)


def interval_cell(row: Row, group: Group) -> Cell:
    """The 95 % interval of the score that ranks; that of one seed is marked, since it says nothing of other seeds.

    That of captions as given is not: the table says so of all of them, but of a row of several files.
    """
    spread = row.scores.get(group.metric)
    text = numbers.bounds(spread.low, spread.high, numbers.percent) if spread else ""
    if spread is None or not text:
        return Cell("")
    if spread.over != OVER_IMAGES:
        several = f"{len(row.seeds)} files: the 95 % interval is {spread.over}"
        return noted(text, several) if group.is_as_given else Cell(text, reason=spread.over)
    if group.is_as_given:
        return Cell(text, reason=AS_GIVEN)
    if row.role == "reference":
        return noted(text, "not trained: the 95 % interval is over images")
    return noted(text, f"one seed: the 95 % interval is of {OVER_IMAGES}")


def row_rank_cell(row: Row, group: Group) -> Cell:
    """The row's rank on the group's metric, and those on the others for tables that are sorted by these."""
    rank, alone = row.ranks.get(group.metric), len(group.rows) < 2
    if not alone:
        return replace(rank_cell(rank), by_metric={metric: rank_cell(other) for metric, other in row.ranks.items()})
    return rank_cell(rank) if rank and rank.not_above else Cell("")


def rank_cell(rank: RankInterval | None) -> Cell:
    """Ranks as "1–3"; where there are none, why in a few words, with a note."""
    if rank is None:
        return Cell("")
    if rank.is_baseline:
        return Cell("baseline", reason="what other rows have to be significantly above")
    if rank.not_above:
        return noted(NOT_ABOVE, f"{NOT_ABOVE}: {_not_above(rank.not_above)}")
    if rank.best is None or rank.worst is None:
        reason = rank.reason or ""
        if reason == ALONE:
            return Cell("", reason=reason)
        with_option = {
            NEEDS_SEEDS: f"{NEEDS_SEEDS} (--seeds 3)",
            STILL_LEARNING: f"{STILL_LEARNING} (--rank-unconverged ranks it)",
        }
        return noted(reason.partition(":")[0], with_option.get(reason, reason))
    p = rank.p_against_best
    reason = "the best row" if p is None else f"against the best row, p = {p:.2g}"
    text = str(rank.best) if rank.best == rank.worst else f"{rank.best}–{rank.worst}"
    return Cell(text, rank.best + rank.worst / 1000, reason=reason, ranks=(rank.best, rank.worst))


def _not_above(tests: Sequence[BaselineTest]) -> str:
    """How far a row is from baselines that it is not above, as "not significantly better than majority (p = 0.4)"."""
    by_verdict: dict[str, list[str]] = {}
    for test in tests:
        verdict = "significantly worse than" if test.estimate.is_significant else "not significantly better than"
        by_verdict.setdefault(verdict, []).append(f"{test.baseline} (p = {test.estimate.p:.2g})")
    return ", ".join(f"{verdict} {' and '.join(baselines)}" for verdict, baselines in by_verdict.items())


def cost_cell(row: Row, name: str) -> Cell:
    """A row's cost, marked where that is an estimate, noise, or of another machine than others."""
    if row.role == "reference" and (name not in row.costs or row.costs[name].value is None):
        return Cell("")  # it has no model
    cell = quantity_cell(row.costs, name)
    if cell.value is None:
        stated = row.stated.get("gmac_beam" if name.startswith("gmac_beam") else name)
        return cell if stated is None else _stated_cell(name, stated, row.stated_hardware)
    reasons = [cell.note] if cell.note else []
    if is_noise(row, name):
        cell = replace(cell, text=f"~{cell.text}")
        reasons.append(_NOISE)
    if other := row.other_machines.get(name):
        cell = replace(cell, other_machine=not other.seeds)
        reasons.append(other.said)
    note = "; ".join(reasons)
    return replace(cell, reason=note or cell.reason, note=note)


def _stated_cell(name: str, stated: Quantity, hardware: str) -> Cell:
    assert stated.value is not None
    where = f", trained on {hardware}" if hardware else ""
    text = f"{numbers.amount(name, stated.value, stated.unit)} stated"
    return noted(text, f"stated on its card{where}; not measured here", stated.value)


def quantity_cell(costs: Mapping[str, Quantity], name: str) -> Cell:
    """A cost of these in its own unit; an estimate as its bounds, with what it assumes."""
    quantity = costs.get(name)
    if quantity is None:
        return noted(DASH, "not measured for this run")
    if quantity.value is None:
        return noted(DASH, quantity.reason or "not measured")
    text, info = numbers.amount(name, quantity.value, quantity.unit), cost_info(name, quantity.unit)
    between = numbers.bounds(quantity.low, quantity.high, lambda bound: numbers.cost(bound, quantity.unit))
    if info.type == "estimate":
        return noted(between or text, info.meaning, quantity.value)
    return Cell(text, quantity.value, interval="" if between == f"{text}–{text}" else between)


def cost_list(measured: Mapping[str, Quantity]) -> list[tuple[str, str, Cell]]:
    """A run's costs as label, meaning and number; the reason of a missing one stands beside it."""
    infos = [cost_info(name, measured[name].unit) for name in cost_order(measured)]
    return [(info.label, info.meaning, quantity_cell(measured, info.name)) for info in infos]


def is_noise(row: Row, name: str) -> bool:
    noisy = row.costs.get(NOISY)
    return name in _MARKED_AS_NOISY and noisy is not None and bool(noisy.value)


def is_of_other_machine(row: Row, name: str) -> bool:
    other = row.other_machines.get(name)
    return other is not None and not other.seeds
