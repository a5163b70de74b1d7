"""`bench db`: what a results database holds, bringing it up to date, and bringing another one's runs in."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness.cli.options import DatabaseOption, WorkspaceOption
from harness.utils.workspace import DEFAULT, Workspace

_EXAMPLES = """
Examples:

  bench db info

  bench db upgrade --workspace runs/flickr8k

  bench db merge other-machine/bench.sqlite

  BENCH_DB=postgresql://me@host/captions bench db info
"""


def register(app: typer.Typer) -> None:
    """Add `bench db` and its subcommands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    group.command("info", epilog=_EXAMPLES)(info)
    group.command("upgrade", epilog=_EXAMPLES)(upgrade)
    group.command("merge", epilog=_EXAMPLES)(merge)
    app.add_typer(group, name="db", help="Look into the results database, upgrade it, or merge another one into it.")


def info(workspace: WorkspaceOption = DEFAULT, db: DatabaseOption = None) -> None:
    """Show where the database lies, of which release it is, and how much it holds."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from results.db.information import describe

    found = describe(Workspace(workspace, db).database)
    console = Console(highlight=False)
    console.print(f"[bold]{escape(found.name)}[/]: {found.backend}, tables of captionbench {found.release}")
    if found.upgrade:
        console.print(f"older than this captionbench; type: {escape(found.upgrade)}", soft_wrap=True)
    table = Table("Table", "Rows", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for name, rows in found.rows.items():
        table.add_row(name, f"{rows:,}")
    console.print(table)
    statuses = ", ".join(f"{count} {status}" for status, count in found.cells.items())
    console.print(f"runs: {statuses or 'none yet'}")
    if found.bytes is not None:
        console.print(f"size: {found.bytes / 1e6:,.1f} MB")


def upgrade(workspace: WorkspaceOption = DEFAULT, db: DatabaseOption = None) -> None:
    """Bring an older release's database up to this one: wholly or not at all, and no result is lost."""
    from results.db.revisions import release
    from results.db.schema import RELEASE
    from results.db.upgrade import upgrade as upgrade_database

    place = Workspace(workspace, db).database
    found = upgrade_database(place)
    if found == RELEASE:
        typer.echo(f"nothing to do: the tables are of captionbench {release(found)} already")
    else:
        typer.echo(f"upgraded from captionbench {release(found)} to {release(RELEASE)}")


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

    from results.db.merge import merge as merge_database
    from results.db.store import Store

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
        sys.exit(1)
