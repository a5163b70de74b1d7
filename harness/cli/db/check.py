"""`bench db check`: read every value of a results database, list what is damaged, and move it out of the way."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import DatabaseOption, WorkspaceOption
from harness.cli.output import write_errors
from harness.utils.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from results.store.damage import LeftOut


_PLURALS = {"run": "runs", "data set": "data sets", "image": "images"}


def check(
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
    aside: Annotated[
        bool, typer.Option("--set-aside", help="Move what is damaged into a file beside the database; nothing is lost.")
    ] = False,
) -> None:
    """Read every value of every row, and list what is damaged; the exit code is 1 where anything is.

    With --set-aside, runs with damaged rows go with all their rows into bench.damaged-DATE.sqlite: beside the database,
    or into the workspace where a server has it. The next `bench run` then makes them anew.
    """
    from results.store.engine import sqlite_file
    from results.store.scan import scan
    from results.store.set_aside import set_aside
    from results.store.store import Store
    from results.store.structure import ensure_complete

    place = Workspace(workspace, db)
    with Store(place.database, create=False, read_only=not aside) as store:
        with store.reading() as connection:
            ensure_complete(connection, store.url)
        file = sqlite_file(store.url)
        if aside:
            folder = place.root if file is None else Path(file).parent
            if file is None:
                place.create()
            with write_errors(folder, "the folder"):
                found, moved = set_aside(store, folder)
        else:
            with store.reading() as connection:
                found, moved = scan(connection), None
    for damage in found.left_out.damage:
        typer.echo(f"{damage}")
    rows = f"{sum(found.rows.values()):,} rows of {len(found.rows)} tables"
    if not found.left_out:
        typer.echo(f"{rows}: nothing is damaged")
        return
    owners = ", ".join(f"{count} {kind}" for kind, count in _counts(found.left_out).items())
    if moved is None:
        typer.echo(f"{rows}; damaged: {owners}. Other commands leave these out; --set-aside moves them out of the way.")
        sys.exit(1)
    typer.echo(
        f"{rows}; set aside in {moved}: {owners}. `bench run` makes runs anew; "
        f"once the file is repaired, `bench db merge {moved}` brings them back."
    )


def _counts(left_out: LeftOut) -> dict[str, int]:
    """How many of each kind are left out, runs of damaged data sets among them."""
    kinds = [owner.kind for owner in left_out.owners if owner.kind != "run"]
    counts = {"run": len(left_out.runs)} if left_out.runs else {}
    counts |= {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    return {_PLURALS.get(kind, kind) if count > 1 else kind: count for kind, count in counts.items()}
