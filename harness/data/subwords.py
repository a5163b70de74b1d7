"""Subword vocabulary: byte-pair encoding (Sennrich et al., ACL 2016) by the `tokenizers` library.

Subwords never cross a word's end. The first subword of a word begins with a space, which no word contains, so that
joining the subwords of a caption gives its words back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Split
from tokenizers.trainers import BpeTrainer

from harness.data.preparation import PREPARATIONS, UNKNOWN
from harness.data.vocabulary import Vocabulary
from harness.utils.errors import BenchError
from harness.utils.files import shortened

FORMAT = "captionbench subwords 1"
MERGES = 5000
_UNKNOWN = "  "
"""The library's token for characters that occur in no training caption; subwords have at most one space."""


@dataclass(frozen=True)
class SubwordVocabulary(Vocabulary):
    """A vocabulary whose entries (`words`) are subwords.

    It covers every word made of characters of the training captions; a word with another character is unknown as a
    whole.

    Attributes:
        merges: pairs of subwords that are merged, the most frequent ones first.
    """

    merges: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        pieces = set(self.words)
        for left, right in self.merges:
            if not {left, right, left + right} <= pieces:
                raise ValueError(f"the merge of {left!r} and {right!r} does not consist of entries")

    @classmethod
    def build(
        cls, captions: Iterable[str], min_count: int, preparation: str = "words", merges: int = MERGES
    ) -> SubwordVocabulary:
        """Learn at most `merges` merges of pairs that occur at least `min_count` times.

        The entries are the characters, sorted by code point, then what each merge makes. The captions' order does not
        matter.
        """
        tokenize = PREPARATIONS[preparation].tokenize
        texts = [_spaced(tokenize(caption)) for caption in captions]
        characters = sorted(set().union(*texts))
        learner = Tokenizer(BPE())
        learner.pre_tokenizer = Split(" ", "merged_with_next")
        size = len(characters) + merges
        learner.train_from_iterator(texts, BpeTrainer(vocab_size=size, min_frequency=min_count, show_progress=False))
        learnt = [(left, right) for left, right in json.loads(learner.to_str())["model"]["merges"][:merges]]
        pieces = dict.fromkeys([*characters, *(left + right for left, right in learnt)])
        return cls(tuple(pieces), preparation=preparation, merges=tuple(learnt))

    def encode(self, caption: str, max_len: int) -> list[int]:
        """As `Vocabulary.encode`; a caption that is too long loses whole words, never part of one."""
        if max_len < 1:
            raise ValueError(f"max_len must be at least 1, not {max_len}")
        numbers: list[int] = []
        for word in self.tokenize(caption):
            pieces = self._pieces(word)
            if len(numbers) + len(pieces) >= max_len:
                break
            numbers += pieces
        return [*numbers, self.eos]

    def words_of(self, ids: Iterable[int]) -> list[str | None]:
        """See `Vocabulary.words_of`; subwords before the first space are a word too."""
        found: list[str | None] = []
        for number in self._spoken(ids):
            piece = self._words_by_id.get(number)
            if not found or (piece is not None and piece.startswith(" ")):
                found.append("")
            word = found[-1]
            found[-1] = None if word is None or piece is None else word + piece.removeprefix(" ")
        return [word for word in found if word != ""]

    def number_of(self, word: str) -> int | None:  # noqa: ARG002
        """None: no word is sure to be a single entry."""
        return None

    def numbers_of(self, words: Sequence[str], setting: str) -> tuple[int, ...]:
        """See `Vocabulary.numbers_of`; no word but the unknown one is sure to be a single entry."""
        if others := [word for word in words if word != UNKNOWN]:
            raise BenchError(
                f"{setting} names {shortened(', '.join(others))}, but this vocabulary is of subwords",
                f"name {UNKNOWN} alone, or nothing",
            )
        return super().numbers_of(words, setting)

    def digest(self) -> str:
        """A hex digest of the entries in their order and of the merges."""
        return hashlib.sha256(json.dumps(self.content()).encode()).hexdigest()

    def content(self) -> dict[str, Any]:
        """Everything that makes up the vocabulary, as plain values."""
        return super().content() | {"format": FORMAT, "merges": self.merges}

    @cached_property
    def _encoder(self) -> Tokenizer:
        numbers = {**self._ids, _UNKNOWN: self.unk}
        return Tokenizer(BPE(vocab=numbers, merges=list(self.merges), unk_token=_UNKNOWN))

    @cached_property
    def _encoded(self) -> dict[str, list[int]]:
        """Cached subwords of a word; captions have few different words."""
        return {}

    def _pieces(self, word: str) -> list[int]:
        if word not in self._encoded:
            self._encoded[word] = self._encoder.encode(_spaced([word])).ids
        return self._encoded[word]


def _spaced(words: Iterable[str]) -> str:
    return "".join(f" {word}" for word in words)
