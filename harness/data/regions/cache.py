"""Cache of region features: converted once from any source to flat arrays on disk, read by image.

A cache folder `regions/<key>/` holds `features.f16` and `boxes.f32` (all regions, one image after the other),
`index.npy` (the position of each image's regions) and in the end `meta.json`, whose existence marks the cache as
complete: a killed conversion starts again. Memory holds one image at a time, or a batch of maps for pooled regions.
The grids beside the regions of an HDF5 file, as DLCT's authors store both, have a folder of the same kind.
"""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from harness.config.features import RegionConfig
from harness.data.backbones.backbone import Backbone
from harness.data.dataset import Dataset
from harness.data.feature_cache import FORMAT as MAPS_FORMAT
from harness.data.feature_cache import computed_by, make_once
from harness.data.features import Features, Half
from harness.data.regions.features import BOXES, COLUMNS, FEATURES, INDEX, META, RegionFeatures
from harness.data.regions.hdf5 import RegionHdf5
from harness.data.regions.opening import open_source
from harness.data.regions.regions import Numbers, Regions, RegionSource, read_regions
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.hashing import digest
from harness.utils.progress import Reporter, silent

FORMAT = 1
_POOLED_TOGETHER = 32  # images
RegionsByImage = Iterator[tuple[int, Regions | str]]


def prepare_regions(
    dataset: Dataset,
    config: RegionConfig,
    backbone: Backbone,
    maps: Callable[[Mapping[int, str]], Features],
    *,
    cache_dir: Path,
    skip: Collection[int] = (),
    reporter: Reporter | None = None,
) -> RegionFeatures:
    """Region features of all images of a data set except those in `skip`, from the cache if it has them.

    Images with unusable regions are only listed in `RegionFeatures.bad`. For a source of boxes alone, `maps` gives the
    maps of the `backbone` for all images but those in `skip`; called with the faulty images once all boxes are checked,
    it can refuse before the work begins. BenchError for a source that cannot be read, a full disk, a damaged cache, and
    images that do not match the boxes.
    """
    source, depends, folder = locate_regions(dataset, config, backbone, cache_dir, skip)
    settings = [source.name, config.keep]
    if source.boxes_only:
        settings += [f"roi{config.bins}", backbone.describe()]
    reporter = reporter or silent()

    def convert() -> None:
        regions = read_regions(source, dataset, skip=skip, config=config)
        if source.boxes_only:
            checked = list(regions)
            bad = {image_id: reason for image_id, reason in checked if isinstance(reason, str)}
            regions = pool_regions(iter(checked), maps(bad), config.bins)
        # Pooled features differ in their last bits between devices, so their inputs identify them.
        source_digest = digest(depends, 24) if source.boxes_only else None
        with reporter.task("regions converted", len(dataset.samples) - len(skip)) as task:
            _write(folder, regions, ",".join(settings), source_digest, source, task.reach)

    make_once(folder, convert, "regions", reporter)
    return RegionFeatures(folder)


def locate_regions(
    dataset: Dataset, config: RegionConfig, backbone: Backbone, cache_dir: Path, skip: Collection[int]
) -> tuple[RegionSource, list[Any], Path]:
    """The source, the inputs that regions depend on, and the folder of the cache; BenchError as `prepare_regions`.

    The code and the packages that pool regions only name the folder: other ones extract anew, but are the same input.
    """
    source = open_source(config.source, dataset)
    # Boxes are fractions of the annotated sizes; windows are fractions of the image, and need no size.
    sizes_matter = dataset.sizes and not str(config.source).startswith("windows:")
    sizes = [sorted(dataset.sizes.items())] if sizes_matter else []
    depends = [FORMAT, source.fingerprint, config.keep, *sizes]
    made_by: list[str] = []
    if source.boxes_only:
        if backbone.preprocessing.resize != "squash":
            raise BenchError(f"boxes do not match the input of the backbone {backbone.name}, which crops images")
        depends += [config.bins, backbone.digest, backbone.preprocessing.key()]
        made_by = [f"maps {MAPS_FORMAT}", *computed_by()]
    return source, depends, _folder([*depends, *made_by], dataset, cache_dir, skip)


def _folder(depends: Sequence[Any], dataset: Dataset, cache_dir: Path, skip: Collection[int]) -> Path:
    key = digest([*depends, dataset.fingerprint, sorted(dataset.sizes.items()), sorted(skip)], 24)
    return cache_dir / "regions" / key


