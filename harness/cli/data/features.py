"""`bench data features`: grid cells or regions made ready ahead of the first run that looks at them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from harness.utils.workspace import DEFAULT, Workspace

EXAMPLES = """
Examples:

  bench data features scenes --regions boxes

  bench data features dataset_coco.json --regions cocobu_att --region-count fixed:36

  bench data features dataset_coco.json --images coco/ --regions trainval_36.tsv

  bench data features dataset_coco.json --images coco/ --backbone resnet101
"""


def features(
    data: Annotated[str, typer.Argument(metavar="DATA", help="'scenes', a Karpathy folder, or its JSON file.")],
    images: Annotated[Path | None, typer.Option(help="Where the pictures lie, if not with the JSON.")] = None,
    regions: Annotated[str | None, typer.Option(help="As for bench run; grid cells without it.")] = None,
    region_count: Annotated[str, typer.Option(help="all, fixed:36 or adaptive:10-100.")] = "all",
    region_bins: Annotated[int, typer.Option(min=1, max=14, help="Bins a side that are cut for a box.")] = 1,
    backbone: Annotated[str, typer.Option(help="'filterbank' or a timm model.")] = "filterbank",
    backbone_weights: Annotated[Path | None, typer.Option(help="Its weights: .safetensors or .pth.")] = None,
    backbone_option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for timm's create_model.")] = None,
    image_size: Annotated[int | None, typer.Option(min=1, help="Pixels a side, if not the backbone's.")] = None,
    normalisation: Annotated[str | None, typer.Option(help="imagenet, half or clip.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    skip_bad_images: Annotated[bool, typer.Option("--skip-bad-images", help="Go on without unusable images.")] = False,
    workspace: Annotated[Path, typer.Option("--workspace", help="Where generated data and caches go.")] = DEFAULT,
) -> None:
    """Convert region features, or extract grid cells, into the cache that `bench run` with the same options uses.

    Region files of any size are read piece by piece. Exit code 2 names every image whose regions cannot be used.
    """
    from harness.config.features import feature_config, region_config
    from harness.data.opening import open_dataset
    from harness.data.prepare_features import configured_backbone, prepare_features
    from harness.runner.benchmark import choose_device
    from harness.utils.progress import Reporter

    config = feature_config(
        backbone,
        backbone_weights,
        tuple(backbone_option or ()),
        image_size,
        normalisation,
        region_config(regions, region_count, region_bins),
    )
    place, chosen, started = Workspace(workspace), choose_device(device), time.monotonic()
    place.create()
    dataset = open_dataset(data, cache_dir=place.cache, images=images)
    with Reporter() as reporter:
        found = prepare_features(
            dataset,
            config,
            configured_backbone(config),
            sees={"features": "grid"},
            cache_dir=place.cache,
            may_skip=skip_bad_images,
            device=chosen,
            reporter=reporter,
        )
        ready = len(dataset.samples) - len(found.skipped)
        seconds = time.monotonic() - started
        reporter.note(f"{found.described}: {ready} images ready in {place.cache}, {seconds:.1f} s")
