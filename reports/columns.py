"""All columns of pages, terminal, Markdown, LaTeX and CSV, and how their cells are read from a row.

The column of a metric or a cost follows from its entry in `results/metrics.py` or `results/costs.py`. To add another
column to the leaderboard, add a `Column` to `leaderboard_columns`.
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
NOISY_KEY = "latency_noisy"
_MAY_BE_NOISY = ("latency_median", "latency_throughput")
_NOISY_REASON = "noisy: timings of the same work spread or drift, or other processes kept the machine busy"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: what is shown; a dash where there is no value.
        value: sorts the column.
        deviation_text: `deviation` as it is shown.
        deviation: standard deviation over seeds.
        interval_text: the value's interval as it is shown.
        bounds: the ends of the interval.
        reason: explanation that is shown on hover.
        note: explanation that is printed below the table.
        ranks: the best and the worst rank.
        by_metric: the cell to show where the table is sorted by another metric.
        other_machine: measured on another machine, so not comparable with its column.
    """

    text: str
    value: float | None = None
    deviation_text: str = ""
    deviation: float | None = None
    interval_text: str = ""
    reason: str | None = None
    note: str = ""
    bounds: tuple[float, float] | None = None
    ranks: tuple[int, int] | None = None
    by_metric: Mapping[str, Cell] = field(default_factory=dict)
    other_machine: bool = False


def noted_cell(text: str, reason: str, value: float | None = None) -> Cell:
    """A cell whose reason is shown both on hover and below the table."""
    return Cell(text, value, reason=reason, note=reason)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: the heading.
        read: the cell of a row in a group.
        meaning: explains the heading.
        short: the name where room is scarce.
        descending: whether the page sorts the highest value first.
        barred: whether the page shows bars.
        sortable: whether the page sorts by it.
        key: the name of its score or cost in the store, or RANK, INTERVAL, PUBLISHED.
        is_hidden_at_first: hidden on the page until "all metrics" is chosen.
        priority: columns with a low number are kept first in a narrow terminal; None: hidden there.
        has_direction: whether one direction is better.
        csv: the name in CSV.
        is_score: whether CSV also has columns for its deviation and interval.
    """

    name: str
    read: Callable[[Row, Group], Cell]
    meaning: str
    short: str
    descending: bool = True
    barred: bool = False
    sortable: bool = True
    key: str = ""
    is_hidden_at_first: bool = True
    priority: int | None = None
    has_direction: bool = False
    csv: str = ""
    is_score: bool = False


def leaderboard_columns(metric: str, rows: Sequence[Row], published: Column | None = None) -> list[Column]:
    """The columns of leaderboards: rank, the metric that ranks, published scores, the other scores, and costs."""
    stored = metric_order({name for row in rows for name in row.scores} - {metric})
    others = sorted(stored, key=lambda name: metric_info(name).secondary)
    measured = {name for row in rows for name in row.costs}
    columns = [rank_column(), score_column(metric), interval_column()]
    if published is not None:
        columns.append(published)
    columns += [score_column(name) for name in others]
    columns += [cost_column(cost.name, rows) for cost in leaderboard_costs(measured)]
    return columns


def default_column_names(metric: str) -> list[str]:
    """The names of the columns that exports to Markdown have without `--metrics`, in their order."""
    metrics = [name for name in metric_order(metric_names()) if not metric_info(name).secondary]
    costs = [cost.label for cost in exported_costs()]
    return list(dict.fromkeys((metric, interval_column().name, rank_column().name, *metrics, *costs)))


def paper_column_names(metric: str) -> list[str]:
    """The names of the columns of a paper's table: no interval, since numbers have a deviation, and the rank last."""
    rank = rank_column().name
    names = [name for name in default_column_names(metric) if name not in {rank, interval_column().name}]
    return [*names, rank]


def rank_column() -> Column:
    return Column(
        "Rank",
        row_rank_cell,
        "the ranks that the differences between rows allow; see Method",
        "Rank",
        descending=False,
        key=RANK,
        is_hidden_at_first=False,
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
        is_hidden_at_first=info.secondary,
        priority=info.priority,
        has_direction=info.better != "neither",
        csv=csv_name(name),
        is_score=True,
    )


def csv_name(name: str) -> str:
    """A metric's name as that of a column in CSV: "cider_d" for CIDEr-D."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def leave_one_out_column(name: str) -> Column:
    """The column of a score against all references but one: the mean over leaving out each in turn."""
    return replace(
        score_column(name),
        read=lambda row, _: score_cell(row.held_out.get(name)),
        meaning=f"{name} against one reference fewer, times 100; {_direction(metric_info(name))}",
        barred=name == RANKING_METRIC,
    )


def domain_column(metric: str, domain: str, images: int | None) -> Column:
    """The column of a domain's score, or of "overall", with the number of images in its heading if known."""

    def read(row: Row, _: Group) -> Cell:
        scores = row.scores if domain == "overall" else row.domains.get(domain, {})
        return score_cell(scores.get(metric))

    part = "the whole split" if domain == "overall" else f"the {domain} images"
    name = f"{domain}, {images:,}" if images else domain
    return Column(name, read, f"{metric} of {part}, times 100", name)


