"""Vocabularies of subwords and of pretrained tokenizers, and reading the file of any vocabulary.

Subwords are byte-pair encodings (Sennrich et al., ACL 2016) by the `tokenizers` library. They do not cross words. The
first subword of a word begins with a space, which no word contains, so that the concatenated subwords of a caption are
its words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Split
from tokenizers.trainers import BpeTrainer

from harness.data.hub import open_part
from harness.data.vocabulary import FORMAT, PAD, PREPARATIONS, UNKNOWN, Vocabulary
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.json_io import read_json

_SUBWORDS = "captionbench subwords 1"
_PRETRAINED = "captionbench pretrained tokenizer 1"
_UNKNOWN = "  "
"""The library's token for characters that are in no training caption; it differs from all subwords by two spaces."""
_FILES = ("tokenizer.json", "vocab.txt", "vocab.json")
_HINT = "fetch the model again"


@dataclass(frozen=True)
class SubwordVocabulary(Vocabulary):
    """A vocabulary of subwords (`words`). Words with a character that is in no training caption are unknown."""

    merges: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        pieces = set(self.words)
        for first, second in self.merges:
            if not {first, second, first + second} <= pieces:
                raise ValueError(f"the merge of {first!r} and {second!r} does not consist of entries")

    @classmethod
    def build(
        cls, captions: Iterable[str], min_count: int, preparation: str = "words", merges: int = 5000
    ) -> SubwordVocabulary:
        """Learn at most `merges` merges of pairs that occur at least `min_count` times, whatever the captions' order.

        The entries are the characters, sorted by code point, then the result of each merge.
        """
        tokenize = PREPARATIONS[preparation].tokenize
        texts = [_spaced(tokenize(caption)) for caption in captions]
        characters = sorted(set().union(*texts))
        learner = Tokenizer(BPE())
        learner.pre_tokenizer = Split(" ", "merged_with_next")
        size = len(characters) + merges
        learner.train_from_iterator(texts, BpeTrainer(vocab_size=size, min_frequency=min_count, show_progress=False))
        pairs = [(first, second) for first, second in json.loads(learner.to_str())["model"]["merges"][:merges]]
        pieces = dict.fromkeys([*characters, *(first + second for first, second in pairs)])
        return cls(tuple(pieces), preparation=preparation, merges=tuple(pairs))

    def encode(self, caption: str, max_len: int) -> list[int]:
        """As `Vocabulary.encode`; a caption that is too long loses whole words, and a part only of its first."""
        numbers: list[int] = []
        for word in self.tokenize(caption):
            pieces = self._pieces(word)
            if numbers and len(numbers) + len(pieces) >= max_len:
                break
            numbers += pieces[: max_len - 1]
        return [*numbers, self.eos]

    def words_of(self, ids: Iterable[int]) -> list[str | None]:
        """See `Vocabulary.words_of`; subwords before the first space are a word too."""
        words: list[str | None] = []
        for index in self._before_end(ids):
            piece = self._words_by_id.get(index)
            if not words or (piece is not None and piece.startswith(" ")):
                words.append("")
            word = words[-1]
            words[-1] = None if word is None or piece is None else word + piece.removeprefix(" ")
        return [word for word in words if word != ""]

    def number_of(self, word: str) -> int | None:  # noqa: ARG002
        """None: no word is sure to be a single entry."""
        return None

    def numbers_of(self, words: Sequence[str], setting: str) -> tuple[int, ...]:
        """See `Vocabulary.numbers_of`; no word but the unknown one is sure to be a single entry."""
        if other_words := [word for word in words if word != UNKNOWN]:
            raise BenchError(
                f"{setting} names {shortened(', '.join(other_words))}, but this vocabulary is of subwords",
                f"name {UNKNOWN} alone, or nothing",
            )
        return super().numbers_of(words, setting)

    def digest(self) -> str:
        """A hex digest of the entries in their order and of the merges."""
        return hashlib.sha256(json.dumps(self.content()).encode()).hexdigest()

    def content(self) -> dict[str, Any]:
        """Everything that makes up the vocabulary, as plain values."""
        return super().content() | {"format": _SUBWORDS, "merges": self.merges}

    @cached_property
    def _encoder(self) -> Tokenizer:
        return Tokenizer(BPE(vocab={**self._ids, _UNKNOWN: self.unk}, merges=list(self.merges), unk_token=_UNKNOWN))

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


