"""N-grams of order 1 to 4 as 64-bit integers, counted for many images at once with sorted arrays.

A word's number has 16 bits, so that four fit into one integer without collision; corpora with more words number their
pairs of words first. Images are processed in blocks, to bound memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

MAX_ORDER: Final = 4
_BITS: Final = 16
NARROW_WORDS: Final = 2**_BITS - 1
_BLOCK_TOKENS = 80_000  # keeps the sorted arrays within the processor's cache

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
_RANGES = 16
_NO_KEYS = np.zeros(0, np.uint64)
_NO_COUNTS = np.zeros(0, np.int32)
CANDIDATE_SLOT: Final = 0
_KEPT_TOKENS: Final = 1_000_000  # their counts take about 160 MB


class WordNumbers(dict[str, int]):
    """Numbers words from 1 in the order of their first use."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self) + 1
        return number


@dataclass(frozen=True, slots=True)
class Tokenised:
    """Captions as token numbers: concatenated `tokens`, and where each caption ends (exclusive)."""

    tokens: NDArray[np.uint64]
    ends: Ints

    @classmethod
    def of_words(cls, captions: Iterable[Sequence[str]], words: WordNumbers) -> Self:
        """From captions as lists of words; new words get the next numbers."""
        caption_list = list(captions)
        return cls._of(map(words.__getitem__, chain.from_iterable(caption_list)), caption_list)

    @classmethod
    def of_numbers(cls, captions: Iterable[Sequence[int]]) -> Self:
        """From captions as numbers 0 to 65,533, stored from 1 on; ValueError where one is out of range."""
        caption_list = list(captions)
        tokenised = cls._of(chain.from_iterable(caption_list), caption_list, np.int64)
        if tokenised.tokens.size and (tokenised.tokens.min() < 0 or tokenised.tokens.max() >= NARROW_WORDS - 1):
            raise ValueError(f"token numbers must lie between 0 and {NARROW_WORDS - 2}")
        return cls((tokenised.tokens + 1).astype(np.uint64), tokenised.ends)

    @classmethod
    def _of(cls, numbers: Iterable[int], caption_list: Sequence[Sequence[object]], kind: type = np.uint64) -> Self:
        ends = np.cumsum(np.fromiter(map(len, caption_list), np.int64, len(caption_list)), dtype=np.int64)
        return cls(np.fromiter(numbers, kind, int(ends[-1]) if len(ends) else 0), ends)

    @property
    def lengths(self) -> Ints:
        """Tokens of each caption."""
        return np.diff(self.ends, prepend=0)

    def part(self, start: int, stop: int) -> Tokenised:
        """Captions `start` to `stop` (exclusive)."""
        first = int(self.ends[start - 1]) if start else 0
        last = int(self.ends[stop - 1]) if stop else 0
        return Tokenised(self.tokens[first:last], self.ends[start:stop] - first)


