"""The features of a run: pictures checked, the backbone opened, grid cells or regions made ready, bad images named."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import torch

from harness.config import FeatureConfig
from harness.data.backbones import Backbone, open_backbone
from harness.data.dataset import Dataset
from harness.data.feature_cache import extract_features
from harness.data.features import Features
from harness.data.regions.cache import prepare_regions
from harness.data.regions.features import RegionFeatures
from harness.data.verify import find_bad_images
from harness.errors import BenchError
from harness.progress import Reporter

TRAINING_SPLITS = ("train", "val")
_LISTED = 20


def configured_backbone(config: FeatureConfig) -> Backbone:
    """The backbone that a configuration names; BenchError as `open_backbone`."""
    return open_backbone(
        config.backbone,
        weights=config.weights,
        options=config.options,
        image_size=config.image_size,
        normalisation=config.normalisation,
    )


def check_pictures(dataset: Dataset, *, cache_dir: Path, reporter: Reporter) -> dict[int, str]:
    """What is wrong with pictures and annotations, by image id."""
    with reporter.task("pictures checked", len(dataset.samples)) as task:
        return find_bad_images(dataset, cache_dir=cache_dir, progress=lambda done, _: task.reach(done))


def skip_or_refuse(bad: Mapping[int, str], dataset: Dataset, may_skip: bool, reporter: Reporter) -> None:
    """Say which images are skipped.

    Raises:
        BenchError: naming them, where none may be skipped.
    """
    if not bad:
        return
    listing = _first_reasons(bad)
    if not may_skip:
        raise BenchError(
            f"{len(bad)} of {len(dataset.samples)} images cannot be used:\n{listing}",
            "repair them, or add --skip-bad-images to go on without them (recorded with the results); "
            "`bench data verify` lists them all",
        )
    in_test = sum(sample.image_id in bad and sample.split not in TRAINING_SPLITS for sample in dataset.samples)
    reporter.note(f"{len(bad)} bad images skipped, {in_test} of them from evaluated splits; recorded with the results:")
    reporter.note(listing)


def grid_features(
    dataset: Dataset,
    backbone: Backbone,
    *,
    cache_dir: Path,
    skip: Collection[int],
    device: torch.device,
    reporter: Reporter,
) -> Features:
    """Cells of the backbone's maps for all images but those in `skip`, extracted or re-used."""
    with reporter.task(f"features ({backbone.name})", len(dataset.samples) - len(skip)) as task:
        return extract_features(
            dataset,
            backbone,
            cache_dir=cache_dir,
            skip=skip,
            device=str(device),
            progress=lambda done, _: task.reach(done),
            notify=reporter.note,
        )


def region_features(
    dataset: Dataset,
    config: FeatureConfig,
    backbone: Backbone,
    *,
    cache_dir: Path,
    skip: Collection[int],
    may_skip: bool,
    device: torch.device,
    reporter: Reporter,
) -> RegionFeatures:
    """Regions of all images but those in `skip`, converted or re-used; images seen as a whole are counted aloud.

    Raises:
        BenchError: naming the images whose regions cannot be used, unless `may_skip`.
    """
    assert config.regions is not None

    def maps(bad: Mapping[int, str]) -> Features:
        if not may_skip:
            skip_or_refuse(bad, dataset, may_skip, reporter)
        return grid_features(dataset, backbone, cache_dir=cache_dir, skip=skip, device=device, reporter=reporter)

    count = len(dataset.samples) - len(skip)
    with reporter.task("regions converted", count) as task:
        features = prepare_regions(
            dataset,
            config.regions,
            backbone,
            maps,
            cache_dir=cache_dir,
            skip=skip,
            progress=task.reach,
            notify=reporter.note,
        )
    skip_or_refuse(features.bad, dataset, may_skip, reporter)
    if features.whole_images:
        reporter.note(
            f"{features.whole_images} of {len(features)} images have no box: each of them is one region, the whole image"
        )
    return features


def _first_reasons(bad: Mapping[int, str]) -> str:
    lines = [f"  {reason}" for _, reason in sorted(bad.items())[:_LISTED]]
    if len(bad) > _LISTED:
        lines.append(f"  and {len(bad) - _LISTED} more")
    return "\n".join(lines)
