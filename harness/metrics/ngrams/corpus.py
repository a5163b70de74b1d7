"""A corpus of candidates and references, image by image, for the n-gram metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.metrics.ngrams.counting import Captions, Counts, Ints, Packing, WordNumbers, blocks, count_ngrams
from harness.metrics.ngrams.frequencies import DocumentFrequencies, block_frequencies, merge

CANDIDATE_SLOT: Final = 0
_KEPT_TOKENS: Final = 1_000_000  # their counts take about 160 MB


@dataclass(frozen=True, slots=True)
class Block:
    """A block of images: `first` (N + 1,) is where each image's captions begin, with `candidates` candidates first."""

    counts: Counts
    lengths: Ints
    first: Ints
    candidates: int

    @property
    def references(self) -> Ints:
        """References of each image, (N,)."""
        return np.diff(self.first) - self.candidates


class Corpus:
    """Captions of images in a fixed order: for each image its candidates, then its references."""

    def __init__(self, captions: Captions, first: Ints, candidates: int) -> None:
        self._captions, self._first, self._candidates = captions, first, candidates
        self._packing = Packing(captions)
        self._ranges = list(blocks(captions, first))
        self._kept: dict[int, Block] = {}

    @classmethod
    def of_texts(cls, references: Mapping[int, Sequence[str]], candidates: Mapping[int, str]) -> Corpus:
        """A corpus of tokenised captions by image, one candidate each, in the references' order."""
        words = (text.split() for image_id, texts in references.items() for text in (candidates[image_id], *texts))
        first = np.cumsum([0, *(1 + len(texts) for texts in references.values())])
        return cls(Captions.of_words(words, WordNumbers()), first, 1)

    @classmethod
    def of_numbers(
        cls, references: Sequence[Sequence[Sequence[int]]], samples: Sequence[Sequence[Sequence[int]]]
    ) -> Corpus:
        """A corpus of token numbers by image, with the same number of samples for each.

        Raises:
            ValueError: images have different numbers of samples, or the two have different numbers of images.
        """
        counts = set(map(len, samples))
        if len(counts) > 1:
            raise ValueError(f"images have different numbers of samples: {sorted(counts)}")
        both = [(*mine, *theirs) for mine, theirs in zip(samples, references, strict=True)]
        captions = Captions.of_numbers(caption for image in both for caption in image)
        return cls(captions, np.cumsum([0, *map(len, both)]), counts.pop() if counts else 0)

    def __iter__(self) -> Iterator[Block]:
        """Blocks of images. A small corpus is counted once, a large one on every pass, to bound the memory."""
        for start, stop in self._ranges:
            block = self._kept.get(start) or self._count(start, stop)
            if len(self._captions.tokens) <= _KEPT_TOKENS:
                self._kept[start] = block
            yield block

    def frequencies(self) -> DocumentFrequencies:
        """Document frequencies over the references."""
        parts = [block_frequencies(block.counts, self._candidates) for block in self]
        return merge(parts, len(self._first) - 1)

    def _count(self, start: int, stop: int) -> Block:
        first = self._first[start : stop + 1] - self._first[start]
        captions = self._captions.part(int(self._first[start]), int(self._first[stop]))
        image = np.repeat(np.arange(stop - start), np.diff(first))
        slot = np.arange(len(image)) - first[image]
        return Block(count_ngrams(captions, image, slot, self._packing), captions.lengths, first, self._candidates)
