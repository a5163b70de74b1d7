"""`bench db upgrade`: bring an older release's database up to this one."""

from __future__ import annotations

import typer

from harness.cli.options import DatabaseOption, WorkspaceOption
from harness.utils.workspace import DEFAULT, Workspace


def upgrade(workspace: WorkspaceOption = DEFAULT, db: DatabaseOption = None) -> None:
    """Bring an older release's database up to this one: wholly or not at all, and no result is lost."""
    from results.store.revisions import release
    from results.store.revisions import upgrade as upgrade_database
    from results.store.schema import RELEASE

    place = Workspace(workspace, db).database
    found = upgrade_database(place)
    if found == RELEASE:
        typer.echo(f"nothing to do: the tables are of captionbench {release(found)} already")
    else:
        typer.echo(f"upgraded from captionbench {release(found)} to {release(RELEASE)}")
