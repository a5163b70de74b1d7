"""The columns of leaderboards, chosen here once for every format, and how their cells are read from a row.

A further column is one more `Column` in `leaderboards`; a further cost needs its words in `numbers.py` alone.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from reports import numbers
from reports.numbers import DASH
from reports.tables.printed import has_published, published_cell
from reports.tables.table import Cell, Column, Table, line_of, noted, table_of
from results.costs import cost_info, cost_order, exported_costs, leaderboard_costs
from results.metrics import (
    BETTER,
    RANKING_METRIC,
    MetricInfo,
    base_name,
    depends_on,
    metric_info,
    metric_names,
    metric_order,
    more_metric_info,
    more_order,
)
from results.records import Quantity
from results.runs.leaderboard import Group, Row
from results.runs.run import SYSTEMS, Run
from results.runs.spreads import Spread
from results.runs.standings import ALONE, NOT_ABOVE, STILL_LEARNING, FloorTest, RankInterval
from results.statistics.architecture import AS_GIVEN, NEEDS_SEEDS, OVER_IMAGES

PLACE, INTERVAL, PUBLISHED = "place", "interval", "published"
NOISY = "latency_noisy"
_MARKED_AS_NOISY = ("latency_median", "latency_throughput")
_NOISE = "noisy: timings of the same work spread or drift, or other processes kept the machine busy"
_MAY_DIFFER = {"nrefs", "heldout", "track"}

Facets = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Titled:
    """A table beside the leaderboard, with its title and what it is."""

    title: str
    note: str
    table: Table


def leaderboards(
    groups: Sequence[Group], runs: Mapping[str, Run] | None, facets: Facets
) -> tuple[tuple[Table, ...], str]:
    """The tables of a group or of several that share their columns, and sentences on columns without any number.

    The place comes first, then the metric that ranks, the other scores, and costs. Without `runs`, printed scores are
    left out.
    """
    rows = [row for group in groups for row in (*group.rows, *group.references)]
    main = groups[0].metric
    stored = {name for row in rows for name in row.scores} | {main}
    scores = sorted(metric_order(stored), key=lambda name: metric_info(name).secondary)
    measured = {name for row in rows for name in row.costs}
    columns = [_PLACE, score_column(main), _INTERVAL]
    if runs and main == RANKING_METRIC and any(has_published(each, runs) for each in groups):
        # The only thing beside captions of other systems that is known of them.
        columns.append(replace(published_column(runs), more=groups[0].track != SYSTEMS))
    columns += [score_column(name) for name in scores if name != main]
    columns += [cost_column(cost.name, rows) for cost in leaderboard_costs(measured)]
    whole = [table_of(group, columns, facets) for group in groups]
    kept = [at for at in range(len(columns)) if columns[at].key == main or any(table.shows(at) for table in whole)]
    absent: dict[str, list[str]] = {}
    for at, column in enumerate(columns):
        if at not in kept and column.key not in (PLACE, INTERVAL):
            lines = [line for table in whole for line in (table.lines or table.references)]
            reasons = Counter(line.cells[at].reason or "not measured" for line in lines)
            absent.setdefault(reasons.most_common(1)[0][0], []).append(column.name)
    said = (f"No row has {numbers.listed(names, 'or')}: {reason.rstrip('.')}." for reason, names in absent.items())
    return tuple(table.only(kept) for table in whole), " ".join(said)


def default_columns(metric: str) -> list[str]:
    """The names of the columns that exports to Markdown and LaTeX have without `--columns`, in their order."""
    metrics = [name for name in metric_order(metric_names()) if not metric_info(name).secondary]
    costs = [cost.label for cost in exported_costs()]
    return list(dict.fromkeys((metric, _INTERVAL.name, _PLACE.name, *metrics, *costs)))


def by_domain(
    group: Group, metric: str, images: Mapping[str, int], runs: Mapping[str, Run], facets: Facets
) -> Table | None:
    """One metric in each domain alone and overall, as nocaps results are given; None where no domain has it."""
    rows = (*group.rows, *group.references)
    if not any(metric in scores for row in rows for scores in row.domains.values()):
        return None
    domains = numbers.domain_order(name for row in rows for name in row.domains)
    counts = {**images, "overall": sum(images.values())}

    def column(domain: str) -> Column:
        def read(row: Row, _: Group) -> Cell:
            return score_cell((row.scores if domain == "overall" else row.domains.get(domain, {})).get(metric))

        whose = "of the whole split" if domain == "overall" else f"of the {domain} images"
        name = f"{domain}, {counts[domain]:,}" if counts.get(domain) else domain
        return Column(name, read, f"{metric} {whose}, times 100", name)

    columns = [column(name) for name in domains]
    columns += [column("overall")] if any(metric in row.scores for row in rows) else []
    if metric == RANKING_METRIC and has_published(group, runs):
        columns.append(published_column(runs, {name: images.get(name, 0) for name in domains}))
    return table_of(group, columns, facets)


def people(group: Group, facets: Facets) -> Titled | None:
    """The models beside `human`, scored against one reference less each; None where either lacks such scores."""

    def held_out(row: Row) -> float:
        spread = row.held_out.get(RANKING_METRIC)
        return float("-inf") if spread is None or spread.mean is None else spread.mean

    def scored_alike(row: Row) -> bool:
        return {name for name, own in row.differs.items() if own not in (None, "none")} <= _MAY_DIFFER

    humans = [row for row in group.references if row.model == "human" and row.held_out and scored_alike(row)]
    models = sorted((row for row in group.rows if row.held_out), key=held_out, reverse=True)
    if not humans or not models:
        return None
    nrefs = _references_per_image(humans[0].differs.get("nrefs") or group.signature.get("nrefs", ""), group.split)
    columns = [
        replace(
            score_column(name, lambda row: row.held_out),
            meaning=f"{name} against one reference fewer, times 100; more is better",
            barred=name == RANKING_METRIC,
        )
        for name in metric_order(name for row in (*humans, *models) for name in row.held_out)
        if metric_info(name).held_out and not metric_info(name).secondary
    ]
    note = (
        f"Against {nrefs} {'reference' if nrefs == '1' else 'references'} per image: the mean over leaving out each of "
        "its references in turn. The captions of human are the references left out."
    )
    # What else differs is what the table is of.
    parts = [{name: value for name, value in row.differs.items() if name == "subset"} for row in humans]
    shown = [*(replace(row, differs=part) for row, part in zip(humans, parts, strict=True)), *models]
    table = Table(tuple(columns), tuple(line_of(row, group, columns, facets) for row in shown))
    return Titled("Against the same references as people", note, table)


def _references_per_image(nrefs: str, split: str) -> str:
    """What the field `nrefs` of a signature says of one split: "5", "1-7"."""
    by_split = dict(part.split("=", 1) for part in nrefs.split(",")) if "=" in nrefs else {}
    return by_split.get(split, nrefs)


def more_metrics(groups: Sequence[Group], facets: Facets) -> Titled | None:
    """What `bench run --more-metrics` measured of the rows of a group or of several of one split, None where nothing.

    Its sentences say what each metric is, and why others, that were asked for, have no value in any row.
    """
    rows = [row for group in groups for row in (*group.rows, *group.references)]
    stored = more_order(name for row in rows for name in row.more)
    shown = [name for name in stored if any(name in row.more and row.more[name].mean is not None for row in rows)]
    if not shown:
        return None
    bases = [base_name(name) for name in shown]
    absent: dict[str, list[str]] = {}
    for name in (each for each in stored if base_name(each) not in bases):
        reason = next((row.more[name].reason for row in rows if name in row.more), None)
        absent.setdefault(reason or "no row has it", []).append(name)
    columns = tuple(_more_column(name, alone=bases.count(base_name(name)) == 1) for name in shown)
    whole = [table_of(group, columns, facets, lambda row: bool(row.more)) for group in groups]
    sentences = [column.meaning for column in columns] + [f"{', '.join(of)}: {why}" for why, of in absent.items()]
    lines = tuple(line for each in whole for line in each.lines)
    references = tuple(line for each in whole for line in each.references)
    return Titled("More metrics", "", Table(columns, lines, references, sentences=tuple(sentences)))


def absent_levels(group: Group) -> str:
    """What to type where a leaderboard does not show yet between which floor and which level its rows lie, or ""."""
    levels = {"majority": "the floor", "human": "the human level"}
    if _references_per_image(group.signature.get("nrefs", ""), group.split) == "1":
        del levels["human"]  # who would be scored against nobody
    if group.track == SYSTEMS:  # perhaps of references alone, without captions to choose from
        if "human" not in levels or any(row.model == "human" for row in group.references):
            return ""
        return "bench run --models captions:FILE,human --data REFERENCES shows the human level too."
    absent = [name for name in levels if name not in {row.model for row in group.references}]
    if not group.rows or not absent:
        return ""
    what = " and ".join(levels[name] for name in absent)
    return f"Not measured yet: {what}; add {','.join(absent)} to the --models of bench run."


def score_column(name: str, of: Callable[[Row], Mapping[str, Spread]] = lambda row: row.scores) -> Column:
    info = metric_info(name)
    return Column(
        name,
        lambda row, _: score_cell(of(row).get(name)),
        f"{name}, times 100; {_direction(info)}",
        info.short_heading,
        descending=info.better != "lower",
        key=name,
        more=info.secondary,
        priority=info.priority,
    )


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
    )


def published_column(runs: Mapping[str, Run], domains: Mapping[str, int] | None = None) -> Column:
    """The nearest number that a paper prints, with those of `domains` before it (`published_cell`)."""
    return Column(
        "Published",
        lambda row, group: published_cell(row, group, runs, domains),
        f"{RANKING_METRIC} as a paper prints it, not ranked: see its note",
        "Pub.",
        sortable=False,
        key=PUBLISHED,
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
    return Cell(show(value), value, deviation, interval, spread.reason, spread.reason or "", bounds)


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


def place_cell(row: Row, group: Group) -> Cell:
    """The row's place on the group's metric, and those on the others for tables that are sorted by these."""
    rank, alone = row.ranks.get(group.metric), len(group.rows) < 2
    shown = rank_cell(rank if not alone or (rank and rank.not_above) else None)
    others = {} if alone else {name: rank_cell(each) for name, each in row.ranks.items()}
    return replace(shown, by_metric=others)


def rank_cell(rank: RankInterval | None) -> Cell:
    """A place as "1–3"; where there is none, why in a few words, with a note."""
    if rank is None:
        return Cell("")
    if rank.is_floor:
        return Cell("floor", reason="what other rows have to be significantly above")
    if rank.not_above:
        return noted(NOT_ABOVE, f"{NOT_ABOVE}: {_not_above(rank.not_above)}")
    if rank.best is None or rank.worst is None:
        reason = rank.reason or ""
        if reason == ALONE:
            return Cell("", reason=reason)
        said = {
            NEEDS_SEEDS: f"{NEEDS_SEEDS} (--seeds 3)",
            STILL_LEARNING: f"{STILL_LEARNING} (--place-unfinished places it)",
        }
        return noted(reason.partition(":")[0], said.get(reason, reason))
    p = rank.p_against_best
    reason = "the best row" if p is None else f"against the best row, p = {p:.2g}"
    text = str(rank.best) if rank.best == rank.worst else f"{rank.best}–{rank.worst}"
    return Cell(text, rank.best + rank.worst / 1000, reason=reason, ranks=(rank.best, rank.worst))


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


def is_noise(row: Row, name: str) -> bool:
    noisy = row.costs.get(NOISY)
    return name in _MARKED_AS_NOISY and noisy is not None and bool(noisy.value)


def is_of_other_machine(row: Row, name: str) -> bool:
    other = row.other_machines.get(name)
    return other is not None and not other.seeds


_PLACE = Column(
    "Place",
    place_cell,
    "the ranks that the differences between rows allow; see Method",
    "Place",
    descending=False,
    key=PLACE,
    more=False,
    priority=0,
)
_INTERVAL = Column(
    "95 % interval",
    interval_cell,
    "of the mean over seeds and images; see Method",
    "95 %",
    sortable=False,
    key=INTERVAL,
    priority=1,
)


def _not_above(tests: Sequence[FloorTest]) -> str:
    """How far a row is from floors that it is not above, as "not significantly better than majority (p = 0.4)"."""
    by_verdict: dict[str, list[str]] = {}
    for test in tests:
        verdict = "significantly worse than" if test.estimate.is_significant else "not significantly better than"
        by_verdict.setdefault(verdict, []).append(f"{test.floor} (p = {test.estimate.p:.2g})")
    return ", ".join(f"{verdict} {' and '.join(floors)}" for verdict, floors in by_verdict.items())


def _more_column(name: str, *, alone: bool) -> Column:
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


def cost_list(measured: Mapping[str, Quantity]) -> list[tuple[str, str, Cell]]:
    """A run's costs as label, meaning and number; the reason of a missing one stands beside it."""
    infos = [cost_info(name, measured[name].unit) for name in cost_order(measured)]
    return [(info.label, info.meaning, quantity_cell(measured, info.name)) for info in infos]
