"""`bench db info`: where a results database is, of which release, and how much it holds."""

from __future__ import annotations

import sys

from harness.cli.options import DatabaseOption, WorkspaceOption
from harness.utils.workspace import DEFAULT, Workspace


def info(workspace: WorkspaceOption = DEFAULT, db: DatabaseOption = None) -> None:
    """Show where the database lies, of which release it is, and how much it holds.

    The exit code is 1 where a table or a column is missing.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from results.store.revisions import RESTORE, describe

    found = describe(Workspace(workspace, db).database)
    console = Console(highlight=False)
    console.print(f"[bold]{escape(found.name)}[/]: {found.backend}, tables of captionbench {found.release}")
    if found.upgrade:
        console.print(f"older than this captionbench; type: {escape(found.upgrade)}", soft_wrap=True)
    if found.missing:
        console.print(f"[bold red]damaged:[/] it has no {escape(', no '.join(found.missing))}", soft_wrap=True)
        console.print(RESTORE, soft_wrap=True)
    table = Table("Table", "Rows", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for name, rows in found.rows.items():
        table.add_row(name, f"{rows:,}")
    console.print(table)
    statuses = ", ".join(f"{count} {status}" for status, count in found.runs.items())
    console.print(f"runs: {statuses or 'none yet'}")
    if found.bytes is not None:
        console.print(f"size: {found.bytes / 1e6:,.1f} MB")
    if found.missing:
        sys.exit(1)
