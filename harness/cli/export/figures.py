"""`bench export figures`: the report's plots, for a page or a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.inputs import open_results
from harness.cli.options import DatabaseOption, WorkspaceOption
from harness.cli.output import OutFolder, check_out, write_errors
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT

_EXAMPLES = """**Examples**

    bench export figures --out figures

    bench export figures --db baseline.sqlite --out paper/figures
"""


def register(group: typer.Typer) -> None:
    """Add the command to `bench export`."""
    group.command("figures", epilog=_EXAMPLES)(figures)


def figures(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to write to; files of other names stay."), OutFolder(rb"<svg ")
    ],
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
) -> None:
    """Write the report's trade-offs and learning curves, one SVG file a plot."""
    from harness.utils.atomic import write_text
    from reports.html.report import figures as drawn_figures

    with open_results(workspace, db) as store:
        drawn = drawn_figures(store)
    if not drawn:
        raise BenchError("there is nothing to draw yet: no training has epochs", "type: bench run --models all")
    for name in drawn:
        check_out(out / name)
    with write_errors(out):
        for name, svg in drawn.items():
            write_text(out / name, svg)
            typer.echo(out / name)
