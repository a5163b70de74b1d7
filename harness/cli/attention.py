"""`bench attention`: what a stored run attends to, word by word, drawn over one's own pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.caption import (
    BeamSizeOption,
    GraphsOption,
    PicturesArgument,
    RegionsOption,
    WeightsOption,
    find_folder,
    name_unusable,
    open_pictures,
    print_captions,
    visual_inputs,
)
from harness.cli.completion import complete_captioning_runs
from harness.cli.inputs import doing, progress_aside
from harness.cli.options import PluginOption, WorkspaceOption
from harness.cli.output import ForceOption, Out, OutputFolder, echo, write_errors
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from results.records import AttentionRecord

EXAMPLES = r"""
bench attention dog.jpg --run transformer_base-s0-77aa01bc32
bench attention dog.jpg --run transformer_base-s0-77aa01bc32 --head 1
"""


def attention(
    images: PicturesArgument,
    run: Annotated[
        str,
        typer.Option(
            help="A run's key or folder, or a model (its newest run).", autocompletion=complete_captioning_runs
        ),
    ],
    out: Annotated[Path, Out(help="Folder of the PNGs, one per picture.")] = Path("attention"),
    force: ForceOption = False,
    head: Annotated[
        int | None,
        typer.Option(min=1, help="One head alone, counted through the decoder's layers.", show_default="their mean"),
    ] = None,
    workspace: WorkspaceOption = DEFAULT,
    beam_size: BeamSizeOption = None,
    backbone_weights: WeightsOption = None,
    regions: RegionsOption = None,
    graphs: GraphsOption = None,
    plugin: PluginOption = None,
) -> None:
    """Caption pictures, and draw each word's attention map and the encoder's, one PNG a picture.

    Pictures that cannot be read are named on stderr, and the exit code is 1.
    """
    folder = OutputFolder(out, force=force, inputs=[*images, regions, graphs, backbone_weights, *(plugin or ())])
    with doing("Loading torch"):
        from harness.benchmark.caption_images import caption_dataset
        from harness.benchmark.hub_model import find_hub, hub_options
        from harness.inference.attention import draw_attention
        from harness.utils.plugins import load_plugins

    load_plugins(plugin)
    if find_hub(run, Workspace(workspace), hub_options(())) is not None:
        raise BenchError(f"--run {run}: no maps are drawn of models of hf:", "name a run that was trained here")
    pictures = open_pictures(images, regions)
    sheets: list[Path] = []

    def draw(picture: Path, record: AttentionRecord) -> None:
        name = f"{picture.stem}-attention.png"
        if out / name in sheets:  # of a picture of the same name in another folder
            name = f"{picture.stem}-{record.image_id}-attention.png"
        sheet = folder.check(name)
        with write_errors(sheet):
            draw_attention(picture, record, sheet)
        folder.record(name)
        sheets.append(sheet)

    with progress_aside() as reporter:
        captioned = caption_dataset(
            pictures,
            find_folder(run, Workspace(workspace), reporter),
            reporter=reporter,
            beam_size=beam_size,
            backbone_weights=backbone_weights,
            **visual_inputs(regions, graphs),
            on_attention=draw,
            head=head,
        )
    print_captions(captioned, pictures, images)
    for sheet in sheets:
        echo(f"attention drawn in {sheet}")
    name_unusable(captioned)
