"""`bench data features`: grid cells or regions made ready ahead of the first run that looks at them."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from harness.cli.options import (
    BackboneSettingOption,
    BackboneWeightsOption,
    DataArgument,
    DeviceOption,
    ImageSizeOption,
    ImagesOption,
    NormalisationOption,
    RegionBinsOption,
    RegionCountOption,
    SkipBadImagesOption,
    WorkspaceOption,
    refuse_empty,
)
from harness.cli.output import cache_errors
from harness.utils.workspace import DEFAULT, Workspace

_EXAMPLES = """
Examples:

  bench data features scenes --regions boxes

  bench data features dataset_coco.json --regions cocobu_att --region-count fixed:36

  bench data features dataset_coco.json --images coco/ --regions trainval_36.tsv

  bench data features dataset_coco.json --images coco/ --backbone resnet101
"""


def register(group: typer.Typer) -> None:
    """Add the command to `bench data`."""
    group.command("features", epilog=_EXAMPLES)(features)


def features(
    data: DataArgument,
    images: ImagesOption = None,
    regions: Annotated[
        str | None, typer.Option(callback=refuse_empty, help="As for bench run; grid cells without it.")
    ] = None,
    region_count: RegionCountOption = "all",
    region_bins: RegionBinsOption = 1,
    backbone: Annotated[
        str, typer.Option(callback=refuse_empty, help="'filterbank', 'scenesnet' or a timm model.")
    ] = "filterbank",
    backbone_weights: BackboneWeightsOption = None,
    backbone_option: BackboneSettingOption = None,
    image_size: ImageSizeOption = None,
    normalisation: NormalisationOption = None,
    device: DeviceOption = "auto",
    skip_bad_images: SkipBadImagesOption = False,
    workspace: WorkspaceOption = DEFAULT,
) -> None:
    """Convert region features, or extract grid cells, into the cache that `bench run` with the same options uses.

    Region files are streamed, whatever their size. Exit code 2 names every image whose regions cannot be used.
    """
    from harness.benchmark.plan import choose_device
    from harness.config.features import feature_config, region_config
    from harness.data.opening import open_dataset
    from harness.data.prepare_features import configured_backbone, prepare_features, warn_of_preprocessing
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
    with cache_errors(place), Reporter() as reporter:
        dataset = open_dataset(data, cache_dir=place.cache, images=images)
        warn_of_preprocessing(config, {"features": "grid"}, reporter)
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
