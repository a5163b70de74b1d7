"""Cache of region features: converted once from any source to flat arrays on disk, read by image.

A cache folder `regions/<key>/` holds `features.f16` and `boxes.f32` (all regions, one image after the other),
`index.npy` (the position of each image's regions) and in the end `meta.json`, whose existence marks the cache as
complete: a killed conversion starts again. Memory holds one image at a time, or a batch of maps for pooled regions.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.features import RegionConfig
from harness.data.backbones.backbone import Backbone
from harness.data.cache_storage import is_cached, keep_cache
from harness.data.dataset import Dataset
from harness.data.feature_cache import disk_errors
from harness.data.features import Features
from harness.data.regions.checking import read_regions
from harness.data.regions.contract import Regions, RegionSource
from harness.data.regions.features import BOXES, COLUMNS, FEATURES, INDEX, META, RegionFeatures
from harness.data.regions.opening import open_source
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.hashing import digest
from harness.utils.storage import Storage
from harness.utils.workspace import locked

FORMAT = 1
Found = Iterator[tuple[int, Regions | str]]


def prepare_regions(
    dataset: Dataset,
    config: RegionConfig,
    backbone: Backbone,
    maps: Callable[[Mapping[int, str]], Features],
    *,
    cache_dir: Path,
    skip: Collection[int] = (),
    progress: Callable[[int], None] | None = None,
    notify: Callable[[str], None] | None = None,
    storage: Storage | None = None,
) -> RegionFeatures:
    """Region features of all images of a data set but those in `skip`, from the cache where it has them.

    Images with unusable regions are only listed in `RegionFeatures.bad`.

    Args:
        backbone: its feature maps are used if the source has boxes only.
        maps: gives these maps for all images but those in `skip`; called with the faulty images once all boxes are
            checked, so that it can refuse before the work begins.
        progress: called with the number of images done; not called if the cache is complete.
        notify: called with a sentence when this process waits for another one that holds the cache.
        storage: where the regions are fetched from, or kept once they are converted.

    Raises:
        BenchError: a source that cannot be read, a full disk, a damaged cache, images that do not match the boxes.
    """
    source = open_source(config.source, dataset)
    settings = [source.name, config.keep]
    if source.boxes_only:
        settings += [f"roi{config.bins}", backbone.describe()]
    depends = _depends(source, config, backbone)
    folder = _folder(depends, dataset, cache_dir, skip)
    if not (folder / META).is_file():

        def wait() -> None:
            if notify is not None:
                notify(f"another process is converting these regions into {folder}; waiting for it")

        with disk_errors(folder), locked(folder / "lock", wait):
            if not is_cached(folder, storage):
                found = read_regions(source, dataset, skip=skip, limits=config.limits, as_listed=config.as_listed)
                if source.boxes_only:
                    found = _cut(list(found), maps, config.bins)
                # Maps differ in their last bits between devices, so their inputs identify them.
                known = digest(depends, 24) if source.boxes_only else None
                _write(folder, found, ",".join(settings), known, source, progress or (lambda _done: None))
                keep_cache(folder, storage)
    return RegionFeatures(folder)


def regions_folder(
    dataset: Dataset, config: RegionConfig, backbone: Backbone, cache_dir: Path, skip: Collection[int]
) -> Path:
    """Where the regions of all images but those in `skip` are, or will be; BenchError as `prepare_regions`."""
    source = open_source(config.source, dataset)
    return _folder(_depends(source, config, backbone), dataset, cache_dir, skip)


def _depends(source: RegionSource, config: RegionConfig, backbone: Backbone) -> list[Any]:
    """What the regions of an image are determined by, besides the image."""
    if not source.boxes_only:
        return [FORMAT, source.fingerprint, config.keep]
    if backbone.preprocessing.resize != "squash":
        raise BenchError(f"boxes do not match the input of the backbone {backbone.name}, which crops images")
    return [
        FORMAT, source.fingerprint, config.keep, config.bins, backbone.digest, backbone.preprocessing.key()
    ]  # fmt: skip


def _folder(depends: Sequence[Any], dataset: Dataset, cache_dir: Path, skip: Collection[int]) -> Path:
    key = digest([*depends, dataset.fingerprint, sorted(dataset.sizes.items()), sorted(skip)], 24)
    return cache_dir / "regions" / key


def _cut(
    checked: Sequence[tuple[int, Regions | str]], maps: Callable[[Mapping[int, str]], Features], bins: int
) -> Found:
    # torchvision takes seconds to import, and files of features do not need it.
    from harness.data.regions.align import cut_regions

    bad = {image_id: found for image_id, found in checked if isinstance(found, str)}
    return cut_regions(iter(checked), maps(bad), bins)


def _write(
    folder: Path, found: Found, settings: str, known: str | None, source: RegionSource, progress: Callable[[int], None]
) -> None:
    """Write all arrays and, last, their description.

    Args:
        known: the digest, if known beforehand; else it is made from the arrays' checksums.
    """
    index: dict[int, tuple[int, int, int, int]] = {}
    bad: dict[int, str] = {}
    rows = dim = whole = done = 0
    has_boxes: bool | None = None
    sums = {name: hashlib.sha256() for name in (FEATURES, BOXES)}
    with (folder / FEATURES).open("wb") as features, (folder / BOXES).open("wb") as boxes:
        for image_id, regions in found:
            done += image_id not in index and image_id not in bad
            progress(done)
            if isinstance(regions, str):
                index.pop(image_id, None)
                bad[image_id] = regions
                continue
            assert regions.features is not None
            if has_boxes is None:
                has_boxes = regions.boxes is not None
            parts = [(features, sums[FEATURES], regions.features.astype("<f2"))]
            if regions.boxes is not None:
                parts.append((boxes, sums[BOXES], regions.boxes.astype("<f4")))
            for file, checksum, array in parts:
                content = array.tobytes()
                file.write(content)
                checksum.update(content)
            dim, count = regions.features.shape[1], len(regions.features)
            index[image_id] = (rows, count, *(regions.size or (0, 0)))
            rows += count
            whole += regions.whole
        for file in (features, boxes):
            file.flush()
            os.fsync(file.fileno())
    table = np.array([(image_id, *place) for image_id, place in index.items()], dtype="<i8").reshape(-1, COLUMNS)
    with (folder / INDEX).open("wb") as file:
        np.save(file, table)
        os.fsync(file.fileno())
    checksums = {name: checksum.hexdigest() for name, checksum in sums.items()}
    checksums[INDEX] = hashlib.sha256((folder / INDEX).read_bytes()).hexdigest()
    meta = {
        "format": FORMAT,
        "source": source.name,
        "settings": settings,
        "digest": known or digest([checksums[name] for name in (FEATURES, BOXES, INDEX)], 24),
        "rows": rows,
        "dim": dim,
        "has_boxes": bool(has_boxes),
        "whole_images": whole,
        "bad": bad,
        "sha256": checksums,
    }
    write_text(folder / META, json.dumps(meta))
