"""`bench data nocaps`: nocaps's images beside those to train on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.output import OutFile, deliver

_EXAMPLES = """
Examples:

  bench data nocaps dataset_coco.json nocaps_val_4500_captions.json --out dataset_coco_nocaps.json

  bench data nocaps dataset_coco.json nocaps_val_4500_captions.json --domains server.json --out dataset_coco_nocaps.json

  bench data verify dataset_coco_nocaps.json --images pictures/
"""


def register(group: typer.Typer) -> None:
    """Add the command to `bench data`."""
    group.command("nocaps", epilog=_EXAMPLES)(nocaps)


def nocaps(
    annotations: Annotated[Path, typer.Argument(help="Karpathy's JSON of the images to train on.")],
    captions: Annotated[Path, typer.Argument(help="nocaps's validation captions, with a domain of each image.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The annotation file to write."), OutFile(rb'\{"(dataset|images)":')
    ],
    folder: Annotated[str, typer.Option(help="Folder of nocaps's pictures, below that of --images.")] = "nocaps",
    domains: Annotated[
        Path | None, typer.Option(help="Domains to take instead, such as the server's: JSON of image and domain.")
    ] = None,
) -> None:
    """Write an annotation file that has nocaps's images too, to be scored by domain and never trained on."""
    from harness.data.annotations.domains import describe_domains
    from harness.data.annotations.nocaps import join_nocaps

    joined = join_nocaps(annotations, captions, folder=folder, domains=domains)
    deliver(json.dumps(joined.content), out)
    typer.echo(f"{out}: nocaps {joined.images}; image N of nocaps's own file is {joined.raised} + N here")
    typer.echo(describe_domains(joined.domains))
    typer.echo(f"Next: bench data verify {out} --images DIR, where DIR/{folder} holds nocaps's pictures")
