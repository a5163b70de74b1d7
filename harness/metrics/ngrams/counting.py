"""N-grams of order 1 to 4 as 64-bit integers, counted for many images at once with sorted arrays.

A word's number takes 16 bits, so that up to four fit into one integer without collision; corpora with more words number
their pairs of words first. Images are processed in blocks, to bound the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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


class WordNumbers(dict[str, int]):
    """Numbers words from 1 in the order of their first use."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self) + 1
        return number


@dataclass(frozen=True, slots=True)
class Captions:
    """Captions as numbers: their concatenated `tokens`, and the `ends` (exclusive) of each."""

    tokens: NDArray[np.uint64]
    ends: Ints

    @classmethod
    def of_words(cls, captions: Iterable[Sequence[str]], words: WordNumbers) -> Self:
        """From captions as lists of words; new words get the next numbers."""
        listed = list(captions)
        numbers = map(words.__getitem__, chain.from_iterable(listed))
        return cls._of(numbers, listed)

    @classmethod
    def of_numbers(cls, captions: Iterable[Sequence[int]]) -> Self:
        """From captions as numbers 0 to 65,533, which are stored from 1 on.

        Raises:
            ValueError: a number is out of range.
        """
        listed = list(captions)
        made = cls._of(chain.from_iterable(listed), listed, np.int64)
        if made.tokens.size and (made.tokens.min() < 0 or made.tokens.max() >= NARROW_WORDS - 1):
            raise ValueError(f"token numbers must lie between 0 and {NARROW_WORDS - 2}")
        return cls((made.tokens + 1).astype(np.uint64), made.ends)

    @classmethod
    def _of(cls, numbers: Iterable[int], listed: Sequence[Sequence[object]], kind: type = np.uint64) -> Self:
        ends = np.cumsum(np.fromiter(map(len, listed), np.int64, len(listed)), dtype=np.int64)
        return cls(np.fromiter(numbers, kind, int(ends[-1]) if len(ends) else 0), ends)

    @property
    def lengths(self) -> Ints:
        """Tokens of each caption."""
        return np.diff(self.ends, prepend=0)

    def part(self, start: int, stop: int) -> Captions:
        """Captions `start` to `stop` (exclusive)."""
        first = int(self.ends[start - 1]) if start else 0
        last = int(self.ends[stop - 1]) if stop else 0
        return Captions(self.tokens[first:last], self.ends[start:stop] - first)


class Packing:
    """Packs n-grams into integers.

    Args:
        captions: all captions to be packed, if there may be 65,535 different words or more; None otherwise.
    """

    def __init__(self, captions: Captions | None = None) -> None:
        self._pairs: Keys | None = None
        if captions is not None and captions.tokens.size and captions.tokens.max() > NARROW_WORDS:
            pairs, _ = _pairs_within(captions)
            self._pairs = np.unique(pairs)

    def pack(self, captions: Captions) -> tuple[Keys, Ints]:
        """The n-grams of every order, and the caption of each."""
        caption_of = np.repeat(np.arange(len(captions.ends)), captions.lengths)
        remaining = captions.ends[caption_of] - np.arange(len(captions.tokens))
        if self._pairs is not None:
            return self._pack_wide(captions, caption_of, remaining)
        keys, captions_of = [captions.tokens], [caption_of]
        key, place = captions.tokens, np.arange(len(captions.tokens))
        for order in range(2, MAX_ORDER + 1):
            kept = remaining[place] >= order
            place = place[kept]
            key = (key[kept] << np.uint64(_BITS)) | captions.tokens[place + (order - 1)]
            keys.append(key)
            captions_of.append(caption_of[place])
        return np.concatenate(keys), np.concatenate(captions_of)

    def orders(self, keys: Keys) -> Ints:
        """The order of each n-gram, less one."""
        if self._pairs is not None:
            return (keys >> np.uint64(62)).astype(np.int64)
        limits = [np.uint64(1) << np.uint64(_BITS * order) for order in range(1, MAX_ORDER)]
        return np.searchsorted(np.array(limits), keys, side="right")

    def _pack_wide(self, captions: Captions, caption_of: Ints, remaining: Ints) -> tuple[Keys, Ints]:
        """Two fields of 31 bits, words or pairs of words, under two bits for the order."""
        assert self._pairs is not None
        pairs, _ = _pairs_within(captions)
        pair = np.zeros(len(captions.tokens), np.uint64)
        pair[remaining >= 2] = np.searchsorted(self._pairs, pairs).astype(np.uint64) + np.uint64(1)
        keys, captions_of = [], []
        for order in range(1, MAX_ORDER + 1):
            place = np.flatnonzero(remaining >= order)
            left = pair[place] if order > 2 else np.uint64(0)
            if order == 1:
                right = captions.tokens[place]
            elif order == 3:
                right = captions.tokens[place + 2]
            else:
                right = pair[place + (order - 2)]
            keys.append((np.uint64(order - 1) << np.uint64(62)) | (left << np.uint64(31)) | right)
            captions_of.append(caption_of[place])
        return np.concatenate(keys), np.concatenate(captions_of)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counted n-grams of a block of images, in the order of (image, n-gram, slot).

    `keys` are the block's n-grams, ascending, `orders` theirs (less one). An entry means that the caption in `slot`
    of `image` (counted within the block) has n-gram number `gram` `count` times.
    """

    keys: Keys
    orders: Ints
    image: Ints
    gram: Ints
    slot: Ints
    count: Ints

    @property
    def groups(self) -> Ints:
        """Where entries of one image and n-gram begin."""
        return np.flatnonzero(_changes(self.image) | _changes(self.gram))


def count_ngrams(captions: Captions, image: Ints, slot: Ints, packing: Packing) -> Counts:
    """Count the n-grams of captions whose images (from 0) and slots within them are given, (C,) each."""
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


def blocks(captions: Captions, first_caption: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of images with about as many tokens each as fit a block; `first_caption` (N + 1,) by image."""
    before = np.concatenate([[0], captions.ends])[first_caption]
    start, images = 0, len(first_caption) - 1
    while start < images:
        stop = int(np.searchsorted(before, before[start] + _BLOCK_TOKENS, side="right")) - 1
        stop = min(max(stop, start + 1), images)
        yield start, stop
        start = stop


def _pairs_within(captions: Captions) -> tuple[Keys, Ints]:
    caption_of = np.repeat(np.arange(len(captions.ends)), captions.lengths)
    place = np.flatnonzero(captions.ends[caption_of] - np.arange(len(captions.tokens)) >= 2)
    return (captions.tokens[place] << np.uint64(32)) | captions.tokens[place + 1], place


def _changes(values: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Where a sorted array changes its value; True at the first element."""
    new = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new
