"""Open the source of regions that `--regions` names.

Sources with boxes only (the data set's own, windows, COCO's `instances_*.json`, a detector's COCO results) get their
features from a backbone's map (`harness.data.regions.cache`). An image without any box gets one region, the whole
image, and is counted as such.
"""

import binascii
import hashlib
import math
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from harness.config.features import RegionSourceName
from harness.data.dataset import Dataset, annotated_size, picture_digest
from harness.data.formats.ids import is_image_id
from harness.data.regions import hdf5
from harness.data.regions.hdf5 import RegionHdf5
from harness.data.regions.regions import MAX_BYTES, BadRegions, Numbers, RawRegions, RegionSource, size_of
from harness.utils.errors import BenchError
from harness.utils.files import require_file
from harness.utils.json_io import parse_json, read_file
from results.files import check_regular

_FORMS = (
    "boxes (the data set's own), windows:4, a COCO JSON of boxes, a folder NAME_att with NAME_box beside it, "
    "a bottom-up .tsv or a folder of them, or an .h5 file"
)
_COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
_MAX_DIGITS = 19  # of a whole number of 64 bits
_ARRAYS = (".npz", ".npy")
_KEYS = ("feat", "z")
_DAMAGE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError)


def needs_backbone(source: Path | RegionSourceName) -> bool:
    """Whether the source has only boxes, so that features must come from a backbone."""
    return not isinstance(source, Path) or source.suffix == ".json"


def open_source(source: Path | RegionSourceName, dataset: Dataset) -> RegionSource:
    """A source of regions: boxes, windows:N, or a file or folder, which may lack its `_att`; BenchError if unknown."""
    if not isinstance(source, Path):
        return DatasetBoxes(dataset) if source == "boxes" else Windows(dataset, int(source.partition(":")[2]))
    if source.is_file():
        if source.suffix == ".json":
            return CocoBoxes(source, dataset)
        if source.suffix in hdf5.SUFFIXES:
            return RegionHdf5(source)
        if _is_tsv(source):
            return RegionTsv(source.name, [source])
        raise BenchError(f"--regions {source}: unknown file format", f"give {_FORMS}")
    check_exists(source)
    if not source.is_dir():
        return RegionFolder(_named(source), dataset)
    entries = sorted(source.iterdir())
    tables = [entry for entry in entries if _is_tsv(entry) and entry.is_file()]
    if tables:
        return RegionTsv(source.name, tables)
    inner = [entry for entry in entries if entry.name.endswith("_att") and entry.is_dir()]
    if len(inner) == 1 and not any(entry.suffix in _ARRAYS for entry in entries):
        return RegionFolder(inner[0], dataset)
    if len(inner) > 1:
        raise BenchError(
            f"--regions {source}: several folders of features, {', '.join(entry.name for entry in inner)}",
            f"name one of them: --regions {inner[0]}",
        )
    return RegionFolder(source, dataset)


def check_exists(source: Path) -> None:
    """BenchError if there is no such file or folder, with or without its `_att`."""
    if source.is_file() or source.is_dir() or _named(source).is_dir():
        return
    if source.exists():
        require_file(source, "--regions", f"give {_FORMS}")
    raise BenchError(f"--regions {source} does not exist", f"give {_FORMS}")


def _named(source: Path) -> Path:
    return source.with_name(f"{source.name}_att")


def _is_tsv(path: Path) -> bool:
    """Whether it is a TSV, or a part of a split one: `NAME.tsv.0`."""
    return ".tsv" in path.suffixes[-2:]


class DatasetBoxes(RegionSource):
    """The boxes in a data set's annotations, in pixels of the stored image."""

    boxes_only = True
    name = "boxes"

    def __init__(self, dataset: Dataset) -> None:
        self._boxes = {sample.image_id: sample.boxes for sample in dataset.samples}
        if not any(self._boxes.values()):
            raise BenchError(
                f"the data set {dataset.name} has no boxes of its own (--regions boxes)",
                "give COCO's instances_*.json or a detector's results: --regions FILE.json",
            )
        self.fingerprint = dataset.fingerprint

    def image(self, image_id: int) -> RawRegions:
        """See `RegionSource`."""
        return RawRegions(boxes=_rows(self._boxes[image_id] or ()))


class Windows(RegionSource):
    """The whole image, and the tiles of N rows and N columns: the same for every image, for data without boxes."""

    boxes_only = True

    def __init__(self, dataset: Dataset, side: int) -> None:
        self.name = self.fingerprint = f"windows:{side}"
        tiles = [(column, row, column + 1, row + 1) for row in range(side) for column in range(side)]
        self._shares = np.array([(0, 0, side, side), *tiles]) / side
        self._dataset = dataset
        self._samples = {sample.image_id: sample for sample in dataset.samples}

    def image(self, image_id: int) -> RawRegions:
        """See `RegionSource`."""
        size = size_of(self._samples[image_id], self._dataset)
        return RawRegions(boxes=self._shares * np.array([*size, *size]), size=size)


