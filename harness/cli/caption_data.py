"""`bench caption-data`: captions for a data set or a server's list, by a stored run or a checkpoint of the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.caption import (
    BeamSizeOption,
    GraphsOption,
    RegionsOption,
    RunOption,
    WeightsOption,
    caption_with_run,
    name_unusable,
    print_captions,
    write_captions,
)
from harness.cli.inputs import doing, open_split
from harness.cli.options import HubOption, ImagesOption, LimitOption, PluginOption, WorkspaceOption
from harness.cli.output import ForceOption, Out, check_out
from harness.utils.workspace import DEFAULT, Workspace

EXAMPLES = r"""
bench caption-data coco/ --run expansionnet_v2-imported-5d2c90aa14 \
    --out predictions.json
bench caption-data image_info_test2014.json --images coco/test2014 \
    --run expansionnet_v2-s0-1f3a09bc42 --out results.json
"""


def caption_data(
    context: typer.Context,
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="'scenes', a Karpathy folder or file, or a server's list of images.")
    ],
    run: RunOption,
    images: ImagesOption = None,
    split: Annotated[str, typer.Option(help="Which of its splits.")] = "test",
    limit: LimitOption = None,
    out: Annotated[Path | None, Out(help="Write COCO's results JSON, with the data's ids; without it, print.")] = None,
    force: ForceOption = False,
    workspace: WorkspaceOption = DEFAULT,
    beam_size: BeamSizeOption = None,
    backbone_weights: WeightsOption = None,
    regions: RegionsOption = None,
    graphs: GraphsOption = None,
    hub: HubOption = None,
    plugin: PluginOption = None,
) -> None:
    """Caption a split of a data set with a trained model or one of hf:, in float32, on what it was trained on.

    Pictures that cannot be read are named on stderr, the others are captioned, and the exit code is 1.
    """
    check_out(out, force=force, inputs=[data, regions, graphs, backbone_weights, *(plugin or ())])
    with doing("Loading torch"):
        from harness.utils.plugins import load_plugins

        load_plugins(plugin)
        pictures = open_split(data, images, split, Workspace(workspace), limit)
    captioned = caption_with_run(
        context,
        pictures,
        run,
        Workspace(workspace),
        beam_size=beam_size,
        backbone_weights=backbone_weights,
        regions=regions,
        graphs=graphs,
        hub=hub,
        as_trained=True,
    )
    if out is not None:
        write_captions(captioned, pictures, out)
    else:
        print_captions(captioned, pictures)
    name_unusable(captioned)
