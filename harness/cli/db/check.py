"""`bench db check`: read every row of a results database, and list what is damaged."""

from __future__ import annotations

import sys

import typer

from harness.cli.options import DatabaseOption, WorkspaceOption
from harness.utils.workspace import DEFAULT, Workspace


def check(workspace: WorkspaceOption = DEFAULT, db: DatabaseOption = None) -> None:
    """Read every row of every table, and list what is damaged; the exit code is 1 where anything is.

    A SQLite file is checked for broken pages, and for rows that refer to missing ones, as well.
    """
    from results.store.check import HINT, problems
    from results.store.revisions import ensure_complete
    from results.store.store import Store

    with Store(Workspace(workspace, db).database, read_only=True) as store, store.reading() as connection:
        ensure_complete(connection, store.url)
        found = list(problems(connection))
    for problem in found:
        typer.echo(problem)
    if found:
        typer.echo(HINT)
        sys.exit(1)
    typer.echo("every row was read: nothing is damaged")
