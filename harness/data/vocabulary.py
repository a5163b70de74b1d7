"""Word vocabularies: tokenisation of captions, by default or as in a paper, and the numbers of words."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.config.evaluation import TokenizerName
from harness.data.dataset import Dataset, Sample
from harness.data.formats.ids import named
from harness.data.word_tokenizers import WORD_TOKENIZERS, tokenizer_label, word_tokenizer
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError

OWN_TOKENS = "karpathy-tokens"
"""The preparation that uses the tokens that Karpathy's files have for each raw caption.

Luo's ImageCaptioning.pytorch and its descendants (AoANet, Image Transformer) use them, and count words over all splits
of the file, including those for evaluation.
"""
UNKNOWN = "<unk>"
_WORD = re.compile(r"[^\s'-]+(?:['-][^\s'-]+)*")
_ASCII_WORD = re.compile(r"[a-z0-9]+(?:['-][a-z0-9]+)*")
_APOSTROPHES = str.maketrans({"’": "'", "ʼ": "'", "‐": "-", "‑": "-"})
_SYMBOL = re.compile(r"([^\w0-9])")
_DROPPED = frozenset({"", "''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"})
_KARPATHYS = ("train", "val", "test")
"""Splits of Karpathy's files, where `restval` is part of `train`; nocaps, which may be added to them, has no tokens."""
PAD, BOS, EOS, UNK = range(4)
FORMAT = "captionbench vocabulary 2"


def tokenize(caption: str) -> list[str]:
    """Split a caption into lower-case words; punctuation is dropped.

    A word is a run of letters, digits and combining marks of any script. Single hyphens and apostrophes within a word
    belong to it ("t-shirt", "man's", "don't"), those at its edges do not. The text is normalised to NFC, so that both
    encodings of an accented letter give the same word. Scripts without spaces are not segmented here, but by
    `harness.data.word_tokenizers`.
    """
    if caption.isascii():
        return _ASCII_WORD.findall(caption.lower())
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", caption).lower()).translate(_APOSTROPHES)
    return _WORD.findall("".join(letter if _in_word(letter) else " " for letter in text))


def tokenize_expansionnet(caption: str) -> list[str]:
    """Split a caption as the released code of ExpansionNet v2 does.

    Every symbol is a token, so words are split at apostrophes and hyphens; a short list of punctuation is dropped, but
    quotes, brackets, `&`, `#`, `$` and line breaks within the caption are kept as words.
    """
    return [token for token in _SYMBOL.sub(r" \1 ", caption.lower().rstrip()).split(" ") if token not in _DROPPED]


@dataclass(frozen=True, slots=True)
class Preparation:
    """A tokenisation of captions.

    Attributes:
        specials: names of padding, begin, end and unknown word, where a paper's vocabulary sorts them with the words.
    """

    tokenize: Callable[[str], list[str]]
    specials: tuple[str, str, str, str] | None = None

    @property
    def unknown(self) -> str:
        """The unknown word in generated captions."""
        return UNKNOWN if self.specials is None else self.specials[3]


PREPARATIONS: Mapping[str, Preparation] = {
    "words": Preparation(tokenize),
    OWN_TOKENS: Preparation(str.split),
    "expansionnet": Preparation(tokenize_expansionnet, ("PAD", "SOS", "EOS", "UNK")),
    **{name: Preparation(tokenizer.tokenize) for name, tokenizer in WORD_TOKENIZERS.items()},
}


def choose_preparation(recipe: str, tokenizer: TokenizerName) -> str:
    """The preparation of captions, from a recipe's `captions` or the tokenizer; BenchError where both are set."""
    if word_tokenizer(tokenizer) is None:
        return recipe
    if recipe != "words":
        raise BenchError(
            f"recipe.captions is {recipe}, a paper's tokenisation, but --tokenizer {tokenizer} is another one",
            "add --set recipe.captions=words, or leave --tokenizer out",
        )
    return tokenizer


def preparation_label(preparation: str) -> str:
    """A preparation's name in signatures, with the version of its word segmenter."""
    tokenizer_name = next((name for name in WORD_TOKENIZERS if name == preparation), None)
    return preparation if tokenizer_name is None else tokenizer_label(tokenizer_name)


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter in "'-" or (not letter.isascii() and unicodedata.category(letter)[0] in "LMN")


def as_read(samples: Sequence[Sample], preparation: str) -> tuple[Sample, ...]:
    """Samples with the captions that a vocabulary of this preparation reads: raw ones, or tokens joined by spaces."""
    if preparation != OWN_TOKENS:
        return tuple(samples)
    return tuple(replace(sample, captions=sample.tokens or ()) for sample in samples)


