"""Prepare the features of a run: check the images, open the backbone, extract grid cells or convert regions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from harness.config.features import FeatureConfig, RegionConfig
from harness.data.backbones.backbone import BUILT_IN, Backbone
from harness.data.dataset import Dataset
from harness.data.feature_cache import Spread, extract_features, features_folder
from harness.data.features import META, Features
from harness.data.regions.cache import locate_grid, locate_regions, prepare_file_grid, prepare_regions
from harness.data.regions.features import RegionFeatures, VisualFeatures
from harness.data.regions.opening import needs_backbone
from harness.data.verify import find_bad_images, known_bad_images
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from zoo.kinds import VisualKind

TRAINING_SPLITS = ("train", "val")
_LISTED = 20


def warn_of_preprocessing(config: FeatureConfig, sees: Collection[VisualKind], reporter: Reporter) -> None:
    """Warn where the preprocessing probably differs from that of the backbone's training, if its features are used."""
    if _needs_images(config, sees) and set(sees) != {"none"} and config.backbone not in BUILT_IN:
        from harness.data.backbones.timm_backbone import preprocessing_doubts  # timm takes seconds to import

        for doubt in preprocessing_doubts(config):
            reporter.note(f"features may be wrong: {doubt}", style="yellow")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Visual input of the models of a run.

    Attributes:
        features: None if no model uses any.
        described: description of the features in signatures.
        skipped: by image id, the reason why an image is left out.
        grid: the grid of models with regions and a grid.
    """

    features: VisualFeatures | None
    described: str
    skipped: dict[int, str]
    grid: VisualFeatures | None = None


def prepare_features(
    dataset: Dataset,
    config: FeatureConfig,
    backbone: Backbone,
    *,
    sees: Collection[VisualKind],
    cache_dir: Path,
    may_skip: bool,
    device: torch.device,
    reporter: Reporter,
    spread: Spread | None = None,
) -> Prepared:
    """Check every image, then extract, convert or re-use the features.

    Images are not checked if region features come from files and no model uses pixels. Grid cells are extracted only if
    a model uses them; regions always, since the signature has their digest.

    Args:
        sees: the kinds of visual input of the models.
        may_skip: whether unusable images or regions are left out; otherwise they raise a BenchError.

    Raises:
        BenchError: unusable images or regions, or an unreadable source.
    """
    regions = config.regions
    bad = dict(dataset.faults)
    if _needs_images(config, sees):
        bad = find_bad_images(dataset, cache_dir=cache_dir, reporter=reporter)
    skip_or_refuse(bad, dataset, may_skip, reporter)

    def extract_maps() -> Features:
        return extract_features(
            dataset,
            backbone,
            cache_dir=cache_dir,
            skip=bad,
            device=str(device),
            reporter=reporter,
            spread=spread,
        )

    if regions is None:
        return Prepared(extract_maps() if _needs_cells(sees) else None, backbone.describe(), bad)

    def extract_maps_for(bad_boxes: Mapping[int, str]) -> Features:
        if not may_skip:
            skip_or_refuse(bad_boxes, dataset, may_skip, reporter)
        return extract_maps()

    with reporter.step(f"Checking the regions of {len(dataset.samples):,} images"):
        features = prepare_regions(
            dataset, regions, backbone, extract_maps_for, cache_dir=cache_dir, skip=bad, reporter=reporter
        )
    skip_or_refuse(features.bad, dataset, may_skip, reporter)
    _note_missing_boxes(features, regions, reporter)
    skipped = bad | features.bad
    grid: VisualFeatures | None = None
    if "regions+grid" in sees and needs_backbone(regions.source):
        grid = extract_maps()  # from the cache, since the regions were pooled from these maps
    elif "regions+grid" in sees:
        file_grid = prepare_file_grid(dataset, regions, cache_dir=cache_dir, skip=skipped, reporter=reporter)
        if file_grid is not None:
            skip_or_refuse(file_grid.bad, dataset, may_skip, reporter)
            skipped |= file_grid.bad
        grid = file_grid
    return Prepared(features, features.describe(), skipped, grid)


def _note_missing_boxes(features: RegionFeatures, config: RegionConfig, reporter: Reporter) -> None:
    """Show notes on images, or a source, without boxes."""
    if features.whole_images:
        reporter.note(
            f"{features.whole_images} of {len(features)} images have no box: "
            "the whole image is used as their only region"
        )
    if not features.has_boxes:
        reporter.note(
            f"{config.source} has no boxes (NAME_box beside NAME_att, ID_boxes in HDF5): models that need them fail"
        )


def missing_features(
    dataset: Dataset, config: FeatureConfig, backbone: Backbone, *, sees: Collection[VisualKind], cache_dir: Path
) -> list[str]:
    """Descriptions of what `prepare_features` would have to compute; BenchError for a source that cannot be read."""
    regions = config.regions
    missing = []
    images = f"{len(dataset.samples):,} images"
    skip = known_bad_images(dataset, cache_dir) if _needs_images(config, sees) else dict(dataset.faults)
    if skip is None:
        missing.append(f"{images} checked")
        skip = dict(dataset.faults)

    def is_missing(folder: Path | None) -> bool:
        return folder is not None and not (folder / META).is_file()

    cells = features_folder(dataset, backbone, cache_dir, frozenset(skip))
    if regions is None:
        if _needs_cells(sees) and is_missing(cells):
            missing.append(f"features of {images} ({backbone.name})")
        return missing
    uses_maps = needs_backbone(regions.source)
    folder = locate_regions(dataset, regions, backbone, cache_dir, skip)[2]
    if is_missing(folder):
        if uses_maps and is_missing(cells):
            missing.append(f"features of {images} ({backbone.name})")
        missing.append(f"regions of {images}")
        return missing
    if "regions+grid" in sees:
        grids: Path | None = cells
        if not uses_maps:
            located = locate_grid(dataset, regions, cache_dir, skip | RegionFeatures(folder).bad)
            grids = None if located is None else located[1]
        if is_missing(grids):
            missing.append(f"grids of {images}")
    return missing


def _needs_images(config: FeatureConfig, sees: Collection[VisualKind]) -> bool:
    """Whether images are decoded: not if regions come from files and no model uses pixels, nor without models."""
    return bool(sees) and (config.regions is None or needs_backbone(config.regions.source) or "pixels" in sees)


def _needs_cells(sees: Collection[VisualKind]) -> bool:
    """Whether any model uses a backbone's features, if there are no regions."""
    return not {"grid", "regions", "regions+grid", "pooled"}.isdisjoint(sees)


def skip_or_refuse(bad: Mapping[int, str], dataset: Dataset, may_skip: bool, reporter: Reporter) -> None:
    """Report skipped images, or raise a BenchError that lists them unless `may_skip`."""
    if not bad:
        return
    suffix = f"\n  and {len(bad) - _LISTED} more" if len(bad) > _LISTED else ""
    listing = "\n".join(f"  {reason}" for _, reason in sorted(bad.items())[:_LISTED]) + suffix
    if not may_skip:
        raise BenchError(
            f"{len(bad)} of {len(dataset.samples)} images cannot be used:\n{listing}",
            "repair them, or add --skip-bad-images to leave them out (recorded with the results); "
            "`bench data verify` lists them all",
        )
    in_test = sum(sample.image_id in bad and sample.split not in TRAINING_SPLITS for sample in dataset.samples)
    reporter.note(f"{len(bad)} bad images skipped, {in_test} of them from evaluated splits; recorded with the results:")
    reporter.note(listing)
