"""A paper's table beside measured scores, row by row, for the presets that train its rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from reports.content import numbers
from reports.content.facts import NOT_STATED
from results import Store
from results.published import PAPERS
from results.published.ablations import AblationRow, AblationTable, ablation_tables
from results.queries import fetch
from results.queries.views import Group, Row

SPLIT = "test"


def print_ablations(store: Store, preset: str, keys: Collection[str], console: Console) -> None:
    """Print every table whose rows the preset trains, each score as printed and as measured by these runs.

    Prints nothing for other presets. Scores are means over seeds; a row that was not trained has dashes.

    Args:
        keys: of the runs to show.
    """
    tables = ablation_tables(preset)
    if not tables:
        return
    groups = [group for group in fetch.leaderboard(store) if group.split == SPLIT]
    for table in tables:
        for group in groups:
            measured = {row.model: row for row in group.rows if any(key in keys for key in row.keys)}
            if any(measured.keys() & set(row.models) for row in table.rows):
                _print(table, group, measured, console)


def _print(table: AblationTable, group: Group, measured: Mapping[str, Row], console: Console) -> None:
    paper, first = PAPERS[table.paper], table.rows[0].first
    beam = NOT_STATED if first.beam is None else str(first.beam)
    console.print()
    console.print(Text(f"{table.table} of “{paper.title}” ({paper.year}): printed / measured", style="bold"))
    printed = f"printed on {first.split or NOT_STATED}, {first.objective or NOT_STATED}, beam {beam}"
    own = f"measured on {group.dataset} {group.split}, beam {group.signature.get('beam', NOT_STATED)}"
    console.print(Text(f"{printed}; {own}; no conclusion where data, features or seeds differ"))
    shown = RichTable(box=None, pad_edge=False)
    shown.add_column("row", overflow="fold")
    shown.add_column("seeds", justify="right")
    for metric in table.metrics:
        shown.add_column(metric, justify="right", overflow="fold")
    for row in table.rows:
        for name in [model for model in row.models if model in measured] or [""]:
            shown.add_row(*_cells(row, table, measured.get(name)))
    console.print(shown)


def _cells(row: AblationRow, table: AblationTable, own: Row | None) -> list[Text]:
    name = Text(row.name if own is None else f"{row.name} [{own.model}]")
    cells = [name, Text(numbers.DASH if own is None else str(len(own.seeds)))]
    for metric in table.metrics:
        printed = f"{row.scores[metric].value:.1f}" if metric in row.scores else numbers.DASH
        found = own.scores.get(metric) if own is not None else None
        mean = None if found is None else found.mean
        cells.append(Text(f"{printed} / {numbers.DASH if mean is None else numbers.percent(mean)}"))
    return cells
