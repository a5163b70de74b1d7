"""What several pages show alike, worked out from the store's views so that templates only lay it out."""

from __future__ import annotations

from collections.abc import Sequence

from reports.tables import numbers, table_values
from reports.tables.leaderboard_page import ONE_MODEL, Board
from reports.tables.table_values import Notes
from reports.tables.tables import Heading, Line, Table
from results.runs.leaderboard import Group
from results.runs.run import DatasetInfo, Run

COLOURS = 8
SHAPES = 3


def summary(groups: Sequence[Group], failures: Sequence[Run], datasets: Sequence[DatasetInfo]) -> str:
    """The report in one sentence."""
    models = {row.model for group in groups for row in group.rows}
    runs = {key for group in groups for row in (*group.rows, *group.references) for key in row.keys}
    if not models:
        return "No model has finished yet."
    references = {row.model for group in groups for row in group.references}
    beside = f" and {_many(len(references), 'reference')}" if references else ""
    text = f"{_many(len(models), 'model')}{beside} on {_listed(sorted({group.dataset for group in groups}))}, "
    text += f"{_many(len(runs), 'finished run')}"
    for status in ("failed", "skipped", "interrupted", "running", "planned"):
        number = sum(failure.state == status for failure in failures)
        text += f", {number} {status}" if number else ""
    sizes = next((dataset.split_sizes for dataset in datasets if dataset.name == groups[0].dataset), {})
    trained = f" Trained on {sizes['train']:,} images." if len(datasets) == 1 and "train" in sizes else ""
    return f"{text}.{trained}"


def facets(shown: Sequence[Board]) -> dict[str, list[str]]:
    """By what the leaderboard's rows may be chosen, with the values that occur; facets of one value are left out."""
    found: dict[str, set[str]] = {"family": set(), "data": set(), "objective": set()}
    for board in shown:
        found["data"].add(board.data)
        for line in board.table.all_lines:
            for name, value in line.facets.items():
                found[name].add(value)
    last = ONE_MODEL  # the rest comes last
    ordered = {name: sorted(values, key=lambda value: (value == last, value)) for name, values in found.items()}
    return {name: values for name, values in ordered.items() if len(values) > 1}


def score_tables(run: Run) -> list[tuple[str, Table]]:
    """A run's scores, one table a split, one line a domain."""
    found = []
    for split, domains in run.scores.items():
        notes = Notes()
        metrics = numbers.metric_order(name for scores in domains.values() for name in scores)
        lines = tuple(
            Line(
                domain, "", (), tuple(table_values.quantity_value(domains[domain].get(name), notes) for name in metrics)
            )
            for domain in numbers.domain_order(domains)
        )
        headings = tuple(Heading(name, name, f"{name}, times 100") for name in metrics)
        found.append((split, Table(headings, lines, (), notes)))
    return found


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