class CocoBoxes(RegionSource):
    """A JSON file in COCO's format: {"images", "annotations"}, or a list of {"image_id", "bbox", "score"}.

    `bbox` is x, y, width, height in pixels. Crowds count as regions. The file is held in memory as a whole.
    """

    boxes_only = True

    def __init__(self, path: Path, dataset: Dataset) -> None:
        self.name = path.name
        raw = read_file(path)
        content = parse_json(raw, path)
        self.fingerprint = hashlib.sha256(raw).hexdigest()
        entries, images = _entries(path, content)
        valid_images = [image for image in images if isinstance(image, dict) and is_image_id(image.get("id"))]
        self._sizes = {image["id"]: annotated_size(image) for image in valid_images}
        self._boxes: dict[int, list[dict[str, Any]]] = {}
        for entry in entries:
            box = {key: entry[key] for key in ("bbox", "score") if key in entry}
            self._boxes.setdefault(entry["image_id"], []).append(box)
        if not any(sample.image_id in self._boxes for sample in dataset.samples):
            raise BenchError(
                f"no image of {dataset.name} has a box in {path}",
                'the ids must be those of the data set ("cocoid", or else "imgid")',
            )

    def image(self, image_id: int) -> RawRegions:
        """See `RegionSource`."""
        boxes = []
        scores = []
        for box in self._boxes.get(image_id, ()):
            try:
                x, y, width, height = (float(0 + value) for value in box["bbox"])  # no text is a number
                boxes.append((x, y, x + width, y + height))
                if "score" in box:
                    scores.append(float(0 + box["score"]))
                    if not math.isfinite(scores[-1]):
                        raise ValueError("no score")
            except (OverflowError, TypeError, ValueError) as error:
                raise BadRegions(f"has a bbox or score that is not a number: {str(box['bbox'])[:60]}") from error
        scored = np.array(scores) if len(scores) == len(boxes) > 0 else None
        return RawRegions(None, _rows(boxes), self._sizes.get(image_id), scored)


def _rows(boxes: Iterable[Sequence[float]]) -> Numbers:
    return np.array(list(boxes), dtype=np.float64).reshape(-1, 4)


def _entries(path: Path, content: Any) -> tuple[list[Any], list[Any]]:
    """The entries of the boxes, and those of the images if the file lists them."""
    entries = content.get("annotations") if isinstance(content, dict) else content
    images = content.get("images", []) if isinstance(content, dict) else []
    if not isinstance(entries, list) or not isinstance(images, list) or not all(map(_has_id, entries)):
        raise BenchError(
            f"{path} holds no boxes in COCO's format",
            'give {"images", "annotations"} as in instances_*.json, or a list of {"image_id", "bbox", "score"}',
        )
    return entries, images


def _has_id(entry: Any) -> bool:
    return isinstance(entry, dict) and is_image_id(entry.get("image_id")) and "bbox" in entry


class RegionTsv(RegionSource):
    """Bottom-up TSV files, read in the order given; an image with two different lines is an error.

    No header, six columns: `image_id, image_w, image_h, num_boxes, boxes (K, 4), features (K, C)`, the last two as
    base64 of little-endian float32. Files of many gigabytes are read line by line; memory holds one line. Images that
    are not in the data set are skipped.
    """

    def __init__(self, name: str, files: Sequence[Path]) -> None:
        self.name = name
        self._files = tuple(files)
        hasher = hashlib.sha256()
        for file in files:
            hasher.update(f"{file.name} {file.stat().st_mtime_ns}\n".encode() + picture_digest(file))
        self.fingerprint = hasher.hexdigest()

    def read(self, image_ids: Sequence[int]) -> Iterator[tuple[int, RawRegions | str]]:
        """Regions in the order of the files."""
        requested = frozenset(image_ids)
        lines: dict[int, bytes] = {}
        for file in self._files:
            with file.open("rb") as stream:
                for line_number, image_id, columns in _lines(stream, file):
                    if image_id not in requested:
                        continue
                    line_digest = hashlib.blake2b(columns, digest_size=8).digest()
                    where = f"line {line_number} of {file.name}"
                    if image_id in lines:
                        if lines[image_id] != line_digest:
                            yield image_id, f"comes twice with different contents, again in {where}"
                        continue
                    lines[image_id] = line_digest
                    try:
                        yield image_id, _parse(columns)
                    except BadRegions as bad:
                        yield image_id, f"{bad}, in {where}"


def _lines(stream: BinaryIO, file: Path) -> Iterator[tuple[int, int, bytes]]:
    """The number, image id and remaining columns of every line that is not blank."""
    for line_number, line in enumerate(iter(lambda: stream.readline(MAX_BYTES + 1), b""), 1):
        if len(line) > MAX_BYTES:
            raise BenchError(f"line {line_number} of {file} is longer than {MAX_BYTES >> 20} MiB: not a bottom-up TSV")
        if line.isspace():
            continue
        name, _, columns = line.partition(b"\t")
        if not name.isdigit() or len(name) > _MAX_DIGITS:
            raise BenchError(
                f"line {line_number} of {file} does not begin with an image id: {name[:30]!r}",
                f"its columns must be {', '.join(_COLUMNS)}, separated by tabs, without a header",
            )
        yield line_number, int(name), columns.rstrip(b"\r\n")


