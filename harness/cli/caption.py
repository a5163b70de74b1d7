"""`bench caption`: captions for one's own pictures, by a stored run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.workspace import DEFAULT, Workspace

EXAMPLES = """
Examples:

  bench caption dog.jpg beach.png --run expansionnet_v2-s0-1f3a09bc42

  bench caption photos/*.jpg --run workspace/runs/transformer_base-s0-77aa01bc32 --beam-size 5
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("caption", epilog=EXAMPLES)(caption)


def caption(
    images: Annotated[list[Path], typer.Argument(help="Pictures: JPEG, PNG, WebP, GIF, TIFF, ...")],
    run: Annotated[str, typer.Option(help="Key of a run in the workspace, or its folder.")],
    workspace: Annotated[Path, typer.Option(help="Where the runs lie.")] = DEFAULT,
    beam_size: Annotated[int | None, typer.Option(min=1, help="Beams, if not as in the run.")] = None,
    backbone_weights: Annotated[Path | None, typer.Option(help="The backbone's weights, if they were moved.")] = None,
    plugin: Annotated[list[str] | None, typer.Option(help="Python module or file that registers models.")] = None,
) -> None:
    """Caption pictures with a trained model: one line each, the picture and its caption.

    Pictures that cannot be read are named on stderr, the others are captioned, and the exit code is 1.
    """
    from rich.console import Console

    from harness.own_pictures import caption_pictures
    from harness.plugins import load_plugin
    from harness.progress import Reporter
    from harness.stored_run import find_run

    for name in plugin or ():
        load_plugin(name)
    with Reporter(Console(stderr=True, highlight=False)) as reporter:
        found = caption_pictures(
            images,
            find_run(run, Workspace(workspace)),
            reporter=reporter,
            beam_size=beam_size,
            backbone_weights=backbone_weights,
        )
    for path, text in found.captions.items():
        typer.echo(f"{path}: {text}")
    for bad in found.unusable:
        typer.echo(f"unusable: {bad}", err=True)
    if found.unusable:
        raise typer.Exit(1)
