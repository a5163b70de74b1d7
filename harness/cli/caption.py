"""`bench caption`: captions for one's own pictures, or for a data set, by a stored run."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.inputs import doing, open_split, progress_aside, warn
from harness.cli.options import HubOption, PluginOption, WorkspaceOption, refuse_typed
from harness.cli.output import Out, OutFile, OutFolder, check_out, deliver, echo, write_errors
from harness.config.limits import MAX_BEAM
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from results.records import AttentionRecord

EXAMPLES = """
bench caption dog.jpg beach.png --run expansionnet_v2-s0-1f3a09bc42
bench caption photos/*.jpg --run workspace/runs/transformer_base-s0-77aa01bc32 --beam-size 5
bench caption dog.jpg --run transformer_base-s0-77aa01bc32 --attention
bench caption dog.jpg --run transformer_base-s0-77aa01bc32 --attention --head 1
bench caption dog.jpg --run hf:Salesforce/blip2-opt-2.7b --hub prompt='a photo of'
bench caption --data coco/ --run expansionnet_v2-imported-5d2c90aa14 --out predictions.json
"""


def caption(
    context: typer.Context,
    run: Annotated[str, typer.Option(help="A run's key or folder, a model (its newest run), or hf:.")],
    images: Annotated[list[Path] | None, typer.Argument(help="Pictures: JPEG, PNG, WebP, GIF, TIFF, ...")] = None,
    workspace: WorkspaceOption = DEFAULT,
    beam_size: Annotated[int | None, typer.Option(min=1, max=MAX_BEAM, help="Beam size, if not the run's.")] = None,
    backbone_weights: Annotated[Path | None, typer.Option(help="The backbone's weights, if they were moved.")] = None,
    data: Annotated[
        str | None, typer.Option(help="Instead: 'scenes', Karpathy's folder or file, or a server's list.")
    ] = None,
    data_images: Annotated[Path | None, typer.Option("--images", help="Folder of its images.")] = None,
    split: Annotated[str | None, typer.Option(help="Which of its splits.  [default: test]")] = None,
    out: Annotated[
        Path | None,
        Out(help="Write COCO's results JSON; ids are those of --data, else they count from 0."),
        OutFile(rb'\[\s*(\{\s*"image_id":|\]$)'),
    ] = None,
    regions: Annotated[
        str | None,
        typer.Option(help="For a run on regions: the images' regions, by the image id that file names end with."),
    ] = None,
    graphs: Annotated[
        str | None, typer.Option(help="For a run on scene graphs: those of the regions, by image id.")
    ] = None,
    attention: Annotated[
        bool, typer.Option("--attention", help="Draw each word's attention map and the encoder's, as PNGs.")
    ] = False,
    head: Annotated[
        int | None,
        typer.Option(
            min=1, help="Of --attention: one head alone, counted through the decoder's layers, not the mean of all."
        ),
    ] = None,
    attention_out: Annotated[
        Path, typer.Option(help="Folder for these PNGs, one per picture."), OutFolder(rb"\x89PNG", "attention")
    ] = Path("attention"),
    hub: HubOption = None,
    plugin: PluginOption = None,
) -> None:
    """Caption pictures with a trained model or one of hf:, in float32: one line each, the picture and its caption.

    Pictures that cannot be read are named on stderr, the others are captioned, and the exit code is 1.
    """
    if bool(images) == (data is not None):
        raise BenchError("give either pictures or --data", "for example: bench caption dog.jpg --run KEY")
    if head is not None and not attention:
        raise BenchError("--head chooses what --attention draws", "add --attention, or leave out --head")
    if images:
        refuse_typed(
            context, ("split", "data_images"), "read with --data alone", "leave it out, or give --data for the pictures"
        )

    with doing("Loading torch"):
        from harness.benchmark.caption_images import caption_dataset, of_files, of_numbered_files
        from harness.benchmark.hub_model import caption_with_checkpoint, find_hub, hub_options
        from harness.benchmark.saved_model import find_run
        from harness.config.features import graph_config, region_config
        from harness.inference.attention import draw_attention
        from harness.utils.plugins import load_plugins

    load_plugins(plugin)
    place = Workspace(workspace)
    seen = region_config(regions, "all", 1)
    related = graph_config(graphs, 10, 20, seen or region_config("boxes", "all", 1))
    sheets: dict[Path, None] = {}

    def draw(picture: Path, record: AttentionRecord) -> None:
        sheet = attention_out / f"{picture.stem}-attention.png"
        if sheet in sheets:  # of a picture of the same name in another folder
            sheet = sheet.with_stem(f"{picture.stem}-{record.image_id}-attention")
        check_out(sheet, "--attention-out")
        with write_errors(sheet, "--attention-out"):
            draw_attention(picture, record, sheet)
        sheets[sheet] = None

    if images:
        pictures = of_numbered_files(images) if seen and isinstance(seen.source, Path) else of_files(images)
    else:
        pictures = open_split(data or "", data_images, "test" if split is None else split, place)
    checkpoint = find_hub(run, place, hub_options(hub or ()))
    if checkpoint is not None:
        refuse_typed(
            context,
            ("attention", "head", "regions", "graphs", "backbone_weights"),
            "not for models of hf:, which see pictures in their own way",
            "leave it out",
        )
    with progress_aside() as reporter:
        if checkpoint is not None:
            found = caption_with_checkpoint(pictures, checkpoint, reporter=reporter, beam_size=beam_size)
        else:
            folder = find_run(run, place)
            if folder.name != run and not Path(run).is_dir():
                reporter.note(f"by {folder.name}, the newest run of {run}")
            _warn_of_edits(folder.name, place)
            found = caption_dataset(
                pictures,
                folder,
                reporter=reporter,
                beam_size=beam_size,
                backbone_weights=backbone_weights,
                regions=seen.source if seen else None,
                graphs=related,
                as_trained=data is not None,
                on_attention=draw if attention else None,
                head=head,
            )
    if out is not None:
        entries = [{"image_id": image_id, "caption": text} for image_id, text in found.captions.items()]
        deliver(json.dumps(entries, ensure_ascii=False, indent=0) + "\n", out)
        echo(f"{len(entries)} captions written to {out}")
    else:
        names = {sample.image_id: sample.file for sample in pictures.samples}
        names |= dict(zip(names, map(str, dict.fromkeys(images or ())), strict=False))
        for image_id, text in found.captions.items():
            echo(f"{names[image_id]}: {text}")
    for sheet in sheets:
        echo(f"attention drawn in {sheet}")
    for bad in found.unusable:
        echo(f"unusable: {bad}", err=True)
    if found.unusable:
        raise typer.Exit(1)


def _warn_of_edits(key: str, workspace: Workspace) -> None:
    """Say which plug-ins have changed since a run of this workspace was trained with them."""
    from harness.benchmark.identity.sources import plugin_digests
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
