"""Captions as words, and words as numbers."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.atomic import write_text
from harness.errors import BenchError

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
_FORMAT = "captionbench vocabulary 1"
_WORD = re.compile(r"[^\s'-]+(?:['-][^\s'-]+)*")
_APOSTROPHES = str.maketrans({"’": "'", "ʼ": "'", "‐": "-", "‑": "-"})


def tokenize(caption: str) -> list[str]:
    """Split a caption into lower-case words; punctuation is dropped.

    A word is a run of letters, digits and combining marks of any script. Single hyphens and apostrophes within a word
    belong to it ("t-shirt", "man's", "don't"), those at its edges do not. The text is brought to Unicode's NFC form, so
    that two spellings of one accent are one word. Scripts without spaces are not segmented.
    """
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", caption).lower()).translate(_APOSTROPHES)
    return _WORD.findall("".join(letter if _in_word(letter) else " " for letter in text))


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter in "'-" or (not letter.isascii() and unicodedata.category(letter)[0] in "LMN")


@dataclass(frozen=True)
class Vocabulary:
    """Words with the numbers 4, 5, ... in the order given; 0 to 3 are padding, begin, end and the unknown word."""

    words: tuple[str, ...]

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int) -> Vocabulary:
        """Collect the words that occur at least `min_count` times: frequent first, ties in code-point order."""
        counts = Counter(word for caption in captions for word in tokenize(caption))
        kept = [word for word, count in counts.items() if count >= min_count]
        return cls(tuple(sorted(kept, key=lambda word: (-counts[word], word))))

    def __len__(self) -> int:
        """Count the words and the four special tokens."""
        return len(SPECIALS) + len(self.words)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, start=len(SPECIALS))}

    def encode(self, caption: str, max_len: int) -> list[int]:
        """Give the caption's numbers, closed by EOS and at most `max_len` of them, EOS included; no BOS."""
        if max_len < 1:
            raise ValueError(f"max_len must be at least 1, not {max_len}")
        return [self._ids.get(word, UNK) for word in tokenize(caption)[: max_len - 1]] + [EOS]

    def decode(self, ids: Iterable[int]) -> str:
        """Give the words up to the first EOS, separated by spaces; the four special tokens leave no trace."""
        found = []
        for number in ids:
            if number == EOS:
                break
            if number >= len(SPECIALS):
                found.append(self.words[number - len(SPECIALS)])
        return " ".join(found)

    def digest(self) -> str:
        """A hex digest of the words in their order."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Write the vocabulary as JSON, all at once."""
        write_text(path, json.dumps({"format": _FORMAT, "words": self.words}, ensure_ascii=False, indent=0) + "\n")

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read what `save` wrote.

        Raises:
            BenchError: the file is missing, damaged or not a vocabulary.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BenchError(f"the vocabulary {path} cannot be read: {error}") from error
        words = content.get("words") if isinstance(content, dict) and content.get("format") == _FORMAT else None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise BenchError(f"{path} is not a vocabulary of captionbench", hint=f'its "format" must be "{_FORMAT}"')
        if len(set(words)) != len(words):
            raise BenchError(f"the vocabulary {path} lists a word twice")
        return cls(tuple(words))