def more_metric_column(name: str, *, names_scorer: bool) -> Column:
    """The column of a metric of `--more-metrics`.

    Args:
        names_scorer: the heading names the model that computes the metric, such as a CLIP model, since the table has
            the metric by several.
    """
    info = more_metric_info(name)
    scale = ", times 100" if info.number == "percent" else ""
    meaning = f"{info.heading}: {info.meaning}{scale}; {_direction(info)}"
    if model := depends_on(name):
        meaning += f" ({model})"

    def read(row: Row, _: Group) -> Cell:
        score = row.more.get(name, row.more.get(info.name))  # a reason without a score is stored without the model
        return score_cell(score, numbers.SCORE_FORMATS[info.number])

    heading = name if names_scorer else info.heading
    return Column(heading, read, meaning, heading, descending=info.better != "lower")


def _direction(info: MetricInfo) -> str:
    """Which direction is better, in words."""
    if info.better == "neither":
        return "neither direction is better"
    return f"{BETTER[info.better]} is better"


def cost_column(name: str, rows: Sequence[Row]) -> Column:
    """The column of a cost, with the unit of the first row that has one."""
    units = [row.costs[name].unit for row in rows if name in row.costs]
    unit = next(filter(None, units), "")
    info = cost_info(name, unit)
    return Column(
        info.label,
        lambda row, _: cost_cell(row, name),
        info.meaning,
        info.short_heading,
        descending=info.better == "higher",
        key=name,
        is_hidden_at_first=False,
        priority=info.priority,
        csv=info.csv or with_unit(name, unit),
    )


def published_column(read: Callable[[Row, Group], Cell]) -> Column:
    """The column of published scores."""
    return Column(
        "Published",
        read,
        f"{RANKING_METRIC} as a paper prints it, not ranked: see its note",
        "Pub.",
        sortable=False,
        key=PUBLISHED,
        csv=f"{csv_name(RANKING_METRIC)}_published",
    )


def score_cell(score: Spread | Quantity | None, show: Callable[[float], str] = numbers.percent) -> Cell:
    """The cell of a score over seeds, or of one run's score."""
    if score is None:
        return noted_cell(DASH, "not stored for this run")
    value = score.value if isinstance(score, Quantity) else score.mean
    if value is None:
        return noted_cell(DASH, score.reason or "no seed has it")
    interval_text = numbers.bounds(score.low, score.high, show)
    if isinstance(score, Quantity):
        return Cell(show(value), value, interval_text=interval_text)
    return Cell(
        show(value),
        value,
        deviation_text="" if score.sd is None else show(score.sd),
        deviation=score.sd,
        interval_text=interval_text,
        reason=score.reason,
        note=score.reason or "",
        bounds=None if score.low is None or score.high is None else (score.low, score.high),
    )


def interval_cell(row: Row, group: Group) -> Cell:
    """The 95 % interval of the ranking score, with a note on what it is over unless that is the same for all rows."""
    spread = row.scores.get(group.metric)
    text = numbers.bounds(spread.low, spread.high, numbers.percent) if spread else ""
    if spread is None or not text:
        return Cell("")
    if spread.over != OVER_IMAGES:
        if group.is_as_given:
            return noted_cell(text, f"{len(row.seeds)} files: the 95 % interval is {spread.over}")
        return Cell(text, reason=spread.over)
    if group.is_as_given:
        return Cell(text, reason=AS_GIVEN)
    if row.role == "reference":
        return noted_cell(text, "not trained: the 95 % interval is over images")
    return noted_cell(text, f"one seed: the 95 % interval is of {OVER_IMAGES}")


def row_rank_cell(row: Row, group: Group) -> Cell:
    """The row's rank on the group's metric, with the ranks on all others for tables that are sorted by these."""
    rank = row.ranks.get(group.metric)
    if len(group.rows) > 1:
        by_metric = {metric: rank_cell(metric_rank) for metric, metric_rank in row.ranks.items()}
        return replace(rank_cell(rank), by_metric=by_metric)
    # A row alone has no rank, but shows that it is not above a baseline.
    return rank_cell(rank) if rank and rank.not_above else Cell("")


