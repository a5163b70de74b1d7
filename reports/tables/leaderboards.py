"""The tables of leaderboards: scores and costs, domains, models beside people, further metrics."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from reports import numbers
from reports.columns import (
    INTERVAL,
    RANK,
    Column,
    domain_column,
    leaderboard_columns,
    leave_one_out_column,
    more_metric_column,
    published_column,
)
from reports.tables.printed import has_published, published_cell
from reports.tables.table import Table, line_of, table_of
from results.metrics import RANKING_METRIC, base_name, metric_info, metric_order, more_order
from results.runs.leaderboard import Group, Row
from results.runs.run import SYSTEMS, Run

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

    Without `runs`, printed scores are left out.
    """
    rows = [row for group in groups for row in (*group.rows, *group.references)]
    metric = groups[0].metric
    published = None
    if runs and metric == RANKING_METRIC and any(has_published(group, runs) for group in groups):
        # The only thing beside captions of other systems that is known of them.
        published = replace(_published(runs), is_hidden_at_first=groups[0].track != SYSTEMS)
    columns = leaderboard_columns(metric, rows, published)
    tables = [table_of(group, columns, facets) for group in groups]
    with_numbers: list[int] = []
    absent: dict[str, list[str]] = {}
    for index, column in enumerate(columns):
        if column.key == metric or any(table.shows(index) for table in tables):
            with_numbers.append(index)
        elif column.key not in (RANK, INTERVAL):
            lines = [line for table in tables for line in (table.lines or table.references)]
            reasons = Counter(line.cells[index].reason or "not measured" for line in lines)
            absent.setdefault(reasons.most_common(1)[0][0], []).append(column.name)
    sentences = [f"No row has {numbers.listed(names, 'or')}: {reason.rstrip('.')}." for reason, names in absent.items()]
    return tuple(table.only(with_numbers) for table in tables), " ".join(sentences)


def _published(runs: Mapping[str, Run], domains: Mapping[str, int] | None = None) -> Column:
    """The nearest number that a paper prints, with those of `domains` before it (`published_cell`)."""
    return published_column(partial(published_cell, runs=runs, domains=domains))


def by_domain(
    group: Group, metric: str, images: Mapping[str, int], runs: Mapping[str, Run], facets: Facets
) -> Table | None:
    """One metric in each domain alone and overall, as nocaps results are given; None if no domain has it."""
    rows = (*group.rows, *group.references)
    if not any(metric in scores for row in rows for scores in row.domains.values()):
        return None
    domains = numbers.domain_order(name for row in rows for name in row.domains)
    columns = [domain_column(metric, domain, images.get(domain)) for domain in domains]
    if any(metric in row.scores for row in rows):
        columns.append(domain_column(metric, "overall", sum(images.values())))
    if metric == RANKING_METRIC and has_published(group, runs):
        columns.append(_published(runs, {name: images.get(name, 0) for name in domains}))
    return table_of(group, columns, facets)


def people(group: Group, facets: Facets) -> Titled | None:
    """The models beside `human`, scored against one reference less each; None if either lacks such scores."""

    def held_out(row: Row) -> float:
        spread = row.held_out.get(RANKING_METRIC)
        return float("-inf") if spread is None or spread.mean is None else spread.mean

    def scored_alike(row: Row) -> bool:
        return {name for name, value in row.differs.items() if value not in (None, "none")} <= _MAY_DIFFER

    humans = [row for row in group.references if row.model == "human" and row.held_out and scored_alike(row)]
    models = sorted((row for row in group.rows if row.held_out), key=held_out, reverse=True)
    if not humans or not models:
        return None
    nrefs = _references_per_image(humans[0].differs.get("nrefs") or group.signature.get("nrefs", ""), group.split)
    names = metric_order(name for row in (*humans, *models) for name in row.held_out)
    infos = [metric_info(name) for name in names]
    columns = [leave_one_out_column(info.name) for info in infos if info.held_out and not info.secondary]
    note = (
        f"Against {nrefs} {'reference' if nrefs == '1' else 'references'} per image: the mean over leaving out each of "
        "its references in turn. The captions of human are the references left out."
    )
    # What else differs is what the table is of.
    parts = [{name: value for name, value in row.differs.items() if name == "subset"} for row in humans]
    rows = [*(replace(row, differs=part) for row, part in zip(humans, parts, strict=True)), *models]
    table = Table(tuple(columns), tuple(line_of(row, group, columns, facets) for row in rows))
    return Titled("Against the same references as people", note, table)


def _references_per_image(nrefs: str, split: str) -> str:
    """What the field `nrefs` of a signature says of one split: "5", "1-7"."""
    by_split = dict(part.split("=", 1) for part in nrefs.split(",")) if "=" in nrefs else {}
    return by_split.get(split, nrefs)


def more_metrics(groups: Sequence[Group], facets: Facets) -> Titled | None:
    """What `bench run --more-metrics` measured of the rows of a group or of several of one split, None if nothing.

    Its sentences say what each metric is, and why others, that were asked for, have no value in any row.
    """
    rows = [row for group in groups for row in (*group.rows, *group.references)]
    stored = more_order(name for row in rows for name in row.more)
    measured = [name for name in stored if any(name in row.more and row.more[name].mean is not None for row in rows)]
    if not measured:
        return None
    bases = [base_name(name) for name in measured]
    absent: dict[str, list[str]] = {}
    for name in stored:
        if base_name(name) in bases:
            continue
        reason = next((row.more[name].reason for row in rows if name in row.more), None)
        absent.setdefault(reason or "no row has it", []).append(name)
    columns = tuple(more_metric_column(name, names_scorer=bases.count(base_name(name)) > 1) for name in measured)
    tables = [table_of(group, columns, facets, lambda row: bool(row.more)) for group in groups]
    sentences = [column.meaning for column in columns] + [
        f"{', '.join(names)}: {reason}" for reason, names in absent.items()
    ]
    lines = tuple(line for table in tables for line in table.lines)
    references = tuple(line for table in tables for line in table.references)
    return Titled("More metrics", "", Table(columns, lines, references, sentences=tuple(sentences)))


def absent_levels(group: Group) -> str:
    """What to type where a leaderboard does not show yet between which baseline and which level its rows lie, or ""."""
    levels = {"majority": "the baseline", "human": "the human level"}
    if _references_per_image(group.signature.get("nrefs", ""), group.split) == "1":
        del levels["human"]  # who would be scored against nobody
    if group.track == SYSTEMS:  # perhaps of references alone, without captions to choose from
        if "human" not in levels or any(row.model == "human" for row in group.references):
            return ""
        return "bench run --models captions:FILE,human --data REFERENCES shows the human level too."
    absent = [name for name in levels if name not in {row.model for row in group.references}]
    if not group.rows or not absent:
        return ""
    names = " and ".join(levels[name] for name in absent)
    return f"Not measured yet: {names}; add {','.join(absent)} to the --models of bench run."
