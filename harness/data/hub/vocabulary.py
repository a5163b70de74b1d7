"""The tokenizer of a pretrained model as a vocabulary, stored in the JSON of the `tokenizers` library."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from harness.data.vocabulary import PAD, Vocabulary
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from zoo.errors import first_line

_FILES = ("tokenizer.json", "vocab.txt", "vocab.json")
_HINT = "fetch the model again"
FORMAT = "captionbench pretrained tokenizer 1"


@dataclass(frozen=True)
class HubVocabulary(Vocabulary):
    """The vocabulary of a pretrained model; `words` is empty, since the tokenizer has the entries.

    `pad` is 0, not the model's own padding token: some models use one token for begin, end and padding, and training
    must distinguish the end from padding.

    Attributes:
        tokenizer: JSON text of the `tokenizers` library.
    """

    tokenizer: str = ""

    def __post_init__(self) -> None:
        """Skips the check of other vocabularies: begin and end may be the same token."""

    @classmethod
    def read(cls, folder: Path, bos: int, eos: int) -> HubVocabulary:
        """The tokenizer in a pretrained model's folder.

        Raises:
            BenchError: it is missing or damaged.
        """
        from transformers import AutoTokenizer

        if not any((folder / name).is_file() for name in _FILES):  # the library would create an empty tokenizer
            raise BenchError(f"{folder} holds no usable tokenizer: none of {', '.join(_FILES)}", _HINT)
        try:
            found = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
            text = found.backend_tokenizer.to_str()
        except Exception as error:  # the library may raise anything
            raise BenchError(f"{folder} holds no usable tokenizer: {first_line(error)}", _HINT) from error
        return cls((), PAD, bos, eos, eos, tokenizer=text)

    @cached_property
    def _library(self) -> Tokenizer:
        return Tokenizer.from_str(self.tokenizer)

    @cached_property
    def _unspoken(self) -> frozenset[int]:
        """Special tokens that are no part of a text; the unknown word is one."""
        unknown = getattr(self._library.model, "unk_token", None)
        added = self._library.get_added_tokens_decoder().items()
        return frozenset(number for number, token in added if token.special and token.content != unknown)

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
        pieces = self._library.encode(text, add_special_tokens=False).ids
        return [*pieces[: max_len - 1], self.eos]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens before the first `eos`, as the tokenizer joins them."""
        spoken = [number for number in self._spoken(ids) if number not in self._unspoken]
        return str(self._library.decode(spoken, skip_special_tokens=False)).strip()

    def words_of(self, ids: Iterable[int]) -> list[str | None]:
        """See `Vocabulary.words_of`; the words of the text."""
        return list(self.tokenize(self.decode(ids)))

    def digest(self) -> str:
        """A hex digest of the tokenizer and its begin and end."""
        return hashlib.sha256(f"{self.specials}\n{self.tokenizer}".encode()).hexdigest()

    def content(self) -> dict[str, Any]:
        """Everything that makes up the vocabulary, as plain values."""
        return super().content() | {"format": FORMAT, "tokenizer": self.tokenizer}
