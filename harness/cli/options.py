"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.tables import TableFormat

# What is run, and where it goes.
WorkspaceOption = Annotated[
    Path, typer.Option("--workspace", "-w", help="Folder of a benchmark's results, caches and reports.")
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--db",
        envvar="BENCH_DB",
        help="Results database: a SQLite file or any SQLAlchemy URL. Without it, the workspace's bench.sqlite.",
    ),
]
PluginOption = Annotated[
    list[str] | None, typer.Option("--plugin", help="Python module or file that registers models.")
]
ModelsOption = Annotated[str, typer.Option(help="Names or globs, separated by commas, or 'all'.")]
PresetOption = Annotated[str, typer.Option(help="Name of a preset: sizes, schedule and decoding.")]
ChangeOption = Annotated[list[str] | None, typer.Option("--set", help="KEY.PATH=VALUE: change the preset.")]
SeedsOption = Annotated[int, typer.Option(min=1, help="Seeds to train each model with.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]

# Images and the features that are extracted from them.
DataArgument = Annotated[str, typer.Argument(metavar="DATA", help="'scenes', a Karpathy folder, or its JSON file.")]
ImagesOption = Annotated[Path | None, typer.Option(help="Folder of the images, if they are not beside the JSON.")]
BackboneWeightsOption = Annotated[Path | None, typer.Option(help="Its weights: .safetensors or .pth.")]
BackboneSettingOption = Annotated[
    list[str] | None, typer.Option("--backbone-option", help="KEY=VALUE for timm's create_model.")
]
ImageSizeOption = Annotated[int | None, typer.Option(min=1, help="Pixels a side, if not the backbone's.")]
NormalisationOption = Annotated[str | None, typer.Option(help="imagenet, half or clip.")]
RegionCountOption = Annotated[str, typer.Option(help="all, fixed:36 or adaptive:10-100.")]
RegionBinsOption = Annotated[int, typer.Option(min=1, max=14, help="Bins a side that each box is pooled into.")]
SkipBadImagesOption = Annotated[
    bool, typer.Option("--skip-bad-images", help="Leave unusable images out, and record which.")
]

# Sizes that costs are counted or measured at, and how the table is written.
VocabularySizeOption = Annotated[int, typer.Option(min=5, help="Words, special tokens included.")]
TableFormatOption = Annotated[TableFormat, typer.Option("--format", help="How to write the table.")]
