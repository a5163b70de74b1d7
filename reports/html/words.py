"""Words of captions as the gallery compares them with references: by their stem, function words aside."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
# Words that describe nothing by themselves.
FUNCTION_WORDS = frozenset(
    _WORD.findall(
        "a an and are as at be by for from has he her him his in is it its of on one or she some that the their them "
        "there they this to up we while who with you"
    )
)
_IRREGULAR = {
    "men": "man",
    "women": "woman",
    "children": "child",
    "people": "person",
    "feet": "foot",
    "teeth": "tooth",
    "mice": "mouse",
    "geese": "goose",
    "knives": "knife",
    "leaves": "leaf",
    "wives": "wife",
}
"""Plurals that captions use and no suffix tells."""


@cache
def stem(word: str) -> str:
    """The stem of a word in any case, by Snowball's English stemmer, which METEOR compares by too."""
    lower = word.lower()
    return str(_stemmer().stemWord(_IRREGULAR.get(lower, lower)))


def stems(texts: Iterable[str]) -> frozenset[str]:
    """The stems of all words."""
    return frozenset(stem(word) for text in texts for word in _WORD.findall(text))


def forms(texts: Iterable[str]) -> list[list[str]]:
    """Lower-case words that share a stem with another, together; words that are alone with theirs are left out."""
    found: dict[str, dict[str, None]] = {}
    for word in dict.fromkeys(word.lower() for text in dict.fromkeys(texts) for word in _WORD.findall(text)):
        found.setdefault(stem(word), {})[word] = None
    return [list(words) for words in found.values() if len(words) > 1]


def pieces(caption: str, known: frozenset[str]) -> tuple[tuple[str, bool], ...]:
    """The caption cut into stretches; True for a word whose stem is not known, function words aside."""
    found: list[tuple[str, bool]] = []
    end = 0
    for word in _WORD.finditer(caption):
        if word[0].lower() not in FUNCTION_WORDS and stem(word[0]) not in known:
            found += [(caption[end : word.start()], False), (word[0], True)]
            end = word.end()
    return (*((text, odd) for text, odd in found if text), (caption[end:], False))


@cache
def _stemmer() -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer("english")
