"""`bench data convert`: other formats in Karpathy's, which runs read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.inputs import warn
from harness.cli.options import ImagesOption, SkipBadImagesOption, refuse_empty
from harness.cli.output import OutFile, deliver

_EXAMPLES = """
Examples:

  bench data convert captions_train2017.json captions_val2017.json --instances instances_train2017.json
  --instances instances_val2017.json --images coco/ --split-by hash:90/5/5 --out dataset_coco2017.json

  bench data convert photos/ --out photos/dataset.json

  bench data convert captions.csv --images photos/ --split-by hash:80/10/10 --out dataset_photos.json

  bench data convert hub_folder/ --caption-column prompt --out hub_folder/dataset.json
"""


def register(group: typer.Typer) -> None:
    """Add the command to `bench data`."""
    group.command("convert", epilog=_EXAMPLES)(convert)


def convert(
    source: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE...",
            help="COCO's captions_*.json, a CSV of file and caption or a folder with one, or one with metadata.jsonl.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The annotation file to write."),
        OutFile(rb'\{"dataset": "[^"]*", "split_by":'),
    ],
    images: ImagesOption = None,
    instances: Annotated[
        list[Path] | None, typer.Option(help="COCO's instances_*.json of the same images, for their boxes.")
    ] = None,
    split_by: Annotated[
        str | None,
        typer.Option(
            callback=refuse_empty,
            help="source, or hash:TRAIN/VAL/TEST in per cent, by file name.  [default: source if it has splits, "
            "else hash:80/10/10]",
        ),
    ] = None,
    file_column: Annotated[
        str | None, typer.Option(callback=refuse_empty, help="Of a CSV: the column of the pictures' files.")
    ] = None,
    caption_column: Annotated[
        str | None, typer.Option(callback=refuse_empty, help="The column, or key in metadata.jsonl, of the captions.")
    ] = None,
    skip_bad_images: SkipBadImagesOption = False,
) -> None:
    """Write data of one's own in Karpathy's format: every picture looked for, every caption checked, and split.

    Missing pictures, those that are given twice, and empty captions are named. Boxes become corners. docs/own_data.md
    has the formats.
    """
    from harness.data.convert.convert import convert as convert_source
    from harness.data.convert.convert import read_source

    found, folder = read_source(
        source, instances=instances or (), images=images, file_column=file_column, caption_column=caption_column
    )
    name = out.name.partition(".")[0].removeprefix("dataset").lstrip("_-") or folder.absolute().name
    converted = convert_source(found, folder, name=name, rule=split_by, leave_out=skip_bad_images)
    deliver(json.dumps(converted.content), out)
    for left in converted.left_out:
        warn(f"left out: {left}", f'{out} names it under "left_out"')
    for note in converted.notes:
        typer.echo(note, err=True)
    splits = ", ".join(f"{split} {count}" for split, count in sorted(converted.splits.items()))
    typer.echo(f"{out}: {splits}; split by {converted.rule}")
    where = "" if folder.absolute() == out.absolute().parent else f" --images {folder}"
    typer.echo(f"next: bench data verify {out}{where}")
    typer.echo(f"then: bench run --data {out}{where} --backbone NAME")
