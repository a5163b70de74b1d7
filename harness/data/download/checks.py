"""Whether a downloaded data set holds what it should: counted, not only compared with a checksum."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from harness.data.annotations.karpathy import read_entries
from harness.data.download.archives import PICTURES
from harness.data.download.sources import Annotations
from harness.data.formats import read_references
from harness.utils.errors import BenchError


def check_annotations(file: Path, expected: Annotations) -> str:
    """What the file holds, as text.

    Raises:
        BenchError: it has another format, or other numbers of images.
    """
    if expected.splits is None:
        references = read_references(file)
        captions = sum(map(len, references.captions.values()))
        found = {"images": len(references.captions)}
        wanted = {"images": expected.images}
        told = f", {captions:,} captions"
    else:
        found = dict(Counter(str(entry.get("split")) for entry in read_entries(file)[1]))
        wanted = dict(expected.splits)
        told = f", together {sum(found.values()):,} images"
    if found != wanted:
        here, there = (", ".join(f"{name} {count:,}" for name, count in each.items()) for each in (found, wanted))
        raise BenchError(
            f"{file.name} is not the file that is meant: it holds {here or 'nothing'}, not {there}",
            "name another place with --mirror URL",
        )
    return ", ".join(f"{name} {count:,}" for name, count in found.items()) + told


def count_pictures(folder: Path) -> int:
    """Pictures in a folder, not below it; 0 where there is none."""
    return len(_pictures(folder))


def check_all_named(file: Path, images: Path) -> None:
    """Hold that every picture that an annotation file in Karpathy's format names is there.

    Raises:
        BenchError: some are not.
    """
    there: dict[str, set[str]] = {}
    missing = []
    for entry in read_entries(file)[1]:
        folder, name = str(entry.get("filepath", "")), str(entry.get("filename"))
        if folder not in there:
            there[folder] = _pictures(images / folder)
        if name not in there[folder]:
            missing.append(f"{folder}/{name}")
    if missing:
        raise BenchError(
            f"{len(missing):,} pictures that {file.name} names are not in {images}: {', '.join(missing[:3])}",
            f"move {images} away, then type the same command again",
        )


def _pictures(folder: Path) -> set[str]:
    if not folder.is_dir():
        return set()
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries if entry.name.lower().endswith(PICTURES)}
