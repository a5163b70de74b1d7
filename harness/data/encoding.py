"""The vocabulary of a data set and the token numbers of its captions, cached by their content."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.config.preset import VocabularyConfig
from harness.data.dataset import Sample
from harness.data.stored_dataset import reading_code
from harness.data.vocabularies import SubwordVocabulary, load_vocabulary
from harness.data.vocabulary import Vocabulary, preparation_label
from harness.utils.atomic import replacing
from harness.utils.errors import BenchError
from harness.utils.hashing import digest

_DAMAGE = (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError)


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Concatenated token numbers of captions; row i is `numbers[ends[i - 1] : ends[i]]`."""

    numbers: NDArray[np.int32]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> TokenRows:
        """Rows of any lengths."""
        lengths: list[int] = []

        def numbers() -> Iterator[int]:
            for row in rows:
                lengths.append(len(row))
                yield from row

        flat = np.fromiter(numbers(), dtype=np.int32)
        return cls(flat, np.cumsum(lengths, dtype=np.int64))

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.ends)

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        """The numbers of one row."""
        start = self.ends[index - 1] if index else 0
        return self.numbers[start : self.ends[index]]


def encode_captions(
    samples: Sequence[Sample], vocabulary: Vocabulary, max_len: int, cache_dir: Path | None = None
) -> TokenRows:
    """A row for each caption, image by image: begin token, words, end token; at most `max_len` numbers.

    With a `cache_dir`, they are encoded once and read from there afterwards.
    """
    rows = (
        [vocabulary.bos, *vocabulary.encode(caption, max_len - 1)] for sample in samples for caption in sample.captions
    )
    if cache_dir is None:
        return TokenRows.of(rows)
    captions = chain.from_iterable(sample.captions for sample in samples)
    path = cache_dir / "token_rows" / f"{_key(captions, vocabulary.digest(), max_len)}.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return TokenRows(arrays["numbers"], arrays["ends"])
    except _DAMAGE:
        encoded = TokenRows.of(rows)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, numbers=encoded.numbers, ends=encoded.ends)
    return encoded


def build_vocabulary(captions: Sequence[str], words: VocabularyConfig, preparation: str, cache_dir: Path) -> Vocabulary:
    """The vocabulary of these captions with a preset's settings; built once, and read from the cache afterwards."""
    settings = [words.kind, words.min_count, words.merges, preparation_label(preparation)]
    path = cache_dir / "vocabularies" / f"{_key(captions, *settings)}.json"
    if path.is_file():
        try:
            return load_vocabulary(path)
        except BenchError:  # damaged: build it again
            path.unlink(missing_ok=True)
    vocabulary: Vocabulary
    if words.kind == "bpe":
        vocabulary = SubwordVocabulary.build(captions, words.min_count, preparation, words.merges)
    else:
        vocabulary = Vocabulary.build(captions, words.min_count, preparation)
    if cache_dir.parent.is_dir():  # a plan makes no workspace
        vocabulary.save(path)
    return vocabulary


def _key(captions: Iterable[str], *settings: Any) -> str:
    """A digest of all captions in their order, of the settings, and of the code that reads captions."""
    text = hashlib.sha256()
    for caption in captions:
        text.update(caption.encode() + b"\n")
    return digest([text.hexdigest(), *settings, reading_code()], 24)
