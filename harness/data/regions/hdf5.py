"""Region features in an HDF5 file: a dataset for each image, `ID` or `ID_features`, and boxes in `ID_boxes`.

This is the format of Meshed-Memory Transformer and others. DLCT's files add `ID_size`, height and width of the image
that the boxes are in, and `ID_grids`, the cells of a square grid, which are read on their own.
RSTNet's have these cells alone, which are regions then. Links to other files and virtual or external storage are
refused, since the file is untrusted.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.dataset import picture_digest
from harness.data.regions.regions import MAX_BYTES, BadRegions, Numbers, RawRegions, RegionSource, Size
from harness.utils.errors import BenchError
from results.errors import install_extra
from zoo.errors import first_line

SUFFIXES = (".h5", ".hdf5", ".hdf")
_READER_VERSION = 2  # increase it if files are read differently, so that caches are rebuilt


class RegionHdf5(RegionSource):
    """The datasets of one file; if any of its images has boxes or a size, all must.

    With `grids`, or if no image has regions, the cells of grids are read as regions. With `grids` all images must have
    equally many.
    """

    def __init__(self, path: Path, *, grids: bool = False) -> None:
        self.name = f"{path.name}:grids" if grids else path.name
        self.path = path
        self._grids = grids
        identity = f"{_READER_VERSION} {path.name} {path.stat().st_mtime_ns}\n".encode() + picture_digest(path)
        self.fingerprint = hashlib.sha256(identity).hexdigest()

    def has_grids_beside(self, image_ids: Sequence[int]) -> bool:
        """Whether any of the images has both regions and a grid."""
        with opened(self.path) as file:
            return any(f"{image_id}_features" in file and f"{image_id}_grids" in file for image_id in image_ids)

    def read(self, image_ids: Sequence[int]) -> Iterator[tuple[int, RawRegions | str]]:
        """Regions in the order of the ids."""
        with opened(self.path) as file:
            names_by_id = {image_id: (f"{image_id}_features", str(image_id)) for image_id in image_ids}
            boxed = any(f"{image_id}_boxes" in file for image_id in image_ids)
            sized = any(f"{image_id}_size" in file for image_id in image_ids)
            use_grids = self._grids or not any(name in file for names in names_by_id.values() for name in names)
            cell_count: int | None = None  # of the grids read so far, if all must have equally many cells
            for image_id, names in names_by_id.items():
                possible_names = (f"{image_id}_grids",) if use_grids else names
                name = next((name for name in possible_names if name in file), None)
                if name is None:
                    continue
                try:
                    features = load(file, name)
                    if features.ndim != 2:
                        raise BadRegions(f"has features of shape {features.shape} in {name}")
                    if use_grids:
                        side = _grid_side(features, cell_count, name)
                        cell_count = len(features) if self._grids else None
                        yield image_id, RawRegions(features, _cells(side), (side, side))
                    else:
                        boxes = load(file, f"{image_id}_boxes") if boxed else None
                        size = _size(file, f"{image_id}_size") if sized else None
                        yield image_id, RawRegions(features, boxes, size)
                except BadRegions as bad:
                    yield image_id, str(bad)


def _grid_side(features: Numbers, cell_count: int | None, name: str) -> int:
    """The side of the square grid of these cells; BadRegions if it is none, or not of `cell_count` cells."""
    side = math.isqrt(len(features))
    if not side or side * side != len(features) or (cell_count or side * side) != side * side:
        suffix = f" of {cell_count} cells as others are" if cell_count else ""
        raise BadRegions(f"has cells {features.shape} in {name}, which are no square grid{suffix}")
    return side


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The open file; BenchError if h5py is not installed, or the file cannot be read, here or in the block."""
    try:
        import h5py
    except ImportError as error:
        raise BenchError(f"{path} is HDF5, and h5py is not installed", install_extra("hdf5")) from error
    try:
        with h5py.File(path, "r") as file:
            yield file
    # With damaged indices the library raises RuntimeError, or errors about what it read instead.
    except (OSError, RuntimeError, LookupError, TypeError, ValueError) as error:
        raise BenchError(
            f"{path} cannot be read as HDF5: {first_line(error)}", "it is damaged: copy or download it again"
        ) from error


def load(file: Any, name: str, kind: Any = np.floating) -> Numbers:
    """A dataset of the file as an array of this kind of numbers; BadRegions if it is none.

    It is read by h5py's functions of the C library, which take half the time of its objects.
    """
    import h5py

    try:
        if name not in file:
            raise BadRegions(f"has features but no {name}")
        key = name.encode()
        is_in_file = file.id.links.get_info(key).type == h5py.h5l.TYPE_HARD
        dataset = h5py.h5o.open(file.id, key) if is_in_file else None
        if not isinstance(dataset, h5py.h5d.DatasetID) or _is_stored_elsewhere(dataset):
            raise BadRegions(f"{name} is not a plain dataset of the file")
        dtype = dataset.dtype
        shape = dataset.shape
        if not np.issubdtype(dtype, kind) or math.prod(shape) * dtype.itemsize > MAX_BYTES:
            raise BadRegions(f"{name} holds {dtype} of shape {shape}")
        array: Numbers = np.empty(shape, dtype)
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, array)
    except (OSError, RuntimeError, LookupError, TypeError, ValueError) as error:
        raise BadRegions(f"{name} cannot be read: {first_line(error)}") from error
    return array


def _is_stored_elsewhere(dataset: Any) -> bool:
    """Whether a dataset's numbers are stored in other files or are a view of other datasets."""
    import h5py

    created = dataset.get_create_plist()
    return bool(created.get_layout() == h5py.h5d.VIRTUAL or created.get_external_count())


def _cells(side: int) -> Numbers:
    """Boxes (L, 4) of a grid's cells, row by row, in units of a cell."""
    y, x = np.indices((side, side), dtype=np.float64).reshape(2, -1)
    return np.stack((x, y, x + 1, y + 1), axis=1)


def _size(file: Any, name: str) -> Size:
    """Width and height of an image, stored as height, width; BadRegions if they are not two numbers from 1 on."""
    sides = load(file, name, np.number)
    if sides.shape != (2,) or not np.isrealobj(sides) or not (np.isfinite(sides) & (sides >= 1)).all():
        raise BadRegions(f"{name} holds {sides.tolist()!r:.60} instead of a height and a width")
    height, width = (round(float(side)) for side in sides)
    return width, height
