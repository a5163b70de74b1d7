"""`bench db`: check a results database and upgrade it, merge another one's runs into it, publish a copy."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.completion import complete_runs
from harness.cli.inputs import doing, warn
from harness.cli.options import DatabaseOption, WorkspaceOption
from harness.cli.output import echo, write_errors
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace
from results.errors import without_passwords

EXAMPLES = {
    "show": """
bench db show updown-s0-0123456789 > run.yaml
bench run run.yaml --set files.data=/data/flickr8k
""",
    "upgrade": """
bench db upgrade --workspace runs/flickr8k
BENCH_DB=postgresql://me@host/captions bench db upgrade
""",
    "merge": """
bench db merge other-machine/bench.sqlite
""",
    "publish": """
bench db publish flickr8k.sqlite
""",
}


def refuse_damaged(database: str) -> None:
    """Read every row of every table; BenchError that lists what is damaged."""
    from results.store.check import HINT, problems
    from results.store.store import Store

    with Store(database, read_only=True) as store, store.reading() as connection, doing("Reading every row"):
        damages = list(problems(connection))
    if damages:
        raise BenchError(f"the database {without_passwords(database)} is damaged: {'; '.join(damages)}", HINT)


def show(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="A run, or a model that has one.", autocompletion=complete_runs)
    ],
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
) -> None:
    """Print the configuration of a run as YAML: exactly what is executed, whence it came, and where its files lie.

    `bench run FILE.yaml` executes it, on another machine too, where --set files.data=FOLDER names the files there.
    """
    from results.runs.reading import run_keys
    from results.store.store import Store

    with Store(Workspace(workspace, db).database, read_only=True) as store:
        keys = run_keys(store, key)
        if len(keys) > 1:
            raise BenchError(f"{key} has {len(keys)} runs: {', '.join(keys[:4])}", f"name one: bench db show {keys[0]}")
        spec = store.spec(keys[0])
    with doing("Reading the configuration"):
        from harness.config.run import config_of, write_run

        text = write_run(config_of(spec))
    echo(text, nl=False)


def upgrade(
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be re-used, and change nothing.")] = False,
) -> None:
    """Bring an older release's database up to this one, wholly or not at all, and read every row of it.

    Says how many runs it holds, of which release its tables are, and what is damaged; then the exit code is not 0.
    Finished runs of captionbench 1 are re-used by `bench run --reuse any`.
    """
    from results.store.revisions import count_convertible, describe, release
    from results.store.revisions import upgrade as upgrade_database
    from results.store.schema import RELEASE

    database = Workspace(workspace, db).database
    with doing("Reading the runs" if dry_run else "Upgrading the database"):
        from harness.benchmark.release_1 import convert_row

        if dry_run:
            revision, counts = count_convertible(database, convert_row)
        else:
            revision = upgrade_database(database, convert_row)
    if dry_run:
        if revision == RELEASE:
            echo(f"nothing to do: the tables are of captionbench {release(revision)} already")
            return
        echo(f"would be upgraded from captionbench {release(revision)} to {release(RELEASE)}")
        for kind, (converted, count) in counts.items():
            echo(f"  {kind}: bench run --reuse any re-uses {converted} of {count} finished runs")
        if any(converted < count for converted, count in counts.values()):
            echo("The others stay in reports: their rows do not say how they were executed.")
        return
    if revision == RELEASE:
        echo(f"nothing to do: the tables are of captionbench {release(revision)} already")
    else:
        echo(f"upgraded from captionbench {release(revision)} to {release(RELEASE)}")
    information = describe(database)
    statuses = ", ".join(f"{count:,} {status}" for status, count in information.runs.items())
    size = "" if information.bytes is None else f", {information.bytes / 1e6:,.1f} MB"
    echo(f"{information.name} ({information.backend}): runs: {statuses or 'none yet'}{size}")
    refuse_damaged(database)
    echo("every row was read: nothing is damaged")


def merge(
    others: Annotated[list[str], typer.Argument(metavar="OTHER...", help="SQLite files or URLs; they are only read.")],
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
) -> None:
    """Bring the runs of other databases in, by run key; again changes nothing.

    Every row of them is read first: a damaged database is refused. A finished run is never replaced; that of a
    published copy gets its captions. Where both databases have finished a run with different results, this one's stay,
    the difference is printed, and the exit code is 1.
    """
    from results.store.merge import merge as merge_database
    from results.store.store import Store

    target = Workspace(workspace, db)
    if db is None:
        target.create()
    conflicts = 0
    with Store(target.database) as store:
        for other in others:
            refuse_damaged(other)
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
    out: Annotated[Path, typer.Argument(metavar="OUT.sqlite", help="The file to write; it must not exist.")],
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
) -> None:
    """Write a small copy to publish: conditions, scores, costs and learning curves of all finished runs.

    Captions of the data set and of models, attention maps, logs and folders of this machine are left out, so that
    `bench compare` and `bench report` work on the copy, but show no captions.
    """
    from results.store.publish import publish as write

    source = Workspace(workspace, db)
    if os.path.lexists(out):  # a link that leads nowhere, too
        raise BenchError(f"{out} exists already", "choose another file, or move it away first")
    if not out.parent.is_dir():
        raise BenchError(f"the folder {out.parent} does not exist", "make it first, or choose another one")
    with write_errors(out.parent, "the folder"), doing(f"Writing {out}"):
        runs, unfinished = write(source.database, out)
    suffix = f"; {unfinished} not finished, left out" if unfinished else ""
    echo(f"{out}: {runs} runs, {out.stat().st_size / 1e6:,.1f} MB{suffix}")


COMMANDS = {"show": show, "upgrade": upgrade, "merge": merge, "publish": publish}
