"""`bench caption-data`: captions for a data set or a server's list, by a stored run or a checkpoint of the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.caption import (
    NOT_FOR_HUB,
    BeamSizeOption,
    GraphsOption,
    RegionsOption,
    RunOption,
    WeightsOption,
    find_folder,
    name_unusable,
    print_captions,
    visual_inputs,
    write_captions,
)
from harness.cli.inputs import doing, open_split, progress_aside
from harness.cli.options import HubOption, ImagesOption, PluginOption, WorkspaceOption, refuse_typed
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
    inputs = [data, regions, graphs, backbone_weights, *(plugin or ())]
    check_out(out, force=force, inputs=inputs)
    with doing("Loading torch"):
        from harness.benchmark.caption_images import caption_dataset
        from harness.benchmark.hub_model import caption_with_checkpoint, find_hub, hub_options
        from harness.utils.plugins import load_plugins

    load_plugins(plugin)
    place = Workspace(workspace)
    pictures = open_split(data, images, split, place)
    checkpoint = find_hub(run, place, hub_options(hub or ()))
    if checkpoint is not None:
        refuse_typed(context, ("regions", "graphs", "backbone_weights"), NOT_FOR_HUB, "leave it out")
    with progress_aside() as reporter:
        if checkpoint is not None:
            captioned = caption_with_checkpoint(pictures, checkpoint, reporter=reporter, beam_size=beam_size)
        else:
            captioned = caption_dataset(
                pictures,
                find_folder(run, place, reporter),
                reporter=reporter,
                beam_size=beam_size,
                backbone_weights=backbone_weights,
                **visual_inputs(regions, graphs),
                as_trained=True,
            )
    if out is not None:
        write_captions(captioned, out)
    else:
        print_captions(captioned, pictures)
    name_unusable(captioned)