class Packing:
    """Packs n-grams into integers. Corpora with 65,535 or more different words must be given as `captions`."""

    def __init__(self, captions: Tokenised | None = None) -> None:
        self._pairs: Keys | None = None
        if captions is not None and captions.tokens.size and captions.tokens.max() > NARROW_WORDS:
            self._pairs = np.unique(_pairs_within(captions))

    def pack(self, captions: Tokenised) -> tuple[Keys, Ints]:
        """The n-grams of every order, and the caption of each."""
        caption_of = np.repeat(np.arange(len(captions.ends)), captions.lengths)
        remaining = captions.ends[caption_of] - np.arange(len(captions.tokens))
        if self._pairs is not None:
            return self._pack_wide(captions, caption_of, remaining)
        keys = [captions.tokens]
        captions_of = [caption_of]
        key = captions.tokens
        position = np.arange(len(captions.tokens))
        for order in range(2, MAX_ORDER + 1):
            long_enough = remaining[position] >= order
            position = position[long_enough]
            key = (key[long_enough] << np.uint64(_BITS)) | captions.tokens[position + (order - 1)]
            keys.append(key)
            captions_of.append(caption_of[position])
        return np.concatenate(keys), np.concatenate(captions_of)

    def orders(self, keys: Keys) -> Ints:
        """The order of each n-gram, less one."""
        if self._pairs is not None:
            return (keys >> np.uint64(62)).astype(np.int64)
        limits = [np.uint64(1) << np.uint64(_BITS * order) for order in range(1, MAX_ORDER)]
        return np.searchsorted(np.array(limits), keys, side="right")

    def _pack_wide(self, captions: Tokenised, caption_of: Ints, remaining: Ints) -> tuple[Keys, Ints]:
        """Pack into two bits for the order and two fields of 31 bits, each a word or the number of a pair of words."""
        assert self._pairs is not None
        pair = np.zeros(len(captions.tokens), np.uint64)
        pair[remaining >= 2] = np.searchsorted(self._pairs, _pairs_within(captions)).astype(np.uint64) + np.uint64(1)
        keys = []
        captions_of = []
        for order in range(1, MAX_ORDER + 1):
            position = np.flatnonzero(remaining >= order)
            high = pair[position] if order > 2 else np.uint64(0)
            if order == 1:
                low = captions.tokens[position]
            elif order == 3:
                low = captions.tokens[position + 2]
            else:
                low = pair[position + (order - 2)]
            keys.append((np.uint64(order - 1) << np.uint64(62)) | (high << np.uint64(31)) | low)
            captions_of.append(caption_of[position])
        return np.concatenate(keys), np.concatenate(captions_of)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counted n-grams of a block of images.

    The entries of `image`, `gram`, `slot` and `count` are sorted by (image, gram, slot): the caption in `slot` of
    `image`, counted within the block, has the n-gram `keys[gram]` `count` times.

    Attributes:
        keys: the packed n-grams of the block, ascending.
        orders: their orders, less one.
    """

    keys: Keys
    orders: Ints
    image: Ints
    gram: Ints
    slot: Ints
    count: Ints

    @property
    def groups(self) -> Ints:
        """The first entry of each image and n-gram."""
        return np.flatnonzero(_changes(self.image) | _changes(self.gram))


def count_ngrams(captions: Tokenised, image: Ints, slot: Ints, packing: Packing) -> Counts:
    """Count the n-grams of captions, given the image (from 0) of each and its slot within the image, (C,) each."""
    keys, caption_of = packing.pack(captions)
    order = np.argsort(keys)
    keys = keys[order]
    new = _changes(keys)
    gram = np.cumsum(new) - 1
    keys = keys[new]
    slot_bits = int(slot.max(initial=0)).bit_length()
    gram_bits = len(keys).bit_length()
    of_caption = (image << (gram_bits + slot_bits)) | slot
    entries = of_caption[caption_of[order]] | (gram << slot_bits)
    entries.sort()
    starts = np.flatnonzero(_changes(entries))
    count = np.diff(starts, append=len(entries))
    entries = entries[starts]
    return Counts(
        keys=keys,
        orders=packing.orders(keys),
        image=entries >> (gram_bits + slot_bits),
        gram=(entries >> slot_bits) & ((1 << gram_bits) - 1),
        slot=entries & ((1 << slot_bits) - 1),
        count=count,
    )


def blocks(captions: Tokenised, first_caption: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of images with about `_BLOCK_TOKENS` tokens each; image i has captions from `first_caption[i]` on."""
    before = np.concatenate([[0], captions.ends])[first_caption]
    start = 0
    images = len(first_caption) - 1
    while start < images:
        stop = int(np.searchsorted(before, before[start] + _BLOCK_TOKENS, side="right")) - 1
        stop = min(max(stop, start + 1), images)
        yield start, stop
        start = stop


def _pairs_within(captions: Tokenised) -> Keys:
    caption_of = np.repeat(np.arange(len(captions.ends)), captions.lengths)
    position = np.flatnonzero(captions.ends[caption_of] - np.arange(len(captions.tokens)) >= 2)
    return (captions.tokens[position] << np.uint64(32)) | captions.tokens[position + 1]