def _parse(line: bytes) -> RawRegions:
    """The columns after the id."""
    columns = line.split(b"\t")
    if len(columns) != len(_COLUMNS) - 1:
        raise BadRegions(f"has {len(columns) + 1} columns instead of {len(_COLUMNS)}")
    width, height, count = (_whole(text, name) for text, name in zip(columns[:3], _COLUMNS[1:4], strict=True))
    if not width or not height:
        raise BadRegions(f"has an image of {width} x {height} pixels")
    boxes, features = (_floats(text, name) for text, name in zip(columns[3:], _COLUMNS[4:], strict=True))
    if not count:
        raise BadRegions("has 0 regions")
    if len(boxes) != 4 * count:
        raise BadRegions(f"has {len(boxes) / 4:g} boxes instead of {count}")
    if not len(features) or len(features) % count:
        raise BadRegions(f"has {len(features)} feature values, which is not a multiple of {count} regions")
    return RawRegions(features.reshape(count, -1), boxes.reshape(count, 4), (width, height))


def _whole(text: bytes, name: str) -> int:
    if not text.isdigit() or len(text) > 9:
        raise BadRegions(f"has {text[:20]!r} as {name}")
    return int(text)


def _floats(text: bytes, name: str) -> Numbers:
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as error:
        raise BadRegions(f"has {name} that are not base64: {str(error).lower()}") from error
    if len(raw) % 4:
        raise BadRegions(f"has {name} of {len(raw)} bytes, which is not an array of float32")
    return np.frombuffer(raw, dtype="<f4")


class RegionFolder(RegionSource):
    """Bottom-up features as a folder of arrays, `NAME_att/ID.npz`, with optional boxes in `NAME_box/ID.npy`.

    ID is an image's id, or the name of its file without the ending: whichever more images of the data set have.

    This is the format of `make_bu_data.py` of the bottom-up converters. A grid (h, w, C) of `prepro_feats.py` becomes
    h * w regions without boxes. `NAME_fc/ID.npy` is not read: it is the mean over the regions, which the input "pooled"
    computes itself.
    """

    def __init__(self, folder: Path, dataset: Dataset) -> None:
        if folder.name.endswith("_box"):  # boxes would pass for features of four channels
            features = folder.with_name(folder.name.removesuffix("_box") + "_att")
            raise BenchError(f"--regions {folder} is a folder of boxes", f"--regions {features}")
        arrays, files = _listing(folder)
        if not arrays:
            raise BenchError(f"the folder {folder} holds no ID.npz or ID.npy", "give the folder NAME_att, or a .tsv")
        stems = {sample.image_id: Path(sample.file).stem for sample in dataset.samples if sample.file}
        self._features = _by_image(arrays, dataset, stems)
        if not self._features and dataset.samples:
            sample = dataset.samples[0]
            expected = " or ".join(dict.fromkeys((str(sample.image_id), stems.get(sample.image_id, ""))))
            raise BenchError(
                f"the folder {folder} has no array of an image of {dataset.name}: it has {min(arrays)}, where "
                f"{expected.removesuffix(' or ')} is expected",
                "name the arrays by the images' ids, or by their pictures without the ending",
            )
        neighbour = folder.with_name(folder.name.removesuffix("_att") + "_box")
        self._boxes: dict[int, Path] | None = None
        if folder.name.endswith("_att") and neighbour.is_dir():
            boxes, box_files = _listing(neighbour)
            self._boxes = _by_image(boxes, dataset, stems)
            files += box_files
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


def _listing(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Arrays by their names without ending, and a line with name, size and time of each; BenchError for duplicates."""
    arrays: dict[str, Path] = {}
    lines = []
    with os.scandir(folder) as entries:
        for entry in entries:
            stem, dot, suffix = entry.name.rpartition(".")
            if dot + suffix not in _ARRAYS or not stem:
                continue
            key = str(int(stem)) if stem.isascii() and stem.isdecimal() else stem
            state = entry.stat()
            first_file = arrays.get(key)
            if first_file is not None:
                raise BenchError(
                    f"{folder} has two files of image {key}: {', '.join(sorted((first_file.name, entry.name)))}",
                    "leave one of them there",
                )
            arrays[key] = Path(entry.path)
            lines.append(f"{folder.name}/{entry.name} {state.st_size} {state.st_mtime_ns}")
    return arrays, lines


def _by_image(arrays: Mapping[str, Path], dataset: Dataset, stems: Mapping[int, str]) -> dict[int, Path]:
    """Arrays by image id: those named by ids or by the images' file names, whichever are more."""
    ids = [sample.image_id for sample in dataset.samples]
    by_id = {image_id: arrays[str(image_id)] for image_id in ids if str(image_id) in arrays}
    by_stem = {}
    for image_id, stem in stems.items():
        key = str(int(stem)) if stem.isascii() and stem.isdecimal() else stem
        if key in arrays:
            by_stem[image_id] = arrays[key]
    return by_stem if len(by_stem) > len(by_id) else by_id


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
        array: Numbers = arrays[key]
        return array
