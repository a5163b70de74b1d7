"""`bench import-weights`: turn authors' released checkpoints into stored runs."""

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.inputs import doing
from harness.cli.options import BackboneSettingOption, ImageSizeOption, RegionCountOption, WorkspaceOption
from harness.cli.output import echo
from harness.config.limits import MAX_BEAM
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.workspace import DEFAULT, Workspace

EXAMPLES = r"""
bench import-weights expansionnet_v2 checkpoint.pth \
    --vocabulary words.pickle
bench import-weights expansionnet_v2 body.pth --vocabulary words.json \
    --backbone-weights swin.pth
bench import-weights x_lan caption_model.pth \
    --vocabulary coco_vocabulary.txt --regions cocobu_att
"""


_LIST = re.compile(r"[0-9]+(?:,[0-9]+)+")  # 2,4,3 is the list [2, 4, 3]


def import_weights(
    model: Annotated[str, typer.Argument(help="A model whose authors released weights, such as expansionnet_v2.")],
    checkpoint: Annotated[Path, typer.Argument(help="The authors' checkpoint; no code in it is executed.")],
    vocabulary: Annotated[Path, typer.Option(help="Its vocabulary: text, JSON, or a pickle of plain data.")],
    workspace: WorkspaceOption = DEFAULT,
    backbone: Annotated[str | None, typer.Option(help="Name of a timm model; Swin-L at 384 pixels by default.")] = None,
    backbone_weights: Annotated[
        Path | None, typer.Option(help="Its weights, where the checkpoint has none: .safetensors or .pth.")
    ] = None,
    backbone_option: BackboneSettingOption = None,
    image_size: ImageSizeOption = None,
    regions: Annotated[
        str | None, typer.Option(help="Regions that the checkpoint sees: a JSON, TSV, HDF5 file or folder.")
    ] = None,
    region_count: RegionCountOption = "all",
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="ARGUMENT=VALUE: where the model is not the paper's, for example n_heads=4 or static_lengths=2,4,3.",
        ),
    ] = None,
    beam_size: Annotated[
        int | None, typer.Option(min=1, max=MAX_BEAM, help="Beam size to caption with.", show_default="the authors'")
    ] = None,
) -> None:
    """Turn a released checkpoint and its vocabulary into a run that captions pictures and can be scored.

    A checkpoint of captioner and backbone becomes a model on pixels; one of the captioner alone needs the weights of
    the backbone that gave its features, or the regions that it sees.
    """
    with doing("Loading torch"):
        from harness.benchmark.import_weights import BACKBONE
        from harness.benchmark.import_weights import import_weights as do_import
        from harness.config.features import feature_config, region_config
        from harness.utils.yaml_value import parse_yaml_value

    arguments = {}
    for setting in change or ():
        argument, separator, text = setting.partition("=")
        if not separator:
            raise BenchError(f"--set {shortened(setting)!r} has no '='", "for example --set n_heads=4")
        arguments[argument] = parse_yaml_value(setting, f"[{text}]" if _LIST.fullmatch(text) else text)
    region_settings = region_config(regions, region_count)
    settings = tuple(backbone_option or ())
    features = feature_config(backbone or BACKBONE, backbone_weights, settings, image_size, None, region_settings)
    target = Workspace(workspace)
    target.create()
    with doing(f"Importing {checkpoint}"):
        key = do_import(
            model, checkpoint, vocabulary, workspace=target, features=features, arguments=arguments, beam_size=beam_size
        )
    echo(f"imported as {key}")
    workspace_option = f" --workspace {shlex.quote(str(workspace))}" if workspace != DEFAULT else ""
    regions_option = "" if regions is None else f" --regions {regions}"
    echo(f"next: bench caption PICTURE --run {key}{workspace_option}{regions_option}")
    features_option = regions_option or " --backbone NAME"
    echo(f"  or: bench run --models {key} --data FOLDER{features_option}{workspace_option}")
