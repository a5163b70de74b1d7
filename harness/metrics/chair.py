"""CHAIR-i and CHAIR-s of captions whose images' objects are known.

Rohrbach et al., "Object Hallucination in Image Captioning", EMNLP 2018, section 3.1:
CHAIR-i = mentions of objects that the image does not show / all mentions of objects,
CHAIR-s = captions with such a mention / all captions. Lower is better, and 0 is reached by naming nothing.
The paper maps words to COCO's categories by a list of synonyms, with rules for compounds; the list in `chair.yaml` is
this project's own, from the categories' names. What images show is from COCO's instances, or from the generator of the
embedded data set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from harness.data.formats.ids import is_image_id, named
from harness.data.scenes.dataset import read_scenes
from harness.data.scenes.language import PLURALS, nouns
from harness.metrics.ptb import tokenize_ptb
from harness.utils.errors import BenchError
from harness.utils.hashing import digest
from harness.utils.json_io import read_json
from results.statistics.significance import Array, Metric, Statistics

UNKNOWN = "what the images show is not known: name COCO's objects with --instances instances_val2014.json"
_FORMAT = 'give COCO\'s instances_val2014.json: "images", "annotations" and "categories"'
_COCO: Final = Path(__file__).with_name("chair.yaml")
_ENDS_IN_ES: Final = ("s", "x", "z", "ch", "sh")


def _score(totals: Array) -> Array:
    """Both of (..., 4) sums; CHAIR-i is 0 where nothing is named."""
    shares = np.zeros((*totals.shape[:-1], 2))
    np.divide(totals[..., 0::2], totals[..., 1::2], out=shares, where=totals[..., 1::2] > 0)
    return shares


CHAIR: Final = Metric(("CHAIR-i", "CHAIR-s"), _score)


def chair(captions: Mapping[int, str], references: Mapping[int, Sequence[str]], objects: KnownObjects) -> Statistics:
    """Statistics (N, 4) of captions: mentions of what is not shown, all mentions, if any is wrong, a one."""
    shown = objects.shown(references)
    rows = []
    for image_id, said in zip(captions, objects.words.mentioned(list(captions.values())), strict=True):
        wrong = sum(category not in shown[image_id] for category in said)
        rows.append([wrong, len(said), wrong > 0, 1])
    return Statistics(CHAIR, np.array(rows, np.float64).reshape(-1, 4))


@dataclass(frozen=True)
class KnownObjects:
    """The objects of images by id: the categories of each, possibly none.

    `label` is where they are from, as the metric's name says it; `with_references`: what references name counts too.
    """

    words: ObjectWords
    by_image: Mapping[int, frozenset[str]]
    label: str
    with_references: bool

    def shown(self, references: Mapping[int, Sequence[str]]) -> dict[int, frozenset[str]]:
        """The objects of each image that has `references`; those must be in `by_image`."""
        if not self.with_references:
            return {image_id: self.by_image[image_id] for image_id in references}
        told = iter(self.words.mentioned([text for texts in references.values() for text in texts]))
        return {
            image_id: self.by_image[image_id].union(*(next(told) for _ in texts))
            for image_id, texts in references.items()
        }

    def lacking(self, images: Iterable[int]) -> str | None:
        """Why some of the images have no known objects, None where all have."""
        absent = [str(image_id) for image_id in images if image_id not in self.by_image]
        what = f"that {self.label.partition('#')[0]} does not list"
        return f"{named(absent, what)}; --instances may be repeated" if absent else None


def objects_of_scenes(annotations: Path | None) -> KnownObjects | None:
    """The objects of the embedded data set, exactly as drawn; None and BenchError as `read_scenes`."""
    if (scenes := read_scenes(annotations)) is None:
        return None
    shown = {image_id: frozenset(item.shape for item in scene.items) for image_id, scene in scenes.items()}
    return KnownObjects(ObjectWords.of(nouns(), plurals=PLURALS), shown, "scenes", False)


def objects_of_coco(paths: Sequence[Path]) -> KnownObjects:
    """The objects of COCO's instances, to which references add theirs; BenchError where a file has other ones."""
    by_image: dict[int, set[str]] = {}
    for path in paths:
        _add_instances(path, read_json(path), coco_words().categories, by_image)
    known = {image_id: frozenset(found) for image_id, found in by_image.items()}
    content = [[image_id, sorted(known[image_id])] for image_id in sorted(known)]
    label = f"{'+'.join(path.name.partition('.')[0] for path in paths)}#{digest(content, 6)}, references"
    return KnownObjects(coco_words(), known, label, True)


def _add_instances(path: Path, content: Any, names: Collection[str], by_image: dict[int, set[str]]) -> None:
    try:
        categories = {entry["id"]: entry["name"] for entry in content["categories"]}
        images = [entry["id"] for entry in content["images"]]
        shown = [(entry["image_id"], categories[entry["category_id"]]) for entry in content["annotations"]]
    except (KeyError, TypeError) as error:
        raise BenchError(f"--instances {path} has no objects of images", _FORMAT) from error
    if strange := sorted({str(name) for name in categories.values()} - set(names)):
        raise BenchError(f"--instances {path} has categories that are not COCO's: {', '.join(strange[:5])}", _FORMAT)
    if not all(map(is_image_id, images)):
        raise BenchError(f"--instances {path} has images without a whole number as id", _FORMAT)
    for image_id in images:
        by_image.setdefault(image_id, set())
    for image_id, name in shown:
        if not is_image_id(image_id) or image_id not in by_image:
            raise BenchError(f"--instances {path} has objects of image {image_id}, which it does not list", _FORMAT)
        by_image[image_id].add(name)


Phrase = tuple[str, ...]


@dataclass(frozen=True)
class ObjectWords:
    """Names of objects: `phrases` are words of a name to its category, None for a compound that names none.

    `describing` is a word to the categories before which it names nothing itself ("baby" before "cow").
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
        return [self.among(text.replace("-", " ").split()) for text in tokenize_ptb(captions)]

    def among(self, words: Sequence[str]) -> list[str]:
        """The categories that a caption's words name, in order, once for each time that they do."""
        found: list[str] = []
        place = 0
        while place < len(words):
            if words[place] not in self._first:
                place += 1
                continue
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
    def _first(self) -> frozenset[str]:
        return frozenset(phrase[0] for phrase in self.phrases)

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
