"""Bottom-up features as a folder of arrays: `NAME_att/ID.npz` and, beside it, `NAME_box/ID.npy`.

As `make_bu_data.py` of the bottom-up converters writes them. A grid (h, w, C), as `prepro_feats.py` writes it, becomes
h * w regions without boxes. `NAME_fc/ID.npy` is not read: it is the mean over the regions, which "pooled" is anyway.
"""

import hashlib
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from harness.data.regions.regions import MAX_BYTES, BadRegions, Numbers, RawRegions, RegionSource
from harness.utils.errors import BenchError
from results.files import check_regular

SUFFIXES = (".npz", ".npy")
_KEYS = ("feat", "z")
_DAMAGE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError)


class RegionFolder(RegionSource):
    """The arrays of a folder, and the boxes of the folder beside it, if any."""

    def __init__(self, folder: Path) -> None:
        if folder.name.endswith("_box"):  # boxes would pass for features of four channels
            features = folder.with_name(folder.name.removesuffix("_box") + "_att")
            raise BenchError(f"--regions {folder} is a folder of boxes", f"--regions {features}")
        self._features, files = _listing(folder)
        if not self._features:
            raise BenchError(f"the folder {folder} holds no ID.npz or ID.npy", "give the folder NAME_att, or a .tsv")
        neighbour = folder.with_name(folder.name.removesuffix("_att") + "_box")
        self._boxes: dict[int, Path] | None = None
        if folder.name.endswith("_att") and neighbour.is_dir():
            self._boxes, more = _listing(neighbour)
            files += more
        self.name = folder.name
        self.fingerprint = hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()

    def image(self, image_id: int) -> RawRegions | None:
        """See `RegionSource`."""
        if image_id not in self._features:
            return None
        features = _load(self._features[image_id])
        if features.ndim == 3 and self._boxes is None:
            features = features.reshape(-1, features.shape[2])
        if features.ndim != 2:
            raise BadRegions(f"has features of shape {features.shape} instead of (regions, channels)")
        if self._boxes is None:
            return RawRegions(features)
        if image_id not in self._boxes:
            raise BadRegions("has features but no box file")
        return RawRegions(features, _load(self._boxes[image_id]))


def _listing(folder: Path) -> tuple[dict[int, Path], list[str]]:
    """Arrays by image id, and a line with name, size and time for each; BenchError where two are of one image."""
    found: dict[int, Path] = {}
    lines = []
    with os.scandir(folder) as entries:
        for entry in entries:
            stem, dot, suffix = entry.name.rpartition(".")
            if dot + suffix in SUFFIXES and stem.isascii() and stem.isdecimal():
                state = entry.stat()
                if other := found.get(int(stem)):
                    raise BenchError(
                        f"{folder} has two files of image {int(stem)}: {', '.join(sorted((other.name, entry.name)))}",
                        "leave one of them there",
                    )
                found[int(stem)] = Path(entry.path)
                lines.append(f"{folder.name}/{entry.name} {state.st_size} {state.st_mtime_ns}")
    return found, lines


def _load(path: Path) -> Numbers:
    """The array of a file, read without executing code."""
    try:
        size = check_regular(path)
        if path.suffix == ".npy":
            if size > MAX_BYTES:
                raise BadRegions(f"has more than {MAX_BYTES >> 20} MiB in {path.name}")
            array = np.array(np.load(path, mmap_mode="r", allow_pickle=False))
        else:
            array = _load_zipped(path)
    except _DAMAGE as error:
        raise BadRegions(f"{path.name} cannot be read: {str(error) or type(error).__name__}") from error
    if not np.issubdtype(array.dtype, np.floating) or not array.ndim:
        raise BadRegions(f"{path.name} holds {array.dtype} of shape {array.shape} instead of floating-point numbers")
    return array


def _load_zipped(path: Path) -> Numbers:
    with np.load(path, allow_pickle=False) as arrays:
        key = next((key for key in _KEYS if key in arrays.files), None)
        if key is None:
            raise BadRegions(f"{path.name} holds no array named {' or '.join(_KEYS)}")
        if arrays.zip.getinfo(f"{key}.npy").file_size > MAX_BYTES:
            raise BadRegions(f"has more than {MAX_BYTES >> 20} MiB in {path.name}")
        found: Numbers = arrays[key]
        return found