def _changes(values: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Where a sorted array changes its value; True at the first element."""
    new = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


@dataclass(frozen=True, slots=True)
class DocumentFrequencies:
    """The n-gram `keys[i]` occurs in references of `counts[i]` of `images` images; keys are ascending."""

    keys: Keys
    counts: NDArray[np.int32]
    images: int

    @classmethod
    def of_captions(cls, captions: Tokenised, first: Ints) -> DocumentFrequencies:
        """From references of `Tokenised.of_numbers`, of which image i has those from `first[i]` to `first[i + 1]`."""
        parts = []
        for start, stop in blocks(captions, first):
            part = captions.part(int(first[start]), int(first[stop]))
            image = np.repeat(np.arange(stop - start), np.diff(first[start : stop + 1]))
            parts.append(block_frequencies(count_ngrams(part, image, np.zeros_like(image), Packing()), 0))
        return merge(parts, len(first) - 1)

    def idf(self, keys: Keys) -> NDArray[np.float64]:
        """log(images / count) of ascending keys; the count of an n-gram in no reference is 1."""
        counts = np.ones(len(keys))
        if len(self.keys):
            index = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            is_known = self.keys[index] == keys
            counts[is_known] = self.counts[index[is_known]]
        return np.log(float(self.images)) - np.log(counts) if self.images else np.zeros(len(keys))


def block_frequencies(counts: Counts, first_reference: int) -> tuple[Keys, NDArray[np.int32]]:
    """Frequencies of one block, over the captions in slots from `first_reference` on."""
    starts = counts.groups
    last = np.append(starts[1:], len(counts.slot)) - 1
    held = counts.slot[last] >= first_reference if len(starts) else np.zeros(0, np.bool_)
    frequency = np.bincount(counts.gram[starts][held], minlength=len(counts.keys)).astype(np.int32)
    return counts.keys[frequency > 0], frequency[frequency > 0]


def merge(parts: Sequence[tuple[Keys, NDArray[np.int32]]], images: int) -> DocumentFrequencies:
    """Merge the frequencies of disjoint sets of images, by ranges of keys, which takes less memory than sorting all."""
    if len(parts) == 1:
        return DocumentFrequencies(*parts[0], images)
    largest = max((keys for keys, _ in parts), key=len, default=np.zeros(0, np.uint64))
    edges = largest[:: max(len(largest) // _RANGES, 1)]
    edge_indices = [np.concatenate([[0], np.searchsorted(keys, edges), [len(keys)]]) for keys, _ in parts]
    merged = []
    for range_index in range(len(edges) + 1):
        slices = [slice(*edge_index[range_index : range_index + 2]) for edge_index in edge_indices]
        keys = np.concatenate([part[0][piece] for part, piece in zip(parts, slices, strict=True)] or [_NO_KEYS])
        counts = np.concatenate([part[1][piece] for part, piece in zip(parts, slices, strict=True)] or [_NO_COUNTS])
        unique, edge_index = np.unique(keys, return_inverse=True)
        merged.append((unique, np.bincount(edge_index, counts, len(unique)).astype(np.int32)))
    return DocumentFrequencies(
        np.concatenate([keys for keys, _ in merged]), np.concatenate([counts for _, counts in merged]), images
    )


@dataclass(frozen=True, slots=True)
class Block:
    """A block of images.

    Attributes:
        lengths: tokens of each caption.
        first: (N + 1,), the first caption of each image.
        candidates: number of candidates, which are the first captions of each image.
    """

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

    def __init__(self, captions: Tokenised, first: Ints, candidates: int) -> None:
        self._captions = captions
        self._first = first
        self._candidates = candidates
        self._packing = Packing(captions)
        self._ranges = list(blocks(captions, first))
        self._kept: dict[int, Block] = {}

    @classmethod
    def of_texts(cls, references: Mapping[int, Sequence[str]], candidates: Mapping[int, str]) -> Corpus:
        """A corpus of tokenised captions by image, one candidate each, in the references' order."""
        words = (text.split() for image_id, texts in references.items() for text in (candidates[image_id], *texts))
        first = np.cumsum([0, *(1 + len(texts) for texts in references.values())])
        return cls(Tokenised.of_words(words, WordNumbers()), first, 1)

    @classmethod
    def of_numbers(
        cls, references: Sequence[Sequence[Sequence[int]]], samples: Sequence[Sequence[Sequence[int]]]
    ) -> Corpus:
        """A corpus of token numbers by image; ValueError where images differ in number, or in that of samples."""
        counts = set(map(len, samples))
        if len(counts) > 1:
            raise ValueError(f"images have different numbers of samples: {sorted(counts)}")
        captions_by_image = [
            (*candidates, *image_references) for candidates, image_references in zip(samples, references, strict=True)
        ]
        captions = Tokenised.of_numbers(caption for image in captions_by_image for caption in image)
        return cls(captions, np.cumsum([0, *map(len, captions_by_image)]), counts.pop() if counts else 0)

    def __iter__(self) -> Iterator[Block]:
        """Blocks of images. A small corpus is counted once; a large one in every pass, to bound memory."""
        for start, stop in self._ranges:
            block = self._kept.get(start) or self._count(start, stop)
            if len(self._captions.tokens) <= _KEPT_TOKENS:
                self._kept[start] = block
            yield block

    def frequencies(self) -> DocumentFrequencies:
        """Document frequencies over the references."""
        return merge([block_frequencies(block.counts, self._candidates) for block in self], len(self._first) - 1)

    def _count(self, start: int, stop: int) -> Block:
        first = self._first[start : stop + 1] - self._first[start]
        captions = self._captions.part(int(self._first[start]), int(self._first[stop]))
        image = np.repeat(np.arange(stop - start), np.diff(first))
        slot = np.arange(len(image)) - first[image]
        return Block(count_ngrams(captions, image, slot, self._packing), captions.lengths, first, self._candidates)
