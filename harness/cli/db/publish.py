"""`bench db publish`: a small copy of a results database that may be given to others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import DatabaseOption, WorkspaceOption
from harness.cli.output import OutFile, write_errors
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace


def publish(
    out: Annotated[Path, typer.Argument(metavar="OUT.sqlite", help="The file to write; it must not exist."), OutFile()],
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
    metrics: Annotated[
        str, typer.Option(help="Metrics whose values of every image stay, separated by commas.")
    ] = "CIDEr-D",
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
    names = tuple(name for name in (each.strip() for each in metrics.split(",")) if name)
    if not names:
        raise BenchError(f"--metrics {metrics!r} names no metric", "for example --metrics CIDEr-D,BLEU-4")
    with write_errors(out.parent, "the folder"):
        done = write(place.database, out, names)
    left = f"; {done.unfinished} not finished, left out" if done.unfinished else ""
    typer.echo(f"{out}: {done.runs} runs, {done.bytes / 1e6:,.1f} MB{left}")
