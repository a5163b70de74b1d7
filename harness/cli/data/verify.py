"""`bench data`: what there is to train on, and whether its pictures can be read."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.data import features
from harness.cli.output import check_out, deliver
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace

_LIST_EXAMPLES = """
Examples:

  bench data list

  bench data list --workspace /scratch/bench
"""
_PREPARE_EXAMPLES = """
Examples:

  bench data prepare scenes

  bench data prepare scenes --workspace /scratch/bench
"""
_VERIFY_EXAMPLES = """
Examples:

  bench data verify scenes

  bench data verify flickr8k/

  bench data verify annotations/dataset_coco.json --images coco/

  bench data verify annotations/dataset_coco.json --images coco/ --regions cocobu_att
"""
_NOCAPS_EXAMPLES = """
Examples:

  bench data nocaps dataset_coco.json nocaps_val_4500_captions.json --out dataset_coco_nocaps.json

  bench data verify dataset_coco_nocaps.json --images pictures/
"""
_OWN_DATA = """\
FOLDER       your own: COCO, Flickr8k or Flickr30k in Karpathy's format.
             FOLDER/dataset*.json or .json.gz, and FOLDER/images/ (or the
             pictures beside it, also under the folders that "filepath" names).
             restval counts as train.
FILE         such an annotation file itself; --images DIR says where the
             pictures lie, if not beside it."""

WorkspaceOption = Annotated[Path, typer.Option("--workspace", help="Where generated data and caches go.")]


def register(app: typer.Typer) -> None:
    """Add `bench data` and its subcommands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    group.command("list", epilog=_LIST_EXAMPLES)(list_data)
    group.command("verify", epilog=_VERIFY_EXAMPLES)(verify)
    group.command("prepare", epilog=_PREPARE_EXAMPLES)(prepare)
    group.command("nocaps", epilog=_NOCAPS_EXAMPLES)(nocaps)
    group.command("features", epilog=features.EXAMPLES)(features.features)
    app.add_typer(group, name="data", help="List, verify and prepare data sets.")


def list_data(workspace: WorkspaceOption = DEFAULT) -> None:
    """List what can follow --data."""
    from harness.data.scenes.dataset import ScenesConfig, scenes_folder

    config = ScenesConfig()
    there = scenes_folder(Workspace(workspace).cache, config).is_dir()
    typer.echo(
        "scenes       embedded: drawn objects in relations, with boxes; no download.\n"
        f"             train {config.train}, val {config.val}, test {config.test}, "
        f"nocaps 3 x {config.nocaps_per_domain} images, {config.captions} captions each;\n"
        f"             {'drawn already' if there else 'drawn on first use, in seconds'}."
    )
    typer.echo(_OWN_DATA)
    typer.echo("\nNext: bench data verify FOLDER, then bench run --data FOLDER --backbone NAME")


def verify(
    data: Annotated[str, typer.Argument(metavar="DATA", help="'scenes', a Karpathy folder, or its JSON file.")],
    images: Annotated[Path | None, typer.Option(help="Where the pictures lie, if not with the JSON.")] = None,
    regions: Annotated[str | None, typer.Option(help="Check these regions too, as for bench run.")] = None,
    workspace: WorkspaceOption = DEFAULT,
) -> None:
    """Decode every picture and list all that cannot be used; with --regions, all unusable regions too.

    Exit code 0: all are sound; 1: some are not; 2: the data set itself cannot be opened.
    """
    from harness.config.features import region_config
    from harness.data.opening import open_dataset
    from harness.data.regions.checking import read_regions
    from harness.data.regions.opening import needs_backbone, open_source
    from harness.data.verify import find_bad_images, has_pictures
    from harness.utils.progress import Reporter

    place = Workspace(workspace)
    place.create()
    dataset = open_dataset(data, cache_dir=place.cache, images=images)
    chosen = region_config(regions, "all", 1)
    if chosen is None or needs_backbone(chosen.source) or has_pictures(dataset):
        with Reporter() as reporter, reporter.task("pictures checked", len(dataset.samples)) as task:
            bad = find_bad_images(
                dataset, cache_dir=place.cache, progress=lambda done, _: task.reach(done), reuse=False
            )
    else:  # files of features do without pictures
        typer.echo(f"no picture is in {dataset.root} (--images DIR): the regions alone are checked", err=True)
        bad = dict(dataset.faults)
    if chosen is not None:
        source = open_source(chosen.source, dataset)
        for image_id, found in read_regions(source, dataset, skip=bad):
            if isinstance(found, str):
                bad[image_id] = found.removeprefix(f"image {image_id}: ")
    splits = {sample.image_id: sample.split for sample in dataset.samples}
    for image_id, reason in bad.items():
        typer.echo(f"image {image_id} ({splits[image_id]}): {reason}")
    if bad:
        typer.echo(f"{len(bad)} of {len(splits)} images cannot be used ({_counted(splits[image] for image in bad)})")
        typer.echo("repair them, or run with --skip-bad-images, which records what was skipped", err=True)
        raise typer.Exit(1)
    typer.echo(f"all {len(splits)} images are sound ({_counted(splits.values())}); data set #{dataset.fingerprint[:8]}")


def prepare(
    data: Annotated[str, typer.Argument(metavar="DATA", help="What to generate: 'scenes'.")] = "scenes",
    workspace: WorkspaceOption = DEFAULT,
) -> None:
    """Generate the embedded data set ahead of its first use."""
    from harness.data.opening import SCENES, open_dataset

    if data != SCENES:
        raise BenchError(f"{data} cannot be generated, only {SCENES}", hint=f"bench data prepare {SCENES}")
    place = Workspace(workspace)
    place.create()
    started = time.monotonic()
    dataset = open_dataset(data, cache_dir=place.cache)
    splits = _counted(sample.split for sample in dataset.samples)
    typer.echo(f"{dataset.root}: {splits}; data set #{dataset.fingerprint[:8]}, {time.monotonic() - started:.1f} s")


def nocaps(
    annotations: Annotated[Path, typer.Argument(help="Karpathy's JSON of the images to train on.")],
    captions: Annotated[Path, typer.Argument(help="nocaps's validation captions, with a domain of each image.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The annotation file to write.")],
    folder: Annotated[str, typer.Option(help="Of nocaps's pictures, below that of --images.")] = "nocaps",
) -> None:
    """Write an annotation file that has nocaps's images too, to be scored by domain and never trained on."""
    from harness.data.nocaps import join_nocaps

    check_out(out)
    joined = join_nocaps(annotations, captions, folder=folder)
    deliver(json.dumps(joined.content), out)
    typer.echo(f"{out}: nocaps {joined.images}; image N of nocaps's own file is {joined.raised} + N here")
    typer.echo(f"Next: bench data verify {out} --images DIR, where DIR/{folder} holds nocaps's pictures")


def _counted(splits: Iterable[str]) -> str:
    """How many images of each split."""
    return ", ".join(f"{split} {count}" for split, count in Counter(splits).items())
