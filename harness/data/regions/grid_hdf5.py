"""The grids beside the regions of an HDF5 file, as DLCT's authors store both: an image's cells (L, C) in `ID_grids`."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.config.features import RegionConfig
from harness.data.cache_storage import is_cached, keep_cache
from harness.data.dataset import Dataset
from harness.data.feature_cache import disk_errors
from harness.data.features import ARRAY, META, Features, Half, array_header
from harness.data.regions.contract import BadRegions, Numbers
from harness.data.regions.hdf5 import RegionHdf5, grid_name, load, opened, square_side
from harness.data.regions.opening import open_source
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.hashing import digest
from harness.utils.storage import Storage
from harness.utils.workspace import locked
from results.files import read_text

FORMAT = 1
_CHUNK = 512  # images a checksum


@dataclass(frozen=True, slots=True)
class FileGrid:
    """The grids of a file; `bad` has the reasons of the images without a usable one, by id."""

    features: Features
    bad: dict[int, str]


def prepare_file_grid(
    dataset: Dataset,
    config: RegionConfig,
    *,
    cache_dir: Path,
    skip: Collection[int] = (),
    progress: Callable[[int], None] | None = None,
    notify: Callable[[str], None] | None = None,
    storage: Storage | None = None,
) -> FileGrid | None:
    """Grids of all images of a data set but those in `skip`, from the cache where it has them.

    None where the source is no HDF5 file, or holds no grid beside the regions of any of these images.

    Args:
        progress: called with the number of images done; not called if the cache is complete.
        notify: called with a sentence when this process waits for another one that holds the cache.
        storage: where the grids are fetched from, or kept once they are converted.

    Raises:
        BenchError: a file that cannot be read, a full disk, a damaged cache.
    """
    place = _place(dataset, config, cache_dir, skip)
    if place is None:
        return None
    source, ids, folder = place
    if not (folder / META).is_file():

        def wait() -> None:
            if notify is not None:
                notify(f"another process is converting these grids into {folder}; waiting for it")

        with disk_errors(folder), locked(folder / "lock", wait):
            if not is_cached(folder, storage):
                _write(folder, source, ids, progress or (lambda _done: None))
                keep_cache(folder, storage)
    features = Features(folder)
    bad = json.loads(read_text(folder / META))["bad"]
    return FileGrid(features, {int(image_id): str(reason) for image_id, reason in bad.items()})


def file_grid_folder(dataset: Dataset, config: RegionConfig, cache_dir: Path, skip: Collection[int]) -> Path | None:
    """Where the grids are, or will be; None where `prepare_file_grid` gives None."""
    place = _place(dataset, config, cache_dir, skip)
    return None if place is None else place[2]


def _place(
    dataset: Dataset, config: RegionConfig, cache_dir: Path, skip: Collection[int]
) -> tuple[RegionHdf5, list[int], Path] | None:
    """The source, the images in their order, and the folder; None where there is no grid beside any regions."""
    source = open_source(config.source, dataset)
    if not isinstance(source, RegionHdf5):
        return None
    ids = [sample.image_id for sample in dataset.samples if sample.image_id not in skip]
    with opened(source.path) as file:
        if not any(f"{image_id}_features" in file and grid_name(image_id) in file for image_id in ids):
            return None
    return source, ids, cache_dir / "features" / digest(["grids", FORMAT, source.fingerprint, ids], 24)


def _write(folder: Path, source: RegionHdf5, ids: Sequence[int], progress: Callable[[int], None]) -> None:
    """Write the array and, last, its description. Its first line is written again once the images are counted."""
    kept: list[int] = []
    bad: dict[int, str] = {}
    sums = [hashlib.sha256()]
    shape: tuple[int, int] = (0, 0)
    with (folder / ARRAY).open("wb") as array:
        array.write(array_header((0, 0, 0)))
        for done, (image_id, cells) in enumerate(_read(source, ids), 1):
            if isinstance(cells, str):
                bad[image_id] = f"image {image_id}: {cells} ({source.name})"
            else:
                shape = (cells.shape[0], cells.shape[1])
                if kept and len(kept) % _CHUNK == 0:
                    sums.append(hashlib.sha256())
                content = cells.astype("<f2").tobytes()
                array.write(content)
                sums[-1].update(content)
                kept.append(image_id)
            progress(done)
        if not kept:
            raise BenchError(
                f"no image of {source.name} has a usable grid: {bad[ids[0]]}", "write the grids of the file again"
            )
        array.seek(0)
        array.write(array_header((len(kept), *shape)))
        array.flush()
        os.fsync(array.fileno())
    side = math.isqrt(shape[0])
    checksums = [each.hexdigest() for each in sums]
    meta = {
        "format": FORMAT,
        "source": source.name,
        "key": digest(["grids", shape, kept, checksums], 64),
        "shape": [len(kept), *shape],
        "grid": [side, side],
        "image_ids": kept,
        "chunk_rows": _CHUNK,
        "sha256": checksums,
        "bad": bad,
    }
    write_text(folder / META, json.dumps(meta))


def _read(source: RegionHdf5, ids: Sequence[int]) -> Iterator[tuple[int, Half | str]]:
    """The cells of each image, all of the first one's shape, or the reason why they cannot be used."""
    shape: tuple[int, ...] | None = None
    with opened(source.path) as file:
        for image_id in ids:
            name = grid_name(image_id)
            try:
                cells = _sound(load(file, name), name, shape)
            except BadRegions as bad:
                yield image_id, str(bad)
            else:
                shape = cells.shape
                yield image_id, cells


def _sound(cells: Numbers, name: str, shape: tuple[int, ...] | None) -> Half:
    """The cells in half precision; BadRegions where they are no square grid, of another shape, or not finite."""
    square_side(cells, name)
    if shape is not None and cells.shape != shape:
        raise BadRegions(f"has cells of shape {cells.shape} in {name} instead of {shape}")
    with np.errstate(over="ignore"):
        half: Half = cells.astype(np.float16)
    if not np.isfinite(half).all():
        what = "values beyond half precision" if np.isfinite(cells).all() else "NaN or infinite values"
        raise BadRegions(f"has {what} in {name}")
    return half
