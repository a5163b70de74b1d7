"""The page of scores by domain, as nocaps results are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reports.tables import tables
from reports.tables.leaderboard_page import apart, by_size, dressed, group_title
from reports.tables.printed import PUBLISHED, has_published, published_cell
from reports.tables.tables import Heading, Line, Table
from results.runs.leaderboard import Group, Row
from results.runs.run import DatasetInfo, Run

OTHER_CIDER_D = ("CIDEr-D (df:domain)", "CIDEr-D (df:split)")
"""CIDEr-D of domains with the document frequencies that "CIDEr-D" is not computed with, as the store names it."""


@dataclass(frozen=True, slots=True)
class DomainSection:
    """One group's scores by domain, a table a metric."""

    id: str
    title: str
    track: str
    apart: str
    tables: dict[str, Table]
    absent: tuple[str, ...]


def domain_sections(
    groups: Sequence[Group],
    datasets: Sequence[DatasetInfo],
    runs: Mapping[str, Run],
    counts: Mapping[tuple[str, str], Mapping[str, int]],
) -> list[DomainSection]:
    """The groups that have domains, those of most rows first.

    Args:
        counts: images of each domain, by data set's fingerprint and split.
    """
    found: list[DomainSection] = []
    for group in by_size(groups):
        images = counts.get((group.fingerprint, group.split), {})
        shown = {metric: _table(group, metric, images, runs) for metric in ("CIDEr-D", *OTHER_CIDER_D, "SPICE")}
        made = {metric: table for metric, table in shown.items() if table is not None}
        empty = {metric: table for metric, table in made.items() if not _is_filled(table)}
        if made:
            title, id = group_title(group, datasets), f"domains-{len(found) + 1}"
            filled = {metric: table for metric, table in made.items() if metric not in empty}
            absent = tuple(f"No row has {metric}: {'; '.join(table.notes.marks)}." for metric, table in empty.items())
            found.append(DomainSection(id, title, group.track, apart(group), filled, absent))
    return found


def _is_filled(table: Table) -> bool:
    """Whether any row has a number."""
    return any(cell.value is not None for line in table.all_lines for cell in line.cells)


def _table(group: Group, metric: str, images: Mapping[str, int], runs: Mapping[str, Run]) -> Table | None:
    rows = (*group.rows, *group.references)
    if not any(metric in scores for row in rows for scores in row.domains.values()):
        return None
    table = tables.by_domain(group, metric)
    if table is None:
        return None
    total = sum(images.values())
    headings = [_counted(heading, {**images, "overall": total}) for heading in table.headings]
    lines, references = dressed(table.lines, runs), dressed(table.references, runs)
    if metric != "CIDEr-D" or not has_published(group):
        return replace(table, headings=tuple(headings), lines=lines, references=references)

    domains = {heading.name: images.get(heading.name, 0) for heading in table.headings if heading.name != "overall"}

    def beside(lines: Sequence[Line], rows: Sequence[Row]) -> tuple[Line, ...]:
        return tuple(
            replace(line, cells=(*line.cells, published_cell(row, group, runs, table.notes, domains)))
            for line, row in zip(lines, rows, strict=True)
        )

    return replace(
        table,
        headings=(*headings, PUBLISHED),
        lines=beside(lines, group.rows),
        references=beside(references, group.references),
    )


def _counted(heading: Heading, images: Mapping[str, int]) -> Heading:
    """The heading with how many images its domain has, where that is known."""
    count = images.get(heading.name)
    return replace(heading, name=f"{heading.name}, {count:,}") if count else heading
