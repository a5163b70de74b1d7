"""Which objects of a fixed list a caption names: the longest name at each place, in the singular or plural.

Rohrbach et al. (EMNLP 2018, section 3.1) map the words of captions to COCO's categories by a list of synonyms, with
rules for compounds. The list of COCO in `coco.yaml` is this project's own, from the categories' names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import yaml

from harness.metrics.ptb.python import tokenize_ptb

_COCO: Final = Path(__file__).with_name("coco.yaml")
_ENDS_IN_ES: Final = ("s", "x", "z", "ch", "sh")

Phrase = tuple[str, ...]


@dataclass(frozen=True)
class ObjectWords:
    """Names of objects.

    Attributes:
        phrases: words of a name to its category, None for a compound that names none.
        describing: a word to the categories before which it names nothing itself ("baby" before "cow").
    """

    phrases: Mapping[Phrase, str | None]
    describing: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        names: Mapping[str, Iterable[str]],
        none: Iterable[str] = (),
        describing: Mapping[str, frozenset[str]] | None = None,
        plurals: Mapping[str, str] | None = None,
    ) -> ObjectWords:
        """From singular names by category and compounds that name none; `plurals` are those that no rule gives."""
        phrases: dict[Phrase, str | None] = {}
        for category, texts in ((None, none), *names.items()):
            for text in texts:
                *before, last = text.split()
                phrases[*before, last] = category
                phrases[*before, plural(last, plurals or {})] = category
        return cls(phrases, describing or {})

    @property
    def categories(self) -> frozenset[str]:
        """All categories that have a name."""
        return frozenset(category for category in self.phrases.values() if category is not None)

    def mentioned(self, captions: Sequence[str]) -> list[list[str]]:
        """The categories that each caption names, in order, once for each time that it does."""
        return [self._in(text.replace("-", " ").split()) for text in tokenize_ptb(captions)]

    def _in(self, words: Sequence[str]) -> list[str]:
        found: list[str] = []
        place = 0
        while place < len(words):
            category, length = self._at(words, place)
            behind = self._at(words, place + 1)[0]
            described = length == 1 and behind is not None and behind in self.describing.get(words[place], ())
            if category is not None and not described:
                found.append(category)
            place += length
        return found

    def _at(self, words: Sequence[str], place: int) -> tuple[str | None, int]:
        """The category of the longest name that begins here, and its number of words; (None, 1) where none does."""
        for length in range(min(self._longest, len(words) - place), 0, -1):
            phrase = tuple(words[place : place + length])
            if phrase in self.phrases:
                return self.phrases[phrase], length
        return None, 1

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.phrases), default=0)


@cache
def coco_words() -> ObjectWords:
    """The names of COCO's 80 categories."""
    content: dict[str, Any] = yaml.safe_load(_COCO.read_text(encoding="utf-8"))
    describing: dict[str, frozenset[str]] = {}
    for group, words in content["describing"].items():
        for word in words:
            describing[word] = describing.get(word, frozenset()) | frozenset(content[group])
    return ObjectWords.of(content["categories"], content["none"], describing, content["plurals"])


def plural(word: str, irregular: Mapping[str, str]) -> str:
    """The plural of a singular noun by English spelling."""
    if word in irregular:
        return irregular[word]
    if word.endswith("man"):  # fireman, policeman
        return f"{word[:-3]}men"
    if word.endswith("y") and word[-2:-1] not in set("aeiou"):
        return f"{word[:-1]}ies"
    return word + ("es" if word.endswith(_ENDS_IN_ES) else "s")
