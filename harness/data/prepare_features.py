"""Prepare the features of a run: check the images, open the backbone, extract grid cells or convert regions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from harness.config.features import FeatureConfig
from harness.data.backbones.backbone import BUILT_IN, Backbone
from harness.data.dataset import Dataset
from harness.data.feature_cache import Spread, extract_features, features_folder
from harness.data.features import META, Features
from harness.data.regions.cache import grid_place, prepare_file_grid, prepare_regions, regions_place
from harness.data.regions.features import RegionFeatures, VisualFeatures
from harness.data.regions.opening import needs_backbone
from harness.data.verify import find_bad_images, known_bad_images
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from zoo.kinds import VisualKind

TRAINING_SPLITS = ("train", "val")
_LISTED = 20


def warn_of_preprocessing(config: FeatureConfig, sees: Collection[VisualKind], reporter: Reporter) -> None:
    """Say what contradicts that the backbone's weights were trained so, where a model sees what it makes of images."""
    if _looks_at_images(config, sees) and set(sees) != {"none"} and config.backbone not in BUILT_IN:
        from harness.data.backbones.timm_backbone import preprocessing_doubts  # timm takes seconds to import

        for doubt in preprocessing_doubts(config):
            reporter.note(f"perhaps wrong features: {doubt}", style="yellow")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Visual input of the models of a run.

    `features` are None if no model uses any; `described` is their description in signatures; `skipped` has the reasons
    for the images left out, by id; `grid` has the cells beside the regions, where a model sees both.
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

    `sees` has the kinds of visual input that models read. Images are not checked if region features come from files
    and no model uses pixels. Grid cells are extracted only if a model uses them; regions, whose digest is in the
    signature, always. BenchError for unusable images or regions, unless `may_skip`, and an unreadable source.
    """
    regions, bad = config.regions, dict(dataset.faults)
    if _looks_at_images(config, sees):
        bad = find_bad_images(dataset, cache_dir=cache_dir, reporter=reporter)
    skip_or_refuse(bad, dataset, may_skip, reporter)

    def maps() -> Features:
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
        return Prepared(maps() if _wants_cells(sees) else None, backbone.describe(), bad)

    def maps_for(bad_boxes: Mapping[int, str]) -> Features:
        if not may_skip:
            skip_or_refuse(bad_boxes, dataset, may_skip, reporter)
        return maps()

    with reporter.step(f"Checking the regions of {len(dataset.samples):,} images"):
        found = prepare_regions(dataset, regions, backbone, maps_for, cache_dir=cache_dir, skip=bad, reporter=reporter)
    skip_or_refuse(found.bad, dataset, may_skip, reporter)
    if whole := found.whole_images:
        reporter.note(f"{whole} of {len(found)} images have no box: the whole image is used as their one region")
    if not found.has_boxes:
        reporter.note(
            f"{regions.source} has no boxes (NAME_box beside NAME_att, ID_boxes in HDF5): models that need them fail"
        )
    every = bad | found.bad  # maps are of the images that the regions were cut from, which are cached
    if "regions+grid" not in sees:
        return Prepared(found, found.describe(), every)
    if needs_backbone(regions.source):
        return Prepared(found, found.describe(), every, maps())
    grid = prepare_file_grid(dataset, regions, cache_dir=cache_dir, skip=every, reporter=reporter)
    if grid is not None:
        skip_or_refuse(grid.bad, dataset, may_skip, reporter)
        every |= grid.bad
    return Prepared(found, found.describe(), every, grid)


def missing_features(
    dataset: Dataset, config: FeatureConfig, backbone: Backbone, *, sees: Collection[VisualKind], cache_dir: Path
) -> list[str]:
    """What `prepare_features` would have to make, in words; BenchError for a source that cannot be read."""
    regions, missing, images = config.regions, [], f"{len(dataset.samples):,} images"
    skip = known_bad_images(dataset, cache_dir) if _looks_at_images(config, sees) else dict(dataset.faults)
    if skip is None:
        missing.append(f"{images} checked")
        skip = dict(dataset.faults)

    def lacks(folder: Path | None) -> bool:
        return folder is not None and not (folder / META).is_file()

    cells = features_folder(dataset, backbone, cache_dir, frozenset(skip))
    if regions is None:
        return missing + [f"features of {images} ({backbone.name})"] * (_wants_cells(sees) and lacks(cells))
    of_maps = needs_backbone(regions.source)
    folder = regions_place(dataset, regions, backbone, cache_dir, skip)[2]
    if lacks(folder):
        missing += [f"features of {images} ({backbone.name})"] * (of_maps and lacks(cells))
        return [*missing, f"regions of {images}"]
    if "regions+grid" in sees:
        skip = skip | RegionFeatures(folder).bad
        beside = None if of_maps else grid_place(dataset, regions, cache_dir, skip)
        missing += [f"grids of {images}"] * lacks(cells if of_maps else beside and beside[1])
    return missing


def _looks_at_images(config: FeatureConfig, sees: Collection[VisualKind]) -> bool:
    """Whether images are decoded: not where regions come from files and no model sees pixels, nor without any row."""
    return bool(sees) and (config.regions is None or needs_backbone(config.regions.source) or "pixels" in sees)


def _wants_cells(sees: Collection[VisualKind]) -> bool:
    """Whether any model sees what a backbone makes of images, where there are no regions."""
    return not {"grid", "regions", "regions+grid", "pooled"}.isdisjoint(sees)


def skip_or_refuse(bad: Mapping[int, str], dataset: Dataset, may_skip: bool, reporter: Reporter) -> None:
    """Report which images are skipped; BenchError, which names them, if none may be."""
    if not bad:
        return
    more = f"\n  and {len(bad) - _LISTED} more" if len(bad) > _LISTED else ""
    listing = "\n".join(f"  {reason}" for _, reason in sorted(bad.items())[:_LISTED]) + more
    if not may_skip:
        raise BenchError(
            f"{len(bad)} of {len(dataset.samples)} images cannot be used:\n{listing}",
            "repair them, or add --skip-bad-images to leave them out (recorded with the results); "
            "`bench data verify` lists them all",
        )
    in_test = sum(sample.image_id in bad and sample.split not in TRAINING_SPLITS for sample in dataset.samples)
    reporter.note(f"{len(bad)} bad images skipped, {in_test} of them from evaluated splits; recorded with the results:")
    reporter.note(listing)
