"""How captions become words: the harness' own way, and those of papers, for the paper track.

A preparation is named in the vocabulary's file and in the signature, since scores depend on it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_WORD = re.compile(r"[^\s'-]+(?:['-][^\s'-]+)*")
_APOSTROPHES = str.maketrans({"’": "'", "ʼ": "'", "‐": "-", "‑": "-"})
_SYMBOL = re.compile(r"([^\w0-9])")
_DROPPED = frozenset({"", "''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"})


def tokenize(caption: str) -> list[str]:
    """Split a caption into lower-case words; punctuation is dropped.

    A word is a run of letters, digits and combining marks of any script. Single hyphens and apostrophes within a word
    belong to it ("t-shirt", "man's", "don't"), those at its edges do not. The text is brought to Unicode's NFC form, so
    that two spellings of one accent are one word. Scripts without spaces are not segmented.
    """
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", caption).lower()).translate(_APOSTROPHES)
    return _WORD.findall("".join(letter if _in_word(letter) else " " for letter in text))


def tokenize_expansionnet(caption: str) -> list[str]:
    """Split a caption as the released code of ExpansionNet v2 does.

    Every symbol stands alone, so that words are cut at apostrophes and hyphens; a short list of punctuation is dropped,
    quotes, brackets, `&`, `#`, `$` and line breaks within the caption stay as words.
    """
    spaced = _SYMBOL.sub(r" \1 ", caption.lower().rstrip())
    return [token for token in spaced.split(" ") if token not in _DROPPED]


@dataclass(frozen=True, slots=True)
class Preparation:
    """A way to make words of captions.

    Attributes:
        tokenize: words of a caption.
        specials: names of padding, begin, end and unknown word among the words, where a paper's vocabulary sorts them
            in; None for the four numbers in front.
    """

    tokenize: Callable[[str], list[str]]
    specials: tuple[str, str, str, str] | None = None


PREPARATIONS: Mapping[str, Preparation] = {
    "words": Preparation(tokenize),
    "expansionnet": Preparation(tokenize_expansionnet, ("PAD", "SOS", "EOS", "UNK")),
}


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter in "'-" or (not letter.isascii() and unicodedata.category(letter)[0] in "LMN")
