"""Which objects the images show: from COCO's instances, or from the generator of the embedded data set."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data.formats import is_image_id
from harness.data.scenes.dataset import is_scenes, scene_nouns, scene_objects
from harness.metrics.chair.words import ObjectWords, coco_words
from harness.utils.errors import BenchError
from harness.utils.hashing import digest
from harness.utils.json_io import read_json

SCENES_FILE = "dataset_scenes.json"
UNKNOWN = "what the images show is not known: name COCO's objects with --instances instances_val2014.json"
_FORMAT = 'give COCO\'s instances_val2014.json: "images", "annotations" and "categories"'


@dataclass(frozen=True)
class KnownObjects:
    """The objects of images by id.

    Attributes:
        words: the names of the categories.
        by_image: the categories of each image, possibly none.
        label: where they are from, as the metric's name says it.
        with_references: whether objects that an image's references name count as shown too.
    """

    words: ObjectWords
    by_image: Mapping[int, frozenset[str]]
    label: str
    with_references: bool

    def shown(self, references: Mapping[int, Sequence[str]]) -> dict[int, frozenset[str]]:
        """The objects of each image that has `references`; those must be in `by_image`."""
        if not self.with_references:
            return {image_id: self.by_image[image_id] for image_id in references}
        named = iter(self.words.mentioned([text for texts in references.values() for text in texts]))
        return {
            image_id: self.by_image[image_id].union(*(next(named) for _ in texts))
            for image_id, texts in references.items()
        }

    def lacking(self, images: Iterable[int]) -> str | None:
        """Why some of the images have no known objects, None where all have."""
        absent = [image_id for image_id in images if image_id not in self.by_image]
        if not absent:
            return None
        few = ", ".join(map(str, absent[:3])) + (", ..." if len(absent) > 3 else "")
        return f"{len(absent)} images are not in {self.label.partition('#')[0]} ({few}); --instances may be repeated"


def objects_of_scenes(path: Path) -> KnownObjects | None:
    """The objects of the embedded data set, exactly as drawn; None where the file is of another data set.

    Raises:
        BenchError: the file cannot be read, or was changed after it was generated.
    """
    content = read_json(path)
    if not is_scenes(content):
        return None
    nouns, plurals = scene_nouns()
    return KnownObjects(ObjectWords.of(nouns, plurals=plurals), scene_objects(content), "scenes", False)


def objects_of_coco(paths: Sequence[Path]) -> KnownObjects:
    """The objects of COCO's instances, of one file or several, to which references add theirs.

    Raises:
        BenchError: a file cannot be read, has another format, or has other categories than COCO's 80.
    """
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
        if image_id not in by_image:
            raise BenchError(f"--instances {path} has objects of image {image_id}, which it does not list", _FORMAT)
        by_image[image_id].add(name)
