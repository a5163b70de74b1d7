"""CHAIR-i and CHAIR-s of captions whose images' objects are known.

Rohrbach et al., "Object Hallucination in Image Captioning", EMNLP 2018, section 3.1:
CHAIR-i = mentions of objects that the image does not show / all mentions of objects,
CHAIR-s = captions with such a mention / all captions. Lower is better, and 0 is reached by naming nothing.
The paper maps words to COCO's categories by a list of synonyms, with rules for compounds. The list in `chair.yaml` is
not theirs; it was made from the categories' names. Objects in images come from COCO's instances, or from the generator
of the embedded data set.
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

UNKNOWN = "the objects in the images are not known: give COCO's with --instances instances_val2014.json"
_FORMAT = 'give COCO\'s instances_val2014.json: "images", "annotations" and "categories"'
_COCO: Final = Path(__file__).with_name("chair.yaml")
_ENDS_IN_ES: Final = ("s", "x", "z", "ch", "sh")


def _score(totals: Array) -> Array:
    """CHAIR-i and CHAIR-s from sums (..., 4); CHAIR-i is 0 if captions name no objects."""
    shares = np.zeros((*totals.shape[:-1], 2))
    np.divide(totals[..., 0::2], totals[..., 1::2], out=shares, where=totals[..., 1::2] > 0)
    return shares


CHAIR: Final = Metric(("CHAIR-i", "CHAIR-s"), _score)


def chair(captions: Mapping[int, str], references: Mapping[int, Sequence[str]], objects: KnownObjects) -> Statistics:
    """Statistics (N, 4): mentions of objects not shown, all mentions, whether any object is not shown, and 1."""
    shown_objects = objects.shown(references)
    rows = []
    for image_id, mentions in zip(captions, objects.words.mentioned(list(captions.values())), strict=True):
        hallucinated = sum(category not in shown_objects[image_id] for category in mentions)
        rows.append([hallucinated, len(mentions), hallucinated > 0, 1])
    return Statistics(CHAIR, np.array(rows, np.float64).reshape(-1, 4))


@dataclass(frozen=True)
class KnownObjects:
    """The objects that images show.

    Attributes:
        words: names of the objects.
        by_image: categories by image id, possibly none.
        label: source of the objects, for the metric's name.
        with_references: whether objects named by references count as shown.
    """

    words: ObjectWords
    by_image: Mapping[int, frozenset[str]]
    label: str
    with_references: bool

    def shown(self, references: Mapping[int, Sequence[str]]) -> dict[int, frozenset[str]]:
        """The objects of each image that has `references`; those must be in `by_image`."""
        if not self.with_references:
            return {image_id: self.by_image[image_id] for image_id in references}
        mentioned = iter(self.words.mentioned([text for texts in references.values() for text in texts]))
        return {
            image_id: self.by_image[image_id].union(*(next(mentioned) for _ in texts))
            for image_id, texts in references.items()
        }

    def missing_reason(self, images: Iterable[int]) -> str | None:
        """A message that lists the images without known objects; None if there are none."""
        missing = [str(image_id) for image_id in images if image_id not in self.by_image]
        if not missing:
            return None
        source = self.label.partition("#")[0]
        return f"{named(missing, f'that {source} does not list')}; --instances may be repeated"


def objects_of_scenes(annotations: Path | None) -> KnownObjects | None:
    """The objects drawn in the embedded data set; None and BenchError as `read_scenes`."""
    if (scenes := read_scenes(annotations)) is None:
        return None
    shown = {image_id: frozenset(item.shape for item in scene.items) for image_id, scene in scenes.items()}
    return KnownObjects(ObjectWords.of(nouns(), plurals=PLURALS), shown, "scenes", False)


def objects_of_coco(paths: Sequence[Path]) -> KnownObjects:
    """The objects in COCO's instance files and in references; BenchError for other files."""
    by_image: dict[int, set[str]] = {}
    for path in paths:
        _add_instances(path, read_json(path), coco_words().categories, by_image)
    objects = {image_id: frozenset(categories) for image_id, categories in by_image.items()}
    content = [[image_id, sorted(objects[image_id])] for image_id in sorted(objects)]
    label = f"{'+'.join(path.name.partition('.')[0] for path in paths)}#{digest(content, 6)}, references"
    return KnownObjects(coco_words(), objects, label, True)


def _add_instances(path: Path, content: Any, names: Collection[str], by_image: dict[int, set[str]]) -> None:
    try:
        categories = {entry["id"]: entry["name"] for entry in content["categories"]}
        images = [entry["id"] for entry in content["images"]]
        instances = [(entry["image_id"], categories[entry["category_id"]]) for entry in content["annotations"]]
    except (KeyError, TypeError) as error:
        raise BenchError(f"--instances {path} has no objects of images", _FORMAT) from error
    if unknown := sorted({str(name) for name in categories.values()} - set(names)):
        raise BenchError(f"--instances {path} has categories that are not COCO's: {', '.join(unknown[:5])}", _FORMAT)
    if not all(map(is_image_id, images)):
        raise BenchError(f"--instances {path} has images without a whole number as id", _FORMAT)
    for image_id in images:
        by_image.setdefault(image_id, set())
    for image_id, name in instances:
        if not is_image_id(image_id) or image_id not in by_image:
            raise BenchError(f"--instances {path} has objects of image {image_id}, which it does not list", _FORMAT)
        by_image[image_id].add(name)


Phrase = tuple[str, ...]


@dataclass(frozen=True)
class ObjectWords:
    """Names of objects.

    Attributes:
        phrases: the category of each name, as a tuple of words; None for a compound that names no object.
        describing: for a word, the categories before whose names it is only a description ("baby" before "cow").
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
        """Build from singular names.

        Args:
            names: by category.
            none: compounds that name no object.
            plurals: irregular plurals by singular.
        """
        phrases: dict[Phrase, str | None] = {}
        for category, texts in ((None, none), *names.items()):
            for text in texts:
                *before, last = text.split()
                phrases[*before, last] = category
                phrases[*before, plural(last, plurals or {})] = category
        return cls(phrases, describing or {})

    @property
    def categories(self) -> frozenset[str]:
        """All categories."""
        return frozenset(category for category in self.phrases.values() if category is not None)

    def mentioned(self, captions: Sequence[str]) -> list[list[str]]:
        """The categories that each caption names, in order of mention, with repetitions."""
        return [self.among(text.replace("-", " ").split()) for text in tokenize_ptb(captions)]

    def among(self, words: Sequence[str]) -> list[str]:
        """The categories that the words of a caption name, in order of mention, with repetitions."""
        categories: list[str] = []
        position = 0
        while position < len(words):
            if words[position] not in self._first:
                position += 1
                continue
            category, length = self._at(words, position)
            next_category = self._at(words, position + 1)[0]
            described = (
                length == 1 and next_category is not None and next_category in self.describing.get(words[position], ())
            )
            if category is not None and not described:
                categories.append(category)
            position += length
        return categories

    def _at(self, words: Sequence[str], position: int) -> tuple[str | None, int]:
        """The category of the longest name that begins at a position, and its number of words; (None, 1) if none."""
        for length in range(min(self._longest, len(words) - position), 0, -1):
            phrase = tuple(words[position : position + length])
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
