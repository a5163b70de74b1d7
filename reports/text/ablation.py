"""A paper's table beside measured scores, row by row, for the presets that train its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from rich.console import Console
from rich.text import Text

from reports.tables import numbers
from reports.tables.facts import NOT_STATED
from reports.tables.tables import SHORT
from results import Store
from results.published import PAPERS
from results.published.ablations import AblationTable, ablation_tables
from results.runs.leaderboard import Group, Row, leaderboard

SPLIT = "test"


def print_ablations(store: Store, preset: str, keys: Collection[str], console: Console) -> None:
    """Print every table whose rows the preset trains, each score as printed and as measured by these runs.

    Prints nothing for other presets. Measured scores are means over seeds; a row that was not trained has none.

    Args:
        keys: of the runs to show.
    """
    tables = ablation_tables(preset)
    if not tables:
        return
    groups = [group for group in leaderboard(store) if group.split == SPLIT]
    for table in tables:
        for group in groups:
            measured = {row.model: row for row in group.rows if any(key in keys for key in row.keys)}
            if any(measured.keys() & set(row.models) for row in table.rows):
                _print(table, group, measured, console)


def _print(table: AblationTable, group: Group, measured: Mapping[str, Row], console: Console) -> None:
    paper, first = PAPERS[table.paper], table.rows[0].first
    beam = NOT_STATED if first.beam is None else str(first.beam)
    console.print()
    console.print(Text(f"{table.table} of “{paper.title}” ({paper.year}): printed and measured", style="bold"))
    printed = f"printed on {first.split or NOT_STATED}, {first.objective or NOT_STATED}, beam {beam}"
    own = f"measured on {group.dataset} {group.split}, beam {group.signature.get('beam', NOT_STATED)}"
    console.print(Text(f"{printed}; {own}; no conclusion where data, features or seeds differ"))
    console.print(Text(_line("", (SHORT[metric] for metric in table.metrics)), style="dim"))
    for row in table.rows:
        scores = [
            f"{row.scores[metric].value:.1f}" if metric in row.scores else numbers.DASH for metric in table.metrics
        ]
        trained: list[Row | None] = [measured[model] for model in row.models if model in measured]
        # The names of rows are longer than any column: they have lines of their own.
        for own_row in trained or [None]:
            console.print(Text(row.name if own_row is None else f"{row.name} [{own_row.model}]"))
            console.print(Text(_line("printed", scores)))
            if own_row is not None:
                label = f"measured, {len(own_row.seeds)} seed{'s' if len(own_row.seeds) > 1 else ''}"
                console.print(Text(_line(label, (_mean(own_row, metric) for metric in table.metrics))))


def _mean(row: Row, metric: str) -> str:
    score = row.scores.get(metric)
    return numbers.DASH if score is None or score.mean is None else numbers.percent(score.mean)


def _line(label: str, values: Iterable[str]) -> str:
    return f"  {label:<20}" + "".join(f"{value:>7}" for value in values)
