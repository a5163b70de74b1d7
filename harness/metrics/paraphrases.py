"""METEOR's paraphrases, less those that cannot match the captions at hand.

The jar's table has 5.3 million pairs of phrases, and reading them is what METEOR spends most of its time on. A pair
matches only where one of its phrases stands in a caption and the other in a reference, so pairs with a word that none
of them has can be left out: with the order of the others kept, every statistic stays the same. The table as arrays of
word numbers, from which that takes half a second, is kept in the user's cache.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import itertools
import re
import zipfile
from array import array
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from harness.atomic import replacing
from harness.user_cache import user_cache

Mask = NDArray[np.bool_]
_FORMAT: Final = 1
_PAIRS_READ, _PAIRS_WRITTEN = 1_000, 100_000  # at once
_PIECES: Final = re.compile("[a-z0-9]+")


@dataclass(frozen=True)
class ParaphraseTable:
    """The table as numbers.

    Attributes:
        words: the distinct words, W of them, as the file has them.
        numbers: all words of all pairs one after another, as indices into `words`.
        lengths: how many words each phrase has, (2 P,): of the first pair's two phrases, of the second pair's ...
    """

    words: tuple[bytes, ...]
    numbers: NDArray[np.unsignedinteger]
    lengths: NDArray[np.unsignedinteger]

    @classmethod
    def read(cls, path: Path) -> Self:
        """From the jar's gzipped file: three lines a pair, a probability that the jar ignores and the two phrases."""
        words: defaultdict[bytes, int] = defaultdict(itertools.count().__next__)
        numbers, lengths = array("I"), array("B")
        with gzip.open(path) as compressed, io.BufferedReader(compressed, 1 << 20) as lines:
            while phrases := list(itertools.islice(lines, 3 * _PAIRS_READ)):
                del phrases[::3]
                numbers.extend(map(words.__getitem__, b"".join(phrases).split()))
                lengths.extend([phrase.count(b" ") + 1 for phrase in phrases])
        return cls(tuple(words), np.array(numbers, np.min_scalar_type(len(words))), np.array(lengths))

    @classmethod
    def load(cls, path: Path) -> Self:
        """What `save` wrote; ValueError, OSError, KeyError or BadZipFile where it is something else."""
        with np.load(path) as file:
            return cls(tuple(file["words"].tobytes().split(b"\n")), file["numbers"], file["lengths"])

    def save(self, path: Path) -> None:
        """Write the arrays, about 80 MB, in one instant."""
        words = np.frombuffer(b"\n".join(self.words), np.uint8)
        with replacing(path) as part, part.open("wb") as file:
            np.savez(file, words=words, numbers=self.numbers, lengths=self.lengths)

    def occurring(self, captions: Iterable[str]) -> Mask:
        """Which of the words METEOR may find in these tokenised captions, (W,).

        METEOR cuts tokens at signs and drops some of these, but never cuts between two letters or digits. So each of
        its words, but for the signs in it, is a run of the pieces that lie between the signs of one token.
        """
        runs = {""}
        for token in {token for caption in captions for token in caption.split(" ")}:
            pieces = _PIECES.findall(token.lower())
            for start in range(len(pieces)):
                run = ""
                for piece in pieces[start:]:
                    run += piece
                    if len(run) > self._longest:
                        break
                    runs.add(run)
        return np.fromiter((bare in runs for bare in self._bare), bool, len(self.words))

    def write(self, path: Path, occurring: Mask) -> None:
        """Write the pairs all of whose words are `occurring` as a file that the jar reads."""
        # A word within a phrase, at the end of a pair's first, and at the end of its second, before the next pair.
        forms = np.array([word + after for after in (b" ", b"\n", b"\n0\n") for word in self.words], object)
        text = [b"0\n"]
        stop = 0
        for block in range(0, len(self.lengths), 2 * _PAIRS_WRITTEN):
            ends = np.cumsum(self.lengths[block : block + 2 * _PAIRS_WRITTEN], dtype=np.int64)
            start, stop = stop, stop + int(ends[-1])
            numbers = self.numbers[start:stop]
            of_pair = np.diff(ends[1::2], prepend=0)
            kept = np.logical_and.reduceat(occurring[numbers], ends[1::2] - of_pair)
            form = np.zeros(len(numbers), np.int64)
            form[ends[::2] - 1], form[ends[1::2] - 1] = len(self.words), 2 * len(self.words)
            text.append(b"".join(forms[(form + numbers)[np.repeat(kept, of_pair)]]))
        with gzip.open(path, "wb", compresslevel=0) as file:
            file.write(b"".join(text)[: -len(b"0\n")])

    @cached_property
    def _bare(self) -> list[str]:
        """The words' letters and digits."""
        return ["".join(_PIECES.findall(word.decode("utf-8", "replace").lower())) for word in self.words]

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._bare), default=0)


def cached_table(source: Path) -> ParaphraseTable | None:
    """The jar's table `source` from the user's cache; None where `cache_table` has not put it there."""
    with suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):
        return ParaphraseTable.load(_cached(source))
    return None


def cache_table(source: Path) -> None:
    """Read the jar's table `source` and put it into the user's cache, which takes some seconds.

    Left to the other where another process is about it; done without where the cache cannot be written.
    """
    with suppress(OSError):
        target = _cached(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ParaphraseTable.read(source).save(target)


def _cached(source: Path) -> Path:
    """Named by the checksum and the length of what `source` holds, which end every gzipped file."""
    with source.open("rb") as file:
        file.seek(-8, io.SEEK_END)
        content = file.read().hex()
    return user_cache() / "meteor" / f"{source.name.removesuffix('.gz')}-{content}-{_FORMAT}.npz"
