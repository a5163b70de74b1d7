"""Tokenisation of training captions: the harness's own, and those of papers for the paper track.

The name of the preparation is in the vocabulary's file and in the signature, since scores depend on it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass

OWN_TOKENS = "karpathy-tokens"
"""The preparation that reads the tokens of a data set's file (`harness.data.own_tokens`)."""
UNKNOWN = "<unk>"
"""The unknown word, where no preparation gives it another name."""
_WORD = re.compile(r"[^\s'-]+(?:['-][^\s'-]+)*")
_APOSTROPHES = str.maketrans({"’": "'", "ʼ": "'", "‐": "-", "‑": "-"})
_SYMBOL = re.compile(r"([^\w0-9])")
_DROPPED = frozenset({"", "''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"})


def tokenize(caption: str) -> list[str]:
    """Split a caption into lower-case words; punctuation is dropped.

    A word is a run of letters, digits and combining marks of any script. Single hyphens and apostrophes within a word
    belong to it ("t-shirt", "man's", "don't"), those at its edges do not. The text is normalised to NFC, so that both
    encodings of an accented letter give the same word. Scripts without spaces are not segmented.
    """
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", caption).lower()).translate(_APOSTROPHES)
    return _WORD.findall("".join(letter if _in_word(letter) else " " for letter in text))


def tokenize_expansionnet(caption: str) -> list[str]:
    """Split a caption as the released code of ExpansionNet v2 does.

    Every symbol is a token, so words are split at apostrophes and hyphens; a short list of punctuation is dropped, but
    quotes, brackets, `&`, `#`, `$` and line breaks within the caption are kept as words.
    """
    spaced = _SYMBOL.sub(r" \1 ", caption.lower().rstrip())
    return [token for token in spaced.split(" ") if token not in _DROPPED]


@dataclass(frozen=True, slots=True)
class Preparation:
    """A tokenisation of captions.

    Attributes:
        tokenize: splits a caption into words.
        specials: names of padding, begin, end and unknown word, if a paper's vocabulary sorts them among the words;
            None if they are the first four numbers.
    """

    tokenize: Callable[[str], list[str]]
    specials: tuple[str, str, str, str] | None = None

    @property
    def unknown(self) -> str:
        """The unknown word as generated captions show it."""
        return UNKNOWN if self.specials is None else self.specials[3]


PREPARATIONS: Mapping[str, Preparation] = {
    "words": Preparation(tokenize),
    OWN_TOKENS: Preparation(str.split),
    "expansionnet": Preparation(tokenize_expansionnet, ("PAD", "SOS", "EOS", "UNK")),
}


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter in "'-" or (not letter.isascii() and unicodedata.category(letter)[0] in "LMN")
