"""`bench db`: look into a results database, check and upgrade it, merge another one's runs into it, publish a copy."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.inputs import doing, warn
from harness.cli.options import DatabaseOption, WorkspaceOption
from harness.cli.output import OutFile, echo, format_table, write_errors
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace

EXAMPLES = """
bench db info
bench db check
bench db upgrade --workspace runs/flickr8k
bench db merge other-machine/bench.sqlite
bench db publish flickr8k.sqlite
BENCH_DB=postgresql://me@host/captions bench db info
"""


def info(workspace: WorkspaceOption = DEFAULT, db: DatabaseOption = None) -> None:
    """Show where the database lies, of which release it is, and how much it holds."""
    from results.store.revisions import describe

    found = describe(Workspace(workspace, db).database)
    echo(f"{found.name}: {found.backend}, tables of captionbench {found.release}")
    if found.upgrade:
        echo(f"older than this captionbench; type: {found.upgrade}")
    rows = [(name, f"{count:,}") for name, count in found.rows.items()]
    echo(format_table(("Table", "Rows"), rows, "table"), nl=False)
    statuses = ", ".join(f"{count} {status}" for status, count in found.runs.items())
    echo(f"runs: {statuses or 'none yet'}")
    if found.bytes is not None:
        echo(f"size: {found.bytes / 1e6:,.1f} MB")


def check(workspace: WorkspaceOption = DEFAULT, db: DatabaseOption = None) -> None:
    """Read every row of every table, and list what is damaged; the exit code is 1 where anything is.

    A SQLite file is checked for broken pages, and for rows that refer to missing ones, as well.
    """
    from results.store.check import HINT, problems
    from results.store.store import Store

    database = Workspace(workspace, db).database
    with Store(database, read_only=True) as store, store.reading() as connection, doing("Reading every row"):
        found = list(problems(connection))
    for problem in found:
        echo(problem)
    if found:
        echo(HINT)
        sys.exit(1)
    echo("every row was read: nothing is damaged")


def upgrade(workspace: WorkspaceOption = DEFAULT, db: DatabaseOption = None) -> None:
    """Bring an older release's database up to this one: wholly or not at all, and no result is lost."""
    from results.store.revisions import release
    from results.store.revisions import upgrade as upgrade_database
    from results.store.schema import RELEASE

    with doing("Upgrading the database"):
        found = upgrade_database(Workspace(workspace, db).database)
    if found == RELEASE:
        echo(f"nothing to do: the tables are of captionbench {release(found)} already")
    else:
        echo(f"upgraded from captionbench {release(found)} to {release(RELEASE)}")


def merge(
    others: Annotated[list[str], typer.Argument(metavar="OTHER...", help="SQLite files or URLs; they are only read.")],
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
) -> None:
    """Bring the runs of other databases in, by run key; again changes nothing.

    A finished run is never replaced; that of a published copy gets its captions. Where both databases have finished a
    run with different results, this one's stay, the difference is printed, and the exit code is 1.
    """
    from results.store.merge import merge as merge_database
    from results.store.store import Store

    place = Workspace(workspace, db)
    if db is None:
        place.create()
    conflicts = 0
    with Store(place.database) as store:
        for other in others:
            with doing(f"Merging {other}"):
                merged = merge_database(store, other)
            echo(
                f"{merged.source}: {len(merged.added)} runs added, {len(merged.completed)} completed, "
                f"{len(merged.kept)} here already; {len(merged.datasets)} data sets added or completed"
            )
            for key, difference in merged.conflicts.items():
                echo(f"  kept this database's {key}: {difference}")
            conflicts += len(merged.conflicts)
    if conflicts:
        runs = "run has" if conflicts == 1 else "runs have"
        warn(
            f"{conflicts} {runs} finished on both sides with different results under one key: the other's code, "
            "packages or machine differ; this database's stay",
            "keep the other beside it, and compare the two as workspaces: bench compare HERE THERE",
        )
        sys.exit(1)


def publish(
    out: Annotated[Path, typer.Argument(metavar="OUT.sqlite", help="The file to write; it must not exist."), OutFile()],
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
) -> None:
    """Write a small copy to publish: conditions, scores, costs and learning curves of all finished runs.

    Captions of the data set and of models, attention maps, logs and folders of this machine are left out, so that
    `bench compare` and `bench report` work on the copy, but show no captions.
    """
    from results.store.publish import publish as write

    place = Workspace(workspace, db)
    if os.path.lexists(out):  # a link that leads nowhere, too
        raise BenchError(f"{out} exists already", "choose another file, or move it away first")
    if not out.parent.is_dir():
        raise BenchError(f"the folder {out.parent} does not exist", "make it first, or choose another one")
    with write_errors(out.parent, "the folder"), doing(f"Writing {out}"):
        runs, unfinished = write(place.database, out)
    left = f"; {unfinished} not finished, left out" if unfinished else ""
    echo(f"{out}: {runs} runs, {out.stat().st_size / 1e6:,.1f} MB{left}")


COMMANDS = {"info": info, "check": check, "upgrade": upgrade, "merge": merge, "publish": publish}
