"""METEOR's paraphrase table, filtered to the pairs that can match the captions at hand.

The jar's table has 5.3 million pairs of phrases, and reading them takes most of METEOR's time. A pair matches only if
one of its phrases is in a caption and the other in a reference, so pairs with a word that occurs in neither can be left
out: as long as the order of the others is kept, every statistic stays the same. The table is cached as arrays of word
numbers in the user's cache, where filtering it takes half a second.
"""

from __future__ import annotations

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
from typing import IO, Final, Self

import numpy as np
from numpy.typing import NDArray

from harness.utils.atomic import replacing
from harness.utils.workspace import locked, user_cache
from results.files import check_regular

Mask = NDArray[np.bool_]
Numbers = NDArray[np.integer]
_FORMAT: Final = 1
_PAIRS_READ, _PAIRS_WRITTEN = 500, 200_000  # chunk sizes, small enough for the processor's cache
_PIECES: Final = re.compile("[a-z0-9]+")


@dataclass(frozen=True)
class Phrases:
    """Concatenated phrases: their words' `numbers`, and the number of words of each."""

    numbers: Numbers
    lengths: Numbers

    @cached_property
    def starts(self) -> Numbers:
        """Where each phrase begins in `numbers`."""
        return np.cumsum(self.lengths, dtype=np.int32) - self.lengths

    def all_in(self, words: Mask) -> Mask:
        """Which phrases consist of the given words only."""
        return np.logical_and.reduceat(words[self.numbers], self.starts) if len(self.lengths) else np.zeros(0, bool)


@dataclass(frozen=True)
class ParaphraseTable:
    """The table as numbers.

    Attributes:
        words: the distinct words, W of them, as the file has them.
        first, repeats: the pairs' first phrases, each once for as many pairs as follow each other with it.
        second: the pairs' second phrases.
    """

    words: tuple[bytes, ...]
    first: Phrases
    repeats: Numbers
    second: Phrases

    @classmethod
    def read(cls, path: Path) -> Self:
        """From the jar's gzipped file: three lines a pair, a probability that the jar ignores and the two phrases."""
        words: defaultdict[bytes, int] = defaultdict(itertools.count().__next__)
        found = [(array("I"), array("B")) for _ in range(2)]
        repeats = array("I")
        with gzip.open(path) as compressed, io.BufferedReader(compressed, 1 << 20) as lines:
            while block := list(itertools.islice(lines, 3 * _PAIRS_READ)):
                runs = {phrase: run for run, phrase in enumerate(dict.fromkeys(block[1::3]))}
                repeats.extend(np.bincount(list(map(runs.__getitem__, block[1::3]))).tolist())
                for (numbers, lengths), phrases in zip(found, (list(runs), block[2::3]), strict=True):
                    numbers.extend(map(words.__getitem__, b"".join(phrases).split()))
                    lengths.extend([phrase.count(b" ") + 1 for phrase in phrases])
        kind = np.min_scalar_type(len(words))
        first, second = (Phrases(np.array(numbers, kind), np.array(lengths)) for numbers, lengths in found)
        return cls(tuple(words), first, np.array(repeats), second)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load what `save` wrote; raises ValueError, OSError, KeyError or BadZipFile for anything else."""
        check_regular(path)
        with np.load(path) as file:
            first, second = (Phrases(file[name], file[f"{name}_lengths"]) for name in ("first", "second"))
            return cls(tuple(file["words"].tobytes().split(b"\n")), first, file["repeats"], second)

    def save(self, path: Path) -> None:
        """Write the arrays, about 40 MB, atomically."""
        arrays = {"words": np.frombuffer(b"\n".join(self.words), np.uint8), "repeats": self.repeats}
        for name, phrases in (("first", self.first), ("second", self.second)):
            arrays |= {name: phrases.numbers, f"{name}_lengths": phrases.lengths}
        with replacing(path) as part, part.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def occurring(self, captions: Iterable[str]) -> Mask:
        """Which of the words METEOR may find in these tokenised captions, (W,).

        METEOR splits tokens at punctuation and drops some of it, but never splits between two letters or digits. So
        each of its words, without its punctuation, is a run of the pieces between the punctuation of one token.
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

    def write(self, target: IO[bytes], occurring: Mask) -> None:
        """Write the pairs all of whose words are `occurring` as the jar reads them, gzipped."""
        # A word within a phrase, at the end of a pair's first, and at the end of its second, before the next pair.
        forms = np.array([word + after for after in (b" ", b"\n", b"\n0\n") for word in self.words], object)
        run: Numbers = np.repeat(np.arange(len(self.repeats), dtype=np.int32), self.repeats)
        kept = np.flatnonzero(self.first.all_in(occurring)[run] & self.second.all_in(occurring))
        text = [b"0\n"]
        for start in range(0, len(kept), _PAIRS_WRITTEN):
            pairs: Numbers = kept[start : start + _PAIRS_WRITTEN]
            sides: tuple[tuple[Phrases, Numbers], ...] = ((self.first, run[pairs]), (self.second, pairs))
            lengths = np.column_stack([phrases.lengths[chosen] for phrases, chosen in sides]).astype(np.int32)
            ends = np.cumsum(lengths, dtype=np.int32).reshape(-1, 2)
            form = np.empty(ends[-1, -1], np.int32)
            for side, (phrases, chosen) in enumerate(sides):
                count, end = lengths[:, side], ends[:, side]
                form[_ranges(end - count, count)] = phrases.numbers[_ranges(phrases.starts[chosen], count)]
                form[end - 1] += (side + 1) * len(self.words)
            text.append(b"".join(forms[form]))
        with gzip.open(target, "wb", compresslevel=0) as file:
            file.write(b"".join(text)[: -len(b"0\n")])

    @cached_property
    def _bare(self) -> list[str]:
        """The words' letters and digits."""
        return ["".join(_PIECES.findall(word.decode("utf-8", "replace").lower())) for word in self.words]

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._bare), default=0)


def paraphrase_table(source: Path) -> ParaphraseTable:
    """The jar's table `source`, from the user's cache if it was read before; reading it takes some seconds.

    Raises:
        OSError: `source` cannot be read. A cache that cannot be written is ignored.
    """
    with source.open("rb") as file:
        file.seek(-8, io.SEEK_END)
        content = file.read().hex()  # gzip's checksum and length of the content
    cached = user_cache() / "meteor" / f"{source.name.removesuffix('.gz')}-{content}-{_FORMAT}.npz"
    if (table := _load(cached)) is not None:
        return table
    try:
        with locked(cached.with_suffix(".lock"), lambda: None):
            return _load(cached) or _read_and_save(source, cached)
    except OSError:  # the cache cannot be written
        return ParaphraseTable.read(source)


def _load(cached: Path) -> ParaphraseTable | None:
    with suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):
        return ParaphraseTable.load(cached)
    return None


def _read_and_save(source: Path, cached: Path) -> ParaphraseTable:
    table = ParaphraseTable.read(source)
    with suppress(OSError):
        table.save(cached)
    return table


def _ranges(starts: Numbers, lengths: Numbers) -> Numbers:
    """The numbers from each start on, as many as its length, one range after another."""
    before = np.cumsum(lengths, dtype=lengths.dtype) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()), dtype=lengths.dtype)
