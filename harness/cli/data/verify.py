"""`bench data verify`: whether every image of a data set can be used."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.data.splits import describe_splits
from harness.cli.options import (
    DataArgument,
    GraphLabelsOption,
    GraphsOption,
    GraphWordsOption,
    ImagesOption,
    WorkspaceOption,
    refuse_empty,
)
from harness.cli.output import cache_errors
from harness.utils.workspace import DEFAULT, Workspace

_EXAMPLES = """
Examples:

  bench data verify scenes

  bench data verify flickr8k/

  bench data verify annotations/dataset_coco.json --images coco/

  bench data verify annotations/dataset_coco.json --images coco/ --regions cocobu_att

  bench data verify scenes --regions boxes --graphs scenes
"""

_SHOWN = 8


def register(group: typer.Typer) -> None:
    """Add the command to `bench data`."""
    group.command("verify", epilog=_EXAMPLES)(verify)


def verify(
    data: DataArgument,
    images: ImagesOption = None,
    regions: Annotated[
        str | None, typer.Option(callback=refuse_empty, help="Check these regions too, as for bench run.")
    ] = None,
    graphs: GraphsOption = None,
    graph_words: GraphWordsOption = 10,
    graph_labels: GraphLabelsOption = 20,
    workspace: WorkspaceOption = DEFAULT,
) -> None:
    """Decode every picture and list all that cannot be used; with --regions and --graphs, of these too.

    Exit code 0: all are sound; 1: some are not, or have no box; 2: the data set itself cannot be opened.
    """
    from harness.config.features import graph_config, region_config
    from harness.data.opening import open_dataset
    from harness.data.regions.checking import read_regions
    from harness.data.regions.opening import needs_backbone, open_source
    from harness.data.verify import find_bad_images, has_pictures
    from harness.utils.progress import Reporter

    place = Workspace(workspace)
    place.create()
    with cache_errors(place):
        dataset = open_dataset(data, cache_dir=place.cache, images=images)
    chosen = region_config(regions, "all", 1)
    related = graph_config(graphs, graph_words, graph_labels, chosen)
    if chosen is None or needs_backbone(chosen.source) or has_pictures(dataset):
        with (
            cache_errors(place),
            Reporter() as reporter,
            reporter.task("pictures checked", len(dataset.samples)) as task,
        ):
            bad = find_bad_images(
                dataset, cache_dir=place.cache, progress=lambda done, _: task.reach(done), reuse=False
            )
    else:  # files of features do without pictures
        typer.echo(f"no picture is in {dataset.root} (--images DIR): the regions alone are checked", err=True)
        bad = dict(dataset.faults)
    counts: dict[int, int] = {}
    whole: list[int] = []
    if chosen is not None:
        source = open_source(chosen.source, dataset)
        for image_id, found in read_regions(source, dataset, skip=bad):
            if isinstance(found, str):
                bad[image_id] = found.removeprefix(f"image {image_id}: ")
            else:
                counts[image_id] = found.count
                whole += [image_id] if found.whole else []
    if related is not None:
        from harness.data.graphs.verify import verify_graphs  # imports torch

        unusable, said = verify_graphs(related, dataset, counts.keys() - bad.keys(), counts.get)
        bad |= {image_id: told.removeprefix(f"image {image_id}: ") for image_id, told in sorted(unusable.items())}
        for line in said:
            typer.echo(line)
    splits = {sample.image_id: sample.split for sample in dataset.samples}
    for image_id, reason in bad.items():
        typer.echo(f"image {image_id} ({splits[image_id]}): {reason}")
    if whole:
        few = ", ".join(map(str, whole[:_SHOWN])) + ", ..." * (len(whole) > _SHOWN)
        typer.echo(
            f"{len(whole)} of {len(splits)} images have no box in {regions} "
            f"({describe_splits(splits[image] for image in whole)}): {few}"
        )
        typer.echo("a run takes the whole image for their one region: give boxes of them if they have some", err=True)
    if bad:
        typer.echo(
            f"{len(bad)} of {len(splits)} images cannot be used ({describe_splits(splits[image] for image in bad)})"
        )
        typer.echo("repair them, or run with --skip-bad-images, which records what was skipped", err=True)
    if bad or whole:
        raise typer.Exit(1)
    typer.echo(
        f"all {len(splits)} images are sound ({describe_splits(splits.values())}); data set #{dataset.fingerprint[:8]}"
    )
