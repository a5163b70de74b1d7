"""Data sets: images with captions, splits, domains and boxes, whatever their format."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.utils.errors import BenchError
from harness.utils.hashing import canonical_json

Box = tuple[float, float, float, float]
_LONGEST_SIDE = 2**31  # pixels; an annotation with a longer side tells no size that an image can have
_LATER = {"tokens", "restval"}
"""Fields that came after results had been stored under fingerprints; recipes that use them are signed with what these
make: `tokens` with the vocabulary, `restval` with the images that are left."""
_EDGE = 4096  # bytes read at each end of an image file


@dataclass(frozen=True, slots=True)
class Sample:
    """One image and its reference captions.

    `file` is relative to the data set's root and never leaves it; it is empty if the annotation's path was refused,
    and `captions` are empty if the annotation has none: such images are in `Dataset.faults`. `boxes` are x1, y1, x2,
    y2 in pixels of the stored image, or None if they are unknown (an empty tuple: known to have none). `tokens` are the
    file's own words of each caption, joined by spaces, or None if a caption has none. `restval` marks images that
    Karpathy's file keeps apart and nearly everybody trains on.
    """

    image_id: int
    file: str
    split: str
    captions: tuple[str, ...]
    domain: str | None = None
    boxes: tuple[Box, ...] | None = None
    tokens: tuple[str, ...] | None = None
    restval: bool = False


def told_size(entry: Mapping[str, Any]) -> tuple[int, int] | None:
    """Width and height in pixels, if the annotation has both."""
    width, height = entry.get("width"), entry.get("height")
    if not isinstance(width, int) or not isinstance(height, int):
        return None
    return (width, height) if 0 < min(width, height) <= max(width, height) <= _LONGEST_SIDE else None


@dataclass(frozen=True)
class Dataset:
    """Images under `root`, in a fixed order; `fingerprint` changes with any annotation or image (hex digest).

    `faults` has, by image id, what is wrong with annotations that cannot be used. Their samples stay in the data set,
    so that splits have their nominal sizes; readers of images or captions skip or refuse them. `sizes` are (width,
    height) of the images that boxes refer to, where the annotations have it. `labels` are ids as the file has them,
    where these are texts, and `notes` say what of the file was left out. `conversion` is the
    command that makes a data set to train on of annotations in another format. `absent_files` are paths below the root
    where image files were looked for and not found.
    """

    name: str
    root: Path
    samples: tuple[Sample, ...]
    fingerprint: str
    faults: Mapping[int, str] = field(default_factory=dict)
    sizes: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    labels: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    conversion: str = ""
    absent_files: tuple[str, ...] = ()

    @property
    def is_references(self) -> bool:
        """Whether there is nothing to train on."""
        return self.splits.keys() == {"test"}

    @cached_property
    def splits(self) -> dict[str, tuple[Sample, ...]]:
        """Samples by split, in the data set's order."""
        names = dict.fromkeys(sample.split for sample in self.samples)
        return {name: tuple(sample for sample in self.samples if sample.split == name) for name in names}

    def split(self, name: str) -> tuple[Sample, ...]:
        """The samples of one split; BenchError if it is empty."""
        if name not in self.splits:
            raise BenchError(
                f"the data set {self.name} has no images in its {name!r} split",
                hint=f"it has {', '.join(f'{split}: {len(found)}' for split, found in self.splits.items())}",
            )
        return self.splits[name]

    def path(self, sample: Sample) -> Path:
        """Path of the sample's image."""
        return self.root / sample.file


_FIELDS = tuple(field.name for field in fields(Sample) if field.name not in _LATER)


def fingerprint(root: Path, samples: Iterable[Sample], faults: Mapping[int, str]) -> str:
    """Digest the samples, the faults, and the relative name, size and first and last 4 KiB of every image file.

    The middle of a file is not read: an edit that keeps the size and both ends is not noticed. The location of the
    folder does not matter; a missing file counts as such.
    """
    found = hashlib.sha256()
    for sample in samples:
        found.update(canonical_json([getattr(sample, name) for name in _FIELDS]).encode())
        found.update(picture_digest(root / sample.file) if sample.file else b"refused")
    found.update(canonical_json(sorted(faults.items())).encode())
    return found.hexdigest()


def picture_digest(path: Path) -> bytes:
    """Digest the size and both ends of a file; b"missing" if it is not a readable regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return b"missing"
    try:
        size = os.fstat(descriptor).st_size
        ends = os.read(descriptor, _EDGE)
        if size > _EDGE:
            os.lseek(descriptor, -min(_EDGE, size - _EDGE), os.SEEK_END)
            ends += os.read(descriptor, _EDGE)
    except OSError:
        return b"missing"
    finally:
        os.close(descriptor)
    return hashlib.sha256(size.to_bytes(8, "big") + ends).digest()
