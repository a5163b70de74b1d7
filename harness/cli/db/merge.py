"""`bench db merge`: bring the runs of other databases in."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness.cli.inputs import warn
from harness.cli.options import DatabaseOption, WorkspaceOption
from harness.utils.workspace import DEFAULT, Workspace


def merge(
    others: Annotated[list[str], typer.Argument(metavar="OTHER...", help="SQLite files or URLs; they are only read.")],
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
) -> None:
    """Bring the runs of other databases in, by run key; again changes nothing.

    A finished run is never replaced. Where both databases have finished a run with different results, this one's stay,
    the difference is printed, and the exit code is 1.
    """
    from rich.console import Console
    from rich.markup import escape

    from results.store.merge import merge as merge_database
    from results.store.store import Store

    place = Workspace(workspace, db)
    if db is None:
        place.create()
    console = Console(highlight=False)
    conflicts = 0
    with Store(place.database) as store:
        for other in others:
            merged = merge_database(store, other)
            console.print(
                f"{escape(merged.source)}: {len(merged.added)} runs added, {len(merged.completed)} completed, "
                f"{len(merged.kept)} here already; {len(merged.datasets)} data sets added or completed",
                soft_wrap=True,
            )
            for key, difference in merged.conflicts.items():
                console.print(f"  [yellow]kept this database's[/] {escape(key)}: {escape(difference)}", soft_wrap=True)
            conflicts += len(merged.conflicts)
    if conflicts:
        runs = "run has" if conflicts == 1 else "runs have"
        warn(
            f"{conflicts} {runs} finished on both sides with different results under one key: the other's code, "
            "packages or machine differ; this database's stay",
            "keep the other beside it, and compare the two as workspaces: bench compare HERE THERE",
        )
        sys.exit(1)
