"""`bench export submission`: captions as an evaluation server takes them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import DatabaseOption, WorkspaceOption, refuse_empty, refuse_typed
from harness.cli.output import OutFolder, check_out, write_errors
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace

_EXAMPLES = """**Examples**

    bench export submission results.json --server coco --split test2014 --images image_info_test2014.json --out upload

    bench export submission m2-s0-1f3a09bc42 --server nocaps --images nocaps_test_image_info.json --out upload
"""


class Server(StrEnum):
    """Where the file goes."""

    coco = "coco"
    nocaps = "nocaps"


def register(group: typer.Typer) -> None:
    """Add the command to `bench export`."""
    group.command("submission", epilog=_EXAMPLES)(submission)


def submission(
    context: typer.Context,
    predictions: Annotated[
        str, typer.Argument(help="A file in COCO's results format, or the key of a stored run.", metavar="FILE|RUN")
    ],
    server: Annotated[Server, typer.Option(help="Whose format and rules.")],
    images: Annotated[Path, typer.Option(help="The server's list of images; each needs a caption.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder to write to."),
        OutFolder(rb'PK\x03\x04|\[\{"image_id":'),
    ],
    split: Annotated[
        str | None, typer.Option(callback=refuse_empty, help="coco: val2014 or test2014; nocaps: val or test.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the system, for the file's name.")] = "captionbench",
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
) -> None:
    """Write and check what COCO's or nocaps's evaluation server takes, from a file or from a stored run's captions."""
    from harness.data.formats import read_predictions
    from harness.metrics.submission import run_predictions, write_submission

    if Path(predictions).is_file():
        refuse_typed(
            context, ("workspace", "db"), f"{predictions} is a file, and no run of a benchmark", "leave these out"
        )
        found = read_predictions(Path(predictions))
    else:
        from results.errors import StoreError
        from results.store.store import Store

        try:
            with Store(Workspace(workspace, db).database, read_only=True) as store:
                found = run_predictions(store, predictions, images)
        except StoreError as error:
            raise BenchError(
                f"{predictions} is neither a file nor a run that can be exported: {error}", error.hint
            ) from error
    with write_errors(out):
        written = write_submission(
            found,
            images,
            out,
            server=server.value,
            split=split or {"coco": "test2014", "nocaps": "test"}[server.value],
            algorithm=name,
            check=check_out,
        )
    for path in written:
        typer.echo(path)
    if server is Server.coco and len(written) == 1:
        typer.echo("Next: the same for the other split; the archive to upload is written once both are there")
