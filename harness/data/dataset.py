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
_LONGEST_SIDE = 2**31  # pixels; no image has a longer side
_NOT_IN_FINGERPRINT = {"tokens", "restval"}
"""Fields that were added after results had been stored with fingerprints. Signatures include their effects: that of
`tokens` in the vocabulary, that of `restval` in the images used."""
_EDGE = 4096  # bytes read at each end of an image file


@dataclass(frozen=True, slots=True)
class Sample:
    """One image and its reference captions.

    Attributes:
        file: path relative to the data set's root, inside it; empty if the annotation's path was refused.
        captions: empty if the annotation has none. Images without file or captions are in `Dataset.faults`.
        boxes: x1, y1, x2, y2 in pixels of the stored image; None if unknown, and an empty tuple if there are no boxes.
        tokens: the annotation's own words of each caption, joined by spaces; None if a caption has none.
        restval: whether the image is in Karpathy's split restval, which is usually trained on.
    """

    image_id: int
    file: str
    split: str
    captions: tuple[str, ...]
    domain: str | None = None
    boxes: tuple[Box, ...] | None = None
    tokens: tuple[str, ...] | None = None
    restval: bool = False


def annotated_size(entry: Mapping[str, Any]) -> tuple[int, int] | None:
    """Width and height of an annotated image in pixels; None unless the annotation has both."""
    width = entry.get("width")
    height = entry.get("height")
    if not isinstance(width, int) or not isinstance(height, int):
        return None
    return (width, height) if 0 < min(width, height) <= max(width, height) <= _LONGEST_SIDE else None


@dataclass(frozen=True)
class Dataset:
    """Images with captions, in a fixed order.

    Attributes:
        root: the image folder.
        fingerprint: a hex digest that changes with any annotation or image, see `fingerprint`.
        faults: by image id, why an annotation cannot be used. Such samples stay in the data set, so that splits have
            their nominal sizes; readers of images or captions skip or refuse them.
        sizes: by image id, (width, height) of the image that boxes refer to, where the annotations have it.
        labels: by image id, the id in the file where this is a text.
        notes: parts of the file that were left out.
        conversion: for annotations in another format, the command that converts them for training.
        absent_files: paths below the root at which image files were expected but not found.
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
        """Whether the data set has a test split only, and so nothing to train on."""
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
                hint=f"it has {', '.join(f'{split}: {len(samples)}' for split, samples in self.splits.items())}",
            )
        return self.splits[name]

    def path(self, sample: Sample) -> Path:
        """Path of the sample's image."""
        return self.root / sample.file


_FIELDS = tuple(field.name for field in fields(Sample) if field.name not in _NOT_IN_FINGERPRINT)


def fingerprint(root: Path, samples: Iterable[Sample], faults: Mapping[int, str]) -> str:
    """Digest the samples, the faults, and the relative name, size and first and last 4 KiB of every image file.

    An edit that keeps the size and both ends of an image file does not change it, nor does moving the folder. Missing
    files are part of the digest.
    """
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(canonical_json([getattr(sample, name) for name in _FIELDS]).encode())
        digest.update(picture_digest(root / sample.file) if sample.file else b"refused")
    digest.update(canonical_json(sorted(faults.items())).encode())
    return digest.hexdigest()


def picture_digest(path: Path) -> bytes:
    """Digest the size and both ends of a file; b"missing" if it is not a readable regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return b"missing"
    try:
        size = os.fstat(descriptor).st_size
        edges = os.read(descriptor, _EDGE)
        if size > _EDGE:
            os.lseek(descriptor, -min(_EDGE, size - _EDGE), os.SEEK_END)
            edges += os.read(descriptor, _EDGE)
    except OSError:
        return b"missing"
    finally:
        os.close(descriptor)
    return hashlib.sha256(size.to_bytes(8, "big") + edges).digest()
