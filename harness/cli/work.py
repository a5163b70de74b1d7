"""`bench work`: execute planned runs of a store, in a job of a scheduler, on a second machine or in a debugger."""

import sys
from typing import Annotated

import typer

from harness.cli.options import DatabaseOption, StorageOption, WorkspaceOption
from harness.training.launch import in_every_process
from harness.utils.workspace import DEFAULT, Workspace

EXAMPLES = """
bench work --workspace shared
bench work updown-s0-0123abcd --db postgresql://USER@HOST/NAME --workspace shared
"""


def work(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY]...", help="Runs; without any, all planned.")
    ] = None,
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
    storage: StorageOption = None,
) -> None:
    """Execute planned runs of a workspace, as bench run or bench plan --store stored them, until none is left.

    Several of these commands share the runs. A run says in its row what it needs: data, features and device.
    """
    from harness.benchmark.work import Services, said_ends, work_off
    from harness.utils.progress import Reporter
    from results import Store

    place = Workspace(workspace, db, storage)
    if place.remote is not None:
        place.remote.check()
    Store(place.database, create=False).close()  # without results there are no planned runs
    with Reporter() as reporter, Services(place, reporter) as services:
        ended = work_off(keys or None, services)
    typer.echo(said_ends(ended.values()))
    if {"failed", "skipped"} & {*ended.values()}:
        sys.exit(1)


COMMAND = in_every_process(work)
