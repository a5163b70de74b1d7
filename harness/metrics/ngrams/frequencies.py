"""Document frequencies of CIDEr: the number of images in whose references an n-gram occurs."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.metrics.ngrams.counting import Captions, Counts, Ints, Keys, Packing, blocks, count_ngrams
from harness.utils.atomic import replacing
from harness.utils.errors import BenchError
from results.files import check_regular

_RANGES = 16
_NO_KEYS, _NO_COUNTS = np.zeros(0, np.uint64), np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class DocumentFrequencies:
    """N-gram `keys[i]` occurs for `counts[i]` of `images` images; keys ascend."""

    keys: Keys
    counts: NDArray[np.int32]
    images: int

    @classmethod
    def of_numbers(cls, references: Sequence[Sequence[Sequence[int]]]) -> DocumentFrequencies:
        """From references by image as token numbers (0 to 65,533), special tokens included as any other."""
        captions = Captions.of_numbers(caption for image in references for caption in image)
        return cls.of_captions(captions, np.cumsum([0, *map(len, references)]))

    @classmethod
    def of_captions(cls, captions: Captions, first: Ints) -> DocumentFrequencies:
        """From references as `Captions.of_numbers` makes them; image i has those from `first[i]` to `first[i + 1]`."""
        parts = []
        for start, stop in blocks(captions, first):
            part = captions.part(int(first[start]), int(first[stop]))
            image = np.repeat(np.arange(stop - start), np.diff(first[start : stop + 1]))
            parts.append(block_frequencies(count_ngrams(part, image, np.zeros_like(image), Packing()), 0))
        return merge(parts, len(first) - 1)

    def idf(self, keys: Keys) -> NDArray[np.float64]:
        """log(images / count) of ascending keys; an n-gram without a reference counts as one image."""
        counts = np.ones(len(keys))
        if len(self.keys):
            place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            known = self.keys[place] == keys
            counts[known] = self.counts[place[known]]
        return np.log(float(self.images)) - np.log(counts) if self.images else np.zeros(len(keys))

    def save(self, path: Path) -> None:
        """Write to a compressed .npz file (about 3 bytes an n-gram)."""
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, keys=self.keys, counts=self.counts, images=self.images)

    @classmethod
    def load(cls, path: Path) -> DocumentFrequencies:
        """Load what `save` wrote; BenchError if the file is invalid."""
        try:
            check_regular(path)
            with np.load(path, allow_pickle=False) as file:
                return cls(file["keys"].astype(np.uint64), file["counts"].astype(np.int32), int(file["images"]))
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise BenchError(f"{path} contains no document frequencies: {error}") from error


def block_frequencies(counts: Counts, first_reference: int) -> tuple[Keys, NDArray[np.int32]]:
    """Frequencies of one block, over the captions in slots from `first_reference` on."""
    starts = counts.groups
    last = np.append(starts[1:], len(counts.slot)) - 1
    held = counts.slot[last] >= first_reference if len(starts) else np.zeros(0, np.bool_)
    frequency = np.bincount(counts.gram[starts][held], minlength=len(counts.keys)).astype(np.int32)
    return counts.keys[frequency > 0], frequency[frequency > 0]


def merge(parts: Sequence[tuple[Keys, NDArray[np.int32]]], images: int) -> DocumentFrequencies:
    """Frequencies of all blocks together; no image may be in two.

    Merged by ranges of the keys, since sorting all at once would take several times the memory of the result.
    """
    if len(parts) == 1:
        return DocumentFrequencies(*parts[0], images)
    largest = max((keys for keys, _ in parts), key=len, default=np.zeros(0, np.uint64))
    edges = largest[:: max(len(largest) // _RANGES, 1)]
    places = [np.concatenate([[0], np.searchsorted(keys, edges), [len(keys)]]) for keys, _ in parts]
    merged = []
    for number in range(len(edges) + 1):
        slices = [slice(*place[number : number + 2]) for place in places]
        keys = np.concatenate([part[0][piece] for part, piece in zip(parts, slices, strict=True)] or [_NO_KEYS])
        counts = np.concatenate([part[1][piece] for part, piece in zip(parts, slices, strict=True)] or [_NO_COUNTS])
        unique, place = np.unique(keys, return_inverse=True)
        merged.append((unique, np.bincount(place, counts, len(unique)).astype(np.int32)))
    return DocumentFrequencies(
        np.concatenate([keys for keys, _ in merged]), np.concatenate([counts for _, counts in merged]), images
    )
