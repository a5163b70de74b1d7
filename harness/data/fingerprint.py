"""The fingerprint of a data set: a digest of its annotations and image files, fast for large data sets."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path

from harness.data.dataset import Sample
from harness.utils.hashing import canonical_json

_LATER = {"tokens", "restval"}
"""Fields that came after results had been stored under fingerprints; recipes that use them are signed with what these
make: `tokens` with the vocabulary, `restval` with the images that are left."""
_FIELDS = tuple(field.name for field in fields(Sample) if field.name not in _LATER)
_EDGE = 4096  # bytes read at each end of an image file


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
