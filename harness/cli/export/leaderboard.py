"""`bench export leaderboard`: the leaderboard's tables, to paste or for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.inputs import open_results
from harness.cli.options import (
    DatabaseOption,
    PlaceUnfinishedOption,
    RankingMetricOption,
    WorkspaceOption,
    refuse_empty,
)
from harness.cli.output import OutFile, deliver
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT

if TYPE_CHECKING:
    from results.store.store import Store

_EXAMPLES = """**Examples**

    bench export leaderboard

    bench export leaderboard --format latex --columns CIDEr-D,place,parameters --out leaderboard.tex

    bench export leaderboard --format csv --db postgresql://me@server/captions
"""


class Format(StrEnum):
    """How the leaderboard is written."""

    markdown = "markdown"
    csv = "csv"
    latex = "latex"
    json = "json"


def register(group: typer.Typer) -> None:
    """Add the command to `bench export`."""
    group.command("leaderboard", epilog=_EXAMPLES)(leaderboard)


def leaderboard(
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
    format: Annotated[
        Format, typer.Option("--format", "-f", help="latex needs booktabs, threeparttable.")
    ] = Format.markdown,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            callback=refuse_empty,
            help="Of markdown and latex: columns by name, such as CIDEr-D,place,parameters; or all.",
        ),
    ] = None,
    metric: RankingMetricOption = "CIDEr-D",
    place_unfinished: PlaceUnfinishedOption = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; without it, print."),
        OutFile(rb'## |No run has finished|group,dataset,|% needs \\usepackage|\[\s*(\{\s*"dataset":|\]$)'),
    ] = None,
) -> None:
    """Write the leaderboard's tables: markdown and latex to paste, csv and json for other programs.

    csv is `results.open(WORKSPACE).leaderboard()`: scores times 100, and units in the names of columns. json has every
    reason and condition besides, scores as fractions, and control pairs in points.
    """
    if columns is not None and format in {Format.csv, Format.json}:
        raise BenchError(
            f"--columns is not used by --format {format}, which has every column", "leave it out, or write latex"
        )
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    with open_results(workspace, db) as store:
        text = _written(store, format, names, metric, place_unfinished=place_unfinished)
    deliver(text, out)
    if out is not None:
        typer.echo(out)


def _written(
    store: Store, format: Format, columns: Sequence[str] | None, metric: str, *, place_unfinished: bool
) -> str:
    from reports.tables.contents import Contents
    from reports.text.data import as_csv, as_json
    from reports.text.markup import DEFAULT, latex, markdown
    from results.frames.leaderboard import leaderboard_frame

    if format is Format.csv:
        return as_csv(leaderboard_frame(store, None, metric, place_unfinished=place_unfinished))
    contents = Contents.read(store, metric, place_unfinished=place_unfinished)
    if format is Format.json:
        return as_json(contents)
    write = markdown if format is Format.markdown else latex
    return write(contents, DEFAULT if columns is None else columns)
