"""The bottom-up TSV: no header, six columns, boxes and features as base64 of little-endian float32.

`image_id, image_w, image_h, num_boxes, boxes (K, 4), features (K, C)`. Files of many gigabytes are read line by line;
memory holds one line. Images that are not in the data set are skipped.
"""

import binascii
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from harness.data.dataset import picture_digest
from harness.data.regions.regions import MAX_BYTES, BadRegions, Numbers, RawRegions, RegionSource
from harness.utils.errors import BenchError

COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
_MAX_DIGITS = 19  # of a whole number of 64 bits


class RegionTsv(RegionSource):
    """TSV files, read in the order given; an image with two different lines is an error."""

    def __init__(self, name: str, files: Sequence[Path]) -> None:
        self.name, self._files = name, tuple(files)
        found = hashlib.sha256()
        for file in files:
            found.update(f"{file.name} {file.stat().st_mtime_ns}\n".encode() + picture_digest(file))
        self.fingerprint = found.hexdigest()

    def read(self, image_ids: Sequence[int]) -> Iterator[tuple[int, RawRegions | str]]:
        """Regions in the order of the files."""
        wanted = frozenset(image_ids)
        lines: dict[int, bytes] = {}
        for file in self._files:
            with file.open("rb") as stream:
                for number, image_id, rest in _lines(stream, file):
                    if image_id not in wanted:
                        continue
                    seal, where = hashlib.blake2b(rest, digest_size=8).digest(), f"line {number} of {file.name}"
                    if image_id in lines:
                        if lines[image_id] != seal:
                            yield image_id, f"comes twice with different contents, again in {where}"
                        continue
                    lines[image_id] = seal
                    try:
                        yield image_id, _parse(rest)
                    except BadRegions as bad:
                        yield image_id, f"{bad}, in {where}"


def _lines(stream: BinaryIO, file: Path) -> Iterator[tuple[int, int, bytes]]:
    """Number, image id and the rest of every line."""
    for number, line in enumerate(iter(lambda: stream.readline(MAX_BYTES + 1), b""), 1):
        if len(line) > MAX_BYTES:
            raise BenchError(f"line {number} of {file} is longer than {MAX_BYTES >> 20} MiB: not a bottom-up TSV")
        if line.isspace():
            continue
        name, _, rest = line.partition(b"\t")
        if not name.isdigit() or len(name) > _MAX_DIGITS:
            raise BenchError(
                f"line {number} of {file} does not begin with an image id: {name[:30]!r}",
                f"its columns must be {', '.join(COLUMNS)}, separated by tabs, without a header",
            )
        yield number, int(name), rest.rstrip(b"\r\n")


def _parse(rest: bytes) -> RawRegions:
    """The columns after the id."""
    columns = rest.split(b"\t")
    if len(columns) != len(COLUMNS) - 1:
        raise BadRegions(f"has {len(columns) + 1} columns instead of {len(COLUMNS)}")
    width, height, count = (_whole(text, name) for text, name in zip(columns[:3], COLUMNS[1:4], strict=True))
    if not width or not height:
        raise BadRegions(f"has an image of {width} x {height} pixels")
    boxes, features = (_floats(text, name) for text, name in zip(columns[3:], COLUMNS[4:], strict=True))
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
