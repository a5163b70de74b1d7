"""`bench work`: execute planned runs of a store, in a job of a scheduler, on a second machine or in a debugger."""

import sys
from typing import Annotated

import typer

from harness.cli.completion import complete_planned_keys
from harness.cli.options import DatabaseOption, WorkspaceOption
from harness.cli.output import echo
from harness.training.launch import in_every_process
from harness.utils.workspace import DEFAULT, Workspace

EXAMPLES = r"""
bench work --workspace shared
bench work updown-s0-0123abcd --db postgresql://USER@HOST/NAME \
    --workspace shared
"""


def work(
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY]...", help="Runs; without any, all planned.", autocompletion=complete_planned_keys
        ),
    ] = None,
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
) -> None:
    """Execute planned runs of a workspace, as bench run or bench plan --store stored them, until none is left.

    Several of these commands share the runs. A run says in its row what it needs: data, features and device.
    """
    from harness.utils.progress import Reporter
    from results import Store

    target = Workspace(workspace, db)
    Store(target.database, create=False).close()  # without results there are no planned runs
    with Reporter() as reporter:
        with reporter.step("Loading torch"):
            from harness.benchmark.execute import execute_planned
            from harness.benchmark.services import Services
            from harness.cli.run_panel import RunPanel, name_of
            from reports.text.summary import count_ends
        with Services(target, reporter) as services:
            store = services.store
            planned = keys or store.keys({"planned", "running"})
            names = {key: name_of(store.spec(key)) for key in planned if store.status(key) is not None}
            reporter.show(RunPanel(store, names, elsewhere=False, rerun=False))
            ended = execute_planned(keys or None, services)
    echo(count_ends(ended))
    if {"failed", "skipped"} & {*ended.values()}:
        sys.exit(1)


COMMAND = in_every_process(work)
