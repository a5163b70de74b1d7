"""Region features in an HDF5 file: a dataset for each image, `ID` or `ID_features`, and boxes in `ID_boxes`.

This is the format of Meshed-Memory Transformer and others. Links to other files and virtual or external storage are
refused, since the file is untrusted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.fingerprint import picture_digest
from harness.data.regions.contract import MAX_BYTES, BadRegions, Numbers, RawRegions
from harness.utils.errors import BenchError
from results.errors import install_extra
from zoo.errors import first_line

SUFFIXES = (".h5", ".hdf5", ".hdf")


class RegionHdf5:
    """The datasets of one file; if any of its images has boxes, all must."""

    boxes_only = False

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._path = path
        seal = f"{path.name} {path.stat().st_mtime_ns}\n".encode() + picture_digest(path)
        self.fingerprint = hashlib.sha256(seal).hexdigest()

    def read(self, image_ids: Sequence[int]) -> Iterator[tuple[int, RawRegions | str]]:
        """Regions in the order of the ids."""
        try:
            import h5py
        except ImportError as error:
            raise BenchError(f"{self._path} is HDF5, and h5py is not installed", install_extra("hdf5")) from error
        try:
            with h5py.File(self._path, "r") as file:
                boxed = any(f"{image_id}_boxes" in file for image_id in image_ids)
                for image_id in image_ids:
                    names = (f"{image_id}_features", str(image_id))
                    if name := next((name for name in names if name in file), None):
                        try:
                            features = _load(h5py, file, name)
                            if features.ndim != 2:
                                raise BadRegions(f"has features of shape {features.shape} in {name}")
                            boxes = _load(h5py, file, f"{image_id}_boxes") if boxed else None
                            yield image_id, RawRegions(features, boxes)
                        except BadRegions as bad:
                            yield image_id, str(bad)
        # Of damaged indices the library raises RuntimeError, and others of what it then takes them for.
        except (OSError, RuntimeError, LookupError, TypeError, ValueError) as error:
            raise BenchError(
                f"{self._path} cannot be read as HDF5: {first_line(error)}", "it is damaged: copy or download it again"
            ) from error


def _load(h5py: Any, file: Any, name: str) -> Numbers:
    try:
        link = file.get(name, getlink=True)
        if link is None:
            raise BadRegions(f"has features but no {name}")
        found = file.get(name) if isinstance(link, h5py.HardLink) else None
        if not isinstance(found, h5py.Dataset) or found.is_virtual or found.external:
            raise BadRegions(f"{name} is not a plain dataset of the file")
        if not np.issubdtype(found.dtype, np.floating) or found.nbytes > MAX_BYTES:
            raise BadRegions(f"{name} holds {found.dtype} of shape {found.shape}")
        array: Numbers = found[()]
    except (OSError, RuntimeError, LookupError, TypeError, ValueError) as error:
        raise BadRegions(f"{name} cannot be read: {first_line(error)}") from error
    return array