def rank_cell(rank: RankInterval | None) -> Cell:
    """A range of ranks such as "1–3", or in a few words why there is none, with a note."""
    if rank is None:
        return Cell("")
    if rank.is_baseline:
        return Cell("baseline", reason="what other rows have to be significantly above")
    if rank.not_above:
        return noted_cell(NOT_ABOVE, f"{NOT_ABOVE}: {_describe_tests(rank.not_above)}")
    if rank.best is None or rank.worst is None:
        reason = rank.reason or ""
        if reason == ALONE:
            return noted_cell("alone", f"alone: {reason}")
        reasons_with_option = {
            NEEDS_SEEDS: f"{NEEDS_SEEDS} (--seeds 3)",
            STILL_LEARNING: f"{STILL_LEARNING} (--rank-unconverged ranks it)",
        }
        short_reason = reason.partition(":")[0]
        return noted_cell(short_reason, reasons_with_option.get(reason, reason))
    p = rank.p_against_best
    reason = "the best row" if p is None else f"against the best row, p = {p:.2g}"
    text = str(rank.best) if rank.best == rank.worst else f"{rank.best}–{rank.worst}"
    sort_value = rank.best + rank.worst / 1000  # by the best rank, then by the worst
    return Cell(text, sort_value, reason=reason, ranks=(rank.best, rank.worst))


def _describe_tests(tests: Sequence[BaselineTest]) -> str:
    """Tests against baselines in words, such as "not significantly better than majority (p = 0.4)"."""
    by_verdict: dict[str, list[str]] = {}
    for test in tests:
        verdict = "significantly worse than" if test.estimate.is_significant else "not significantly better than"
        by_verdict.setdefault(verdict, []).append(f"{test.baseline} (p = {test.estimate.p:.2g})")
    return ", ".join(f"{verdict} {' and '.join(baselines)}" for verdict, baselines in by_verdict.items())


def cost_cell(row: Row, name: str) -> Cell:
    """A row's cost; marked if it is an estimate, noisy, or measured on another machine than the others.

    Where a system's cost was not measured, the cell shows what its model card states.
    """
    if row.role == "reference" and (name not in row.costs or row.costs[name].value is None):
        return Cell("")  # it has no model
    cell = measured_cost_cell(row.costs, name)
    if cell.value is None:
        stated_name = "gmac_beam" if name.startswith("gmac_beam") else name  # cards state it for one beam size
        stated = row.stated.get(stated_name)
        return cell if stated is None else _stated_cell(name, stated, row.stated_hardware)
    reasons = [cell.note] if cell.note else []
    if is_noisy(row, name):
        cell = replace(cell, text=f"~{cell.text}")
        reasons.append(_NOISY_REASON)
    if name in row.other_machines:
        cell = replace(cell, other_machine=is_all_on_other_machine(row, name))
        reasons.append(row.other_machines[name].explanation)
    note = "; ".join(reasons)
    return replace(cell, reason=note or cell.reason, note=note)


def _stated_cell(name: str, stated: Quantity, hardware: str) -> Cell:
    assert stated.value is not None
    where = f", trained on {hardware}" if hardware else ""
    text = f"{numbers.amount(name, stated.value, stated.unit)} stated"
    return noted_cell(text, f"stated on its card{where}; not measured here", stated.value)


def measured_cost_cell(costs: Mapping[str, Quantity], name: str) -> Cell:
    """A cost in its unit, without the marks of noise and other machines that `cost_cell` adds.

    An estimate is shown as its bounds, with a note on what it assumes.
    """
    quantity = costs.get(name)
    if quantity is None:
        return noted_cell(DASH, "not measured for this run")
    if quantity.value is None:
        return noted_cell(DASH, quantity.reason or "not measured")
    text = numbers.amount(name, quantity.value, quantity.unit)
    interval_text = numbers.bounds(quantity.low, quantity.high, lambda bound: numbers.cost(bound, quantity.unit))
    info = cost_info(name, quantity.unit)
    if info.type == "estimate":
        return noted_cell(interval_text or text, info.meaning, quantity.value)
    if interval_text == f"{text}–{text}":  # both ends round to the value
        interval_text = ""
    return Cell(text, quantity.value, interval_text=interval_text)


def cost_list(measured: Mapping[str, Quantity]) -> list[tuple[str, str, Cell]]:
    """Label, meaning and cell of each of a run's costs."""
    infos = [cost_info(name, measured[name].unit) for name in cost_order(measured)]
    return [(info.label, info.meaning, measured_cost_cell(measured, info.name)) for info in infos]


def is_noisy(row: Row, name: str) -> bool:
    """Whether a cost is a latency that was measured noisily."""
    noisy = row.costs.get(NOISY_KEY)
    return name in _MAY_BE_NOISY and noisy is not None and bool(noisy.value)


def is_all_on_other_machine(row: Row, name: str) -> bool:
    """Whether no seed of a row measured a cost on the machine that measured most rows of its table."""
    other = row.other_machines.get(name)
    return other is not None and not other.seeds
