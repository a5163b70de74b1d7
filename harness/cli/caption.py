"""`bench caption`: captions for one's own pictures, by a stored run or a checkpoint of the hub."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.completion import complete_captioning_runs
from harness.cli.inputs import doing, progress_aside, warn
from harness.cli.options import HubOption, PluginOption, WorkspaceOption, refuse_typed
from harness.cli.output import ForceOption, Out, check_out, deliver, echo
from harness.config.limits import MAX_BEAM
from harness.utils.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from harness.benchmark.caption_images import Captioned
    from harness.data.dataset import Dataset
    from harness.utils.progress import Reporter

EXAMPLES = r"""
bench caption dog.jpg beach.png --run expansionnet_v2-s0-1f3a09bc42
bench caption photos/*.jpg \
    --run workspace/runs/transformer_base-s0-77aa01bc32 --beam-size 5
bench caption dog.jpg --run hf:Salesforce/blip2-opt-2.7b \
    --hub prompt='a photo of'
"""

PicturesArgument = Annotated[list[Path], typer.Argument(help="Pictures: JPEG, PNG, WebP, GIF, TIFF, ...")]
RunOption = Annotated[
    str,
    typer.Option(
        "--run",
        help="A run's key or folder, a model (its newest run), or hf:.",
        autocompletion=complete_captioning_runs,
    ),
]
BeamSizeOption = Annotated[int | None, typer.Option(min=1, max=MAX_BEAM, help="Beam size, if not the run's.")]
WeightsOption = Annotated[
    Path | None, typer.Option("--backbone-weights", help="The backbone's weights, if they were moved.")
]
RegionsOption = Annotated[
    str | None,
    typer.Option("--regions", help="For a run on regions: those of the pictures, by the id that file names end with."),
]
GraphsOption = Annotated[
    str | None, typer.Option("--graphs", help="For a run on scene graphs: those of the regions, by image id.")
]


def caption(
    context: typer.Context,
    images: PicturesArgument,
    run: RunOption,
    workspace: WorkspaceOption = DEFAULT,
    beam_size: BeamSizeOption = None,
    backbone_weights: WeightsOption = None,
    regions: RegionsOption = None,
    graphs: GraphsOption = None,
    hub: HubOption = None,
    plugin: PluginOption = None,
    out: Annotated[Path | None, Out(help="Write COCO's results JSON; ids count the pictures from 0.")] = None,
    force: ForceOption = False,
) -> None:
    """Caption pictures with a trained model or one of hf:, in float32: one line each, the picture and its caption.

    Pictures that cannot be read are named on stderr, the others are captioned, and the exit code is 1.
    """
    check_out(out, force=force, inputs=[*images, regions, graphs, backbone_weights, *(plugin or ())])
    with doing("Loading torch"):
        from harness.utils.plugins import load_plugins

        load_plugins(plugin)
        pictures = open_pictures(images, regions)
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
    )
    if out is not None:
        write_captions(captioned, pictures, out)
    else:
        print_captions(captioned, pictures, images)
    name_unusable(captioned)


def caption_with_run(
    context: typer.Context,
    pictures: Dataset,
    run: str,
    workspace: Workspace,
    *,
    beam_size: int | None,
    backbone_weights: Path | None,
    regions: str | None,
    graphs: str | None,
    hub: list[str] | None,
    as_trained: bool = False,
) -> Captioned:
    """Caption pictures with the run or the checkpoint of the hub that `--run` names."""
    with doing("Loading the model"):
        from harness.benchmark.caption_images import caption_dataset
        from harness.benchmark.hub_model import caption_with_checkpoint, find_hub, hub_options

    checkpoint = find_hub(run, workspace, hub_options(hub or ()))
    with progress_aside() as reporter:
        if checkpoint is not None:
            why = "not for models of hf:, which see pictures in their own way"
            refuse_typed(context, ("regions", "graphs", "backbone_weights"), why, "leave it out")
            return caption_with_checkpoint(pictures, checkpoint, reporter=reporter, beam_size=beam_size)
        return caption_dataset(
            pictures,
            find_folder(run, workspace, reporter),
            reporter=reporter,
            beam_size=beam_size,
            backbone_weights=backbone_weights,
            **visual_inputs(regions, graphs),
            as_trained=as_trained,
        )


def open_pictures(images: Iterable[Path], regions: str | None) -> Dataset:
    """Picture files as a data set; with regions of a file, by the ids that their names end with."""
    from harness.benchmark.caption_images import of_files, of_numbered_files
    from harness.config.features import region_config

    region_settings = region_config(regions)
    paths = list(images)
    return (
        of_numbered_files(paths)
        if region_settings is not None and isinstance(region_settings.source, Path)
        else of_files(paths)
    )


def visual_inputs(regions: str | None, graphs: str | None) -> dict[str, Any]:
    """The regions and graphs of `--regions` and `--graphs`, as `caption_dataset` takes them."""
    from harness.config.features import graph_config, region_config

    region_settings = region_config(regions)
    graph_settings = graph_config(graphs, region_settings or region_config("boxes"))
    return {"regions": region_settings.source if region_settings else None, "graphs": graph_settings}


def find_folder(run: str, workspace: Workspace, reporter: Reporter) -> Path:
    """The folder of the run that `--run` names, with a note where it is the newest of a model."""
    from harness.benchmark.saved_model import find_run

    folder = find_run(run, workspace)
    if folder.name != run and not Path(run).is_dir():
        reporter.note(f"by {folder.name}, the newest run of {run}")
    _warn_of_edits(folder.name, workspace)
    return folder


def write_captions(captioned: Captioned, pictures: Dataset, out: Path) -> None:
    """Write COCO's results JSON, with the ids that the data have: texts where their numbers were made up on reading."""
    entries = [
        {"image_id": pictures.labels.get(image_id, image_id), "caption": text}
        for image_id, text in captioned.captions.items()
    ]
    deliver(json.dumps(entries, ensure_ascii=False, indent=0) + "\n", out)
    echo(f"{len(entries)} captions written to {out}")


def print_captions(captioned: Captioned, pictures: Dataset, typed: Iterable[Path] = ()) -> None:
    """A line a picture, with its name as it was typed, or as the data have it."""
    names = {sample.image_id: sample.file for sample in pictures.samples}
    for sample, path in zip(pictures.samples, dict.fromkeys(typed), strict=False):
        names[sample.image_id] = str(path)
    for image_id, text in captioned.captions.items():
        echo(f"{names[image_id]}: {text}")


def name_unusable(captioned: Captioned) -> None:
    """Name pictures that cannot be read on stderr, and end with 1 where there are any."""
    for bad in captioned.unusable:
        echo(f"unusable: {bad}", err=True)
    if captioned.unusable:
        raise typer.Exit(1)


def _warn_of_edits(key: str, workspace: Workspace) -> None:
    """Say which plug-ins have changed since a run of this workspace was trained with them."""
    from harness.key import plugin_digests
    from results.errors import StoreError
    from results.runs.reading import read_runs
    from results.store.schema import RunRow
    from results.store.store import Store

    loaded = plugin_digests()
    if not loaded or not Path(workspace.database).is_file():
        return
    with suppress(StoreError), Store(workspace.database, read_only=True) as store, store.reading() as connection:
        for run in read_runs(connection, RunRow.key == key):
            then = run.environment.get("plugins", {})
            if edited := [name for name in loaded if then.get(name, loaded[name]) != loaded[name]]:
                warn(
                    f"--plugin {', '.join(edited)} has changed since {key} was trained: its captions may be others",
                    "`bench run`, typed again, trains the changed model",
                )