def _write(
    folder: Path,
    image_regions: RegionsByImage,
    settings: str,
    source_digest: str | None,
    source: RegionSource,
    progress: Callable[[int], None],
) -> None:
    """Write all arrays and, last, their description, with `source_digest`, or else one of the arrays."""
    index: dict[int, tuple[int, int, int, int]] = {}
    bad: dict[int, str] = {}
    rows = dim = whole_images = done = 0
    has_boxes = False
    sums = {name: hashlib.sha256() for name in (FEATURES, BOXES)}
    with (folder / FEATURES).open("wb") as features, (folder / BOXES).open("wb") as boxes:
        for image_id, regions in image_regions:
            done += image_id not in index and image_id not in bad
            progress(done)
            if isinstance(regions, str):
                index.pop(image_id, None)
                bad[image_id] = regions
                continue
            assert regions.features is not None
            parts: list[tuple[BinaryIO, Any, Numbers]] = [
                (features, sums[FEATURES], half_precision(regions.features).astype("<f2", copy=False))
            ]
            if regions.boxes is not None:
                has_boxes = True
                parts.append((boxes, sums[BOXES], regions.boxes.astype("<f4")))
            for file, checksum, array in parts:
                content = array.tobytes()
                file.write(content)
                checksum.update(content)
            dim = regions.features.shape[1]
            count = len(regions.features)
            index[image_id] = (rows, count, *(regions.size or (0, 0)))
            rows += count
            whole_images += regions.whole
        for file in (features, boxes):
            file.flush()
            os.fsync(file.fileno())
    table = np.array([(image_id, *entry) for image_id, entry in index.items()], dtype="<i8").reshape(-1, COLUMNS)
    with (folder / INDEX).open("wb") as file:
        np.save(file, table)
        os.fsync(file.fileno())
    checksums = [sums[FEATURES], sums[BOXES], hashlib.sha256((folder / INDEX).read_bytes())]
    meta = {
        "format": FORMAT,
        "source": source.name,
        "settings": settings,
        "digest": source_digest or digest([checksum.hexdigest() for checksum in checksums], 24),
        "rows": rows,
        "dim": dim,
        "has_boxes": has_boxes,
        "whole_images": whole_images,
        "bad": bad,
    }
    write_text(folder / META, json.dumps(meta))


def half_precision(features: Numbers) -> Half:
    """Round to half precision."""
    if features.dtype == np.float32:  # torch rounds it to the same numbers many times faster
        half: Half = torch.from_numpy(np.require(features, requirements=["C", "W"])).half().numpy()
        return half
    return features.astype(np.float16)


def pool_regions(image_regions: RegionsByImage, grid: Features, bins: int) -> RegionsByImage:
    """Add features (K, C * bins * bins), pooled by RoIAlign, to every image with boxes; errors are passed on.

    He et al., "Mask R-CNN", ICCV 2017. A region's feature is the mean over its box, sampled bilinearly about once a
    cell; with several bins a side, the means of the bins, one after the other within each channel.
    """
    while group := list(islice(image_regions, _POOLED_TOGETHER)):
        boxes = {image_id: regions.boxes for image_id, regions in group if not isinstance(regions, str)}
        cut = _pooled(grid, {image_id: rows for image_id, rows in boxes.items() if rows is not None}, bins)
        for image_id, regions in group:
            yield image_id, regions if isinstance(regions, str) else replace(regions, features=cut[image_id])


def _pooled(grid: Features, boxes: dict[int, Numbers], bins: int) -> dict[int, Numbers]:
    if not boxes:
        return {}
    # torchvision takes seconds to import, and files of features do not need it.
    from torchvision.ops import roi_align

    height, width = grid.grid
    maps = torch.from_numpy(grid.grid_features(list(boxes))).float()
    maps = maps.transpose(1, 2).reshape(len(boxes), -1, height, width)
    scale = np.array((width, height, width, height), dtype=np.float32)
    rois = [torch.from_numpy(np.asarray(rows * scale, dtype=np.float32)) for rows in boxes.values()]
    pooled = roi_align(maps, rois, bins, spatial_scale=1.0, sampling_ratio=-1, aligned=True)
    parts = pooled.flatten(1).split([len(rows) for rows in rois])
    return {image_id: part.numpy() for image_id, part in zip(boxes, parts, strict=True)}


def prepare_file_grid(
    dataset: Dataset,
    config: RegionConfig,
    *,
    cache_dir: Path,
    skip: Collection[int] = (),
    reporter: Reporter | None = None,
) -> RegionFeatures | None:
    """The cells of the grids that a file has besides regions, None if it has none; else as `prepare_regions`."""
    source_and_folder = locate_grid(dataset, config, cache_dir, skip)
    if source_and_folder is None:
        return None
    source, folder = source_and_folder
    reporter = reporter or silent()

    def convert() -> None:
        with reporter.task("grids converted", len(dataset.samples) - len(skip)) as task:
            _write(folder, read_regions(source, dataset, skip=skip), "grids", None, source, task.reach)

    make_once(folder, convert, "grids", reporter)
    return RegionFeatures(folder)


def locate_grid(
    dataset: Dataset, config: RegionConfig, cache_dir: Path, skip: Collection[int]
) -> tuple[RegionSource, Path] | None:
    """The source of the grids beside regions, and their folder; None if there are no grids."""
    source = open_source(config.source, dataset)
    ids = [sample.image_id for sample in dataset.samples if sample.image_id not in skip]
    if not isinstance(source, RegionHdf5) or not source.has_grids_beside(ids):
        return None
    grids = RegionHdf5(source.path, grids=True)
    return grids, _folder([FORMAT, grids.fingerprint, grids.name], dataset, cache_dir, skip)