@dataclass(frozen=True)
class HubVocabulary(Vocabulary):
    """The vocabulary of a pretrained model; `words` is empty, since the tokenizer has the entries.

    `pad` is 0, not the model's own padding token: some models use one token for begin, end and padding, and training
    must distinguish the end from padding.
    """

    tokenizer: str = ""

    def __post_init__(self) -> None:
        """Skips the check of other vocabularies: begin and end may be the same token."""

    @classmethod
    def read(cls, folder: Path, bos: int, eos: int, preparation: str = "words") -> HubVocabulary:
        """The tokenizer in a pretrained model's folder; BenchError where it is missing or damaged."""
        from transformers import AutoTokenizer

        if not any((folder / name).is_file() for name in _FILES):  # the library would create an empty tokenizer
            raise BenchError(f"{folder} holds no usable tokenizer: none of {', '.join(_FILES)}", _HINT)
        tokenizer = open_part(AutoTokenizer, folder, f"{folder} holds no usable tokenizer")
        if not tokenizer.is_fast:
            raise BenchError(
                f"{folder} holds no usable tokenizer: {type(tokenizer).__name__} is written in Python", _HINT
            )
        return cls((), PAD, bos, eos, eos, preparation, tokenizer=tokenizer.backend_tokenizer.to_str())

    @cached_property
    def _library(self) -> Tokenizer:
        return Tokenizer.from_str(self.tokenizer)

    @cached_property
    def _unspoken(self) -> frozenset[int]:
        """Special tokens that are no part of a text; the unknown word is one."""
        unknown = getattr(self._library.model, "unk_token", None)
        added = self._library.get_added_tokens_decoder().items()
        return frozenset(index for index, token in added if token.special and token.content != unknown)

    def numbers_of(self, words: Sequence[str], setting: str) -> tuple[int, ...]:
        """See `Vocabulary.numbers_of`; a tokenizer's entries are no words."""
        if words:
            raise BenchError(
                f"{setting} names {shortened(', '.join(words))}, but this model brings its own tokenizer",
                f"add --set {setting}=[]",
            )
        return ()

    def __len__(self) -> int:
        """Count the tokenizer's entries, its special tokens included."""
        return int(self._library.get_vocab_size())

    def encode(self, caption: str, max_len: int) -> list[int]:
        """As `Vocabulary.encode`: the tokens of the prepared caption, cut to `max_len` and ended by `eos`."""
        text = " ".join(self.tokenize(caption))
        return [*self._library.encode(text, add_special_tokens=False).ids[: max_len - 1], self.eos]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens before the first `eos`, as the tokenizer joins them."""
        spoken = [index for index in self._before_end(ids) if index not in self._unspoken]
        return str(self._library.decode(spoken, skip_special_tokens=False)).strip()

    def words_of(self, ids: Iterable[int]) -> list[str | None]:
        """See `Vocabulary.words_of`; the words of the text."""
        return list(self.tokenize(self.decode(ids)))

    def digest(self) -> str:
        """A hex digest of the tokenizer and its begin and end."""
        return hashlib.sha256(f"{self.specials}\n{self.tokenizer}".encode()).hexdigest()

    def content(self) -> dict[str, Any]:
        """Everything that makes up the vocabulary, as plain values."""
        return super().content() | {"format": _PRETRAINED, "tokenizer": self.tokenizer}


class _Stored(BaseModel, strict=True):
    """A vocabulary's file, of any kind."""

    format: Literal["captionbench vocabulary 2", "captionbench subwords 1", "captionbench pretrained tokenizer 1"]
    preparation: Literal["words", "karpathy-tokens", "expansionnet", "characters", "zh", "ja", "vi"]
    specials: dict[str, int]
    words: list[str]
    merges: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = []
    tokenizer: str = ""


def load_vocabulary(path: Path) -> Vocabulary:
    """Load a vocabulary of any kind; BenchError where the file is missing, damaged or not one."""
    content = read_json(path)
    try:
        return _built(_Stored.model_validate(content))
    except ValidationError as error:
        first_error = error.errors()[0]
        reason = f"{'.'.join(map(str, first_error['loc']))}: {first_error['msg']}"
    except Exception as error:  # of a tokenizer the library raises nothing more precise
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
    raise BenchError(
        f"{path} is no vocabulary of captionbench, or damaged: {shortened(reason, 300)}",
        "copy it from the run that it belongs to",
    )


def _built(stored: _Stored) -> Vocabulary:
    words = tuple(stored.words)
    if len(set(words)) != len(words):
        raise ValueError("it lists a word twice")
    "".join(words).encode()  # which halves of a pair of surrogates refuse
    common: dict[str, Any] = {name: stored.specials[name] for name in ("pad", "bos", "eos", "unk")}
    common["preparation"] = stored.preparation
    if stored.format == FORMAT:
        return Vocabulary(words, **common)
    if stored.format == _SUBWORDS:
        return SubwordVocabulary(words, **common, merges=tuple((first, second) for first, second in stored.merges))
    vocabulary = HubVocabulary(words, **common, tokenizer=stored.tokenizer)
    len(vocabulary)  # reads it
    return vocabulary