def counted_captions(dataset: Dataset, train: Iterable[Sample], preparation: str) -> Iterator[str]:
    """The captions from which a vocabulary is built: those of `train`, or the tokens of all splits.

    BenchError where tokens are needed and a caption has none.
    """
    if preparation != OWN_TOKENS:
        return (caption for sample in train for caption in sample.captions)
    counted = [sample for split in _KARPATHYS for sample in dataset.splits.get(split, ())]
    if without := [str(sample.image_id) for sample in counted if sample.tokens is None]:
        raise BenchError(
            f"recipe.captions is {OWN_TOKENS}, but {dataset.name} has "
            + named(without, 'with captions without "tokens"'),
            "give Karpathy's own file (dataset_coco.json), or add --set recipe.captions=words",
        )
    return (caption for sample in counted for caption in sample.tokens or ())


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary of words.

    Attributes:
        words: in the order of their numbers, without the special tokens.
        pad, bos, eos, unk: numbers of padding, begin, end and unknown word.
        preparation: the tokenisation of captions, a key of `PREPARATIONS`; signatures include it.
    """

    words: tuple[str, ...]
    pad: int = PAD
    bos: int = BOS
    eos: int = EOS
    unk: int = UNK
    preparation: str = "words"

    def __post_init__(self) -> None:
        if len(set(self.specials)) != 4 or not set(self.specials) <= set(range(len(self))):
            raise ValueError(f"{self.specials} are not four different numbers of a vocabulary of {len(self)}")

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int, preparation: str = "words") -> Vocabulary:
        """Collect the words that occur at least `min_count` times.

        Frequent words come first, ties in code-point order. If the preparation names special tokens, all entries are in
        code-point order.
        """
        prepared = PREPARATIONS[preparation]
        counts = Counter(word for caption in captions for word in prepared.tokenize(caption))
        frequent = [word for word, count in counts.items() if count >= min_count]
        if prepared.specials is not None:
            return cls.of_entries(sorted({*frequent, *prepared.specials}), preparation)
        return cls(tuple(sorted(frequent, key=lambda word: (-counts[word], word))), preparation=preparation)

    @classmethod
    def of_entries(cls, entries: Sequence[str], preparation: str, names: Sequence[str] = ()) -> Vocabulary:
        """A vocabulary from entries that include the special tokens (`names`, or the preparation's).

        BenchError where one is missing, or an entry is repeated.
        """
        names = names or PREPARATIONS[preparation].specials or ()
        missing = [name for name in names if name not in entries]
        if missing:
            hint = f"it must contain {', '.join(names)} and all words"
            raise BenchError(f"the vocabulary lacks {', '.join(missing)}", hint)
        if len(set(entries)) != len(entries):
            raise BenchError("the vocabulary lists a word twice")
        pad, bos, eos, unk = map(entries.index, names)
        return cls(tuple(word for word in entries if word not in names), pad, bos, eos, unk, preparation)

    def __len__(self) -> int:
        """Count the words and the four special tokens."""
        return 4 + len(self.words)

    @property
    def specials(self) -> tuple[int, int, int, int]:
        """Numbers of padding, begin, end and the unknown word."""
        return self.pad, self.bos, self.eos, self.unk

    @cached_property
    def _ids(self) -> dict[str, int]:
        free = (number for number in range(len(self)) if number not in set(self.specials))
        return dict(zip(self.words, free, strict=True))

    @cached_property
    def _words_by_id(self) -> dict[int, str]:
        return {number: word for word, number in self._ids.items()}

    def tokenize(self, caption: str) -> list[str]:
        """The caption's words, known or unknown."""
        return PREPARATIONS[self.preparation].tokenize(caption)

    def encode(self, caption: str, max_len: int) -> list[int]:
        """At most `max_len` token numbers of a caption, without `bos`, the last one `eos`."""
        return [self._ids.get(word, self.unk) for word in self.tokenize(caption)[: max_len - 1]] + [self.eos]

    def decode(self, ids: Iterable[int]) -> str:
        """The words before the first `eos`, separated by spaces; unknown ones are named by the preparation."""
        unknown = PREPARATIONS[self.preparation].unknown
        return " ".join(unknown if word is None else word for word in self.words_of(ids))

    def words_of(self, ids: Iterable[int]) -> list[str | None]:
        """The words before the first `eos`; None for unknown ones."""
        return [self._words_by_id.get(number) for number in self._before_end(ids)]

    def number_of(self, word: str) -> int | None:
        """The number of a word; None if it is not an entry."""
        return self._ids.get(word)

    def numbers_of(self, words: Sequence[str], setting: str) -> tuple[int, ...]:  # noqa: ARG002
        """The numbers of those words in a setting that are entries, `<unk>` included.

        BenchError in vocabularies whose entries are not words.
        """
        numbers = {**self._ids, UNKNOWN: self.unk}
        return tuple(dict.fromkeys(numbers[word] for word in words if word in numbers))

    def _before_end(self, ids: Iterable[int]) -> Iterator[int]:
        """The numbers before the first `eos`, without padding and begin."""
        for number in ids:
            if number == self.eos:
                break
            if number not in (self.pad, self.bos):
                yield number

    def digest(self) -> str:
        """A hex digest of the words in order, and of settings that differ from the defaults."""
        unusual = [] if self == Vocabulary(self.words) else [f"{self.preparation} {self.specials}"]
        return hashlib.sha256("\n".join([*self.words, *unusual]).encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Write the vocabulary as JSON, atomically; `harness.data.vocabularies.load_vocabulary` reads it."""
        write_text(path, json.dumps(self.content(), ensure_ascii=False, indent=0) + "\n")

    def content(self) -> dict[str, Any]:
        """The vocabulary as plain values, for JSON."""
        return {
            "format": FORMAT,
            "preparation": self.preparation,
            "specials": dict(zip(("pad", "bos", "eos", "unk"), self.specials, strict=True)),
            "words": self.words,
        }
