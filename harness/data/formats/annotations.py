"""`Annotations`, into which every format is read: images with captions, splits, domains, boxes and sizes."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.data.dataset import Box
from harness.utils.files import shortened

SPLIT_NAMES: Final = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    "test": "test",
    "restval": "restval",
}
"""Names of splits in data sets, with the name here."""


REJECTED_FIELDS: Final = ("is_rejected", "is_precanned")
"""Fields by which VizWiz marks captions that its API leaves out."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The user's options for reading annotations, and how they are typed.

    Attributes:
        image_field: the column or key that names the images.
        caption_field: the column or key of the captions.
        caption_option, image_option, format_option: what these and the format are typed with, for messages that ask for
            them; "" if there is no such option.
    """

    image_field: str | None = None
    caption_field: str | None = None
    caption_option: str = "--caption-column"
    image_option: str = "--file-column"
    format_option: str = "--format"


@dataclass(slots=True)
class AnnotatedImage:
    """One image of an annotation file.

    Attributes:
        name: what the file calls it by: an id, or the file of the picture.
        file: the picture below the folder of pictures, with forward slashes; "" if the file names none.
        split: a name of `SPLIT_NAMES`, or the file's own word for another; None if it says none.
        boxes: corners in pixels; None if they are unknown.
        size: width and height in pixels, where the file has them.
        usable: false where its split is unreadable or contradictory.
    """

    name: str | int
    file: str = ""
    captions: list[str] = field(default_factory=list)
    split: str | None = None
    domain: str | None = None
    boxes: list[Box] | None = None
    size: tuple[int, int] | None = None
    usable: bool = True

    @property
    def picture(self) -> str:
        """The picture's file, or the image's name where there is none."""
        return self.file or str(self.name)


@dataclass(slots=True)
class Annotations:
    """The content of an annotation file: images by name, in the file's order, and the problems found in it.

    Attributes:
        problems: what is wrong, with the entries that it concerns. Nothing is read past a problem silently.
        notes: what was left out or is worth knowing, and is no problem.
        write_pictures: writes the pictures that the annotations hold into a folder, and returns how many were not there
            yet; None if they hold none.
        id_field: the key of the numbers that images are called by, where the format leaves it open.
        rejected: how many captions are marked by `REJECTED_FIELDS`, and left out.
    """

    path: Path
    images: dict[str | int, AnnotatedImage] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    write_pictures: Callable[[Path], int] | None = None
    id_field: str = ""
    rejected: int = 0

    def rejects(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry's caption is marked as rejected; if so, count it in `rejected`."""
        is_rejected = any(str(entry.get(name)).strip().lower() in ("true", "1", "1.0") for name in REJECTED_FIELDS)
        if is_rejected:
            self.rejected += 1
        return is_rejected

    @property
    def caption_count(self) -> int:
        return sum(len(image.captions) for image in self.images.values())

    def image(self, name: str | int, file: str = "") -> AnnotatedImage:
        """The image of this name; add it if it is new."""
        return self.images.setdefault(name, AnnotatedImage(name, file))

    def add_problem(self, problem: str, about: str) -> None:
        """Record an entry under a problem."""
        self.problems.setdefault(problem, []).append(about)

    def set_split(self, image: AnnotatedImage, value: object, where: str) -> None:
        """Set the image's split; record a problem for one that is no text or a second one. `where`: "line 3"."""
        if not isinstance(value, str) or not value.strip():
            self.add_problem("pictures with a split that is no text", f"{image.picture} ({where}: {str(value)[:40]})")
            image.usable = False
            return
        split = SPLIT_NAMES.get(value.strip().lower(), value.strip())
        if image.split not in (None, split):
            self.add_problem("pictures in two splits", f"{image.picture} ({where}: {split}, before {image.split})")
            image.usable = False
        else:
            image.split = split

    def add_boxes(self, image: AnnotatedImage, boxes: Iterable[Any]) -> None:
        """Add boxes given as x, y, width, height, each once; record a problem for one without area or numbers."""
        image.boxes = image.boxes or []
        for box in boxes:
            try:
                x, y, width, height = (float(value) for value in box)
                sound = math.isfinite(x + y + width + height) and min(width, height) > 0
            except (OverflowError, TypeError, ValueError):
                sound = False
            if not sound:
                self.add_problem("boxes that are no x, y, width, height", f"{image.picture}: {str(box)[:60]}")
            elif (corners := (x, y, x + width, y + height)) not in image.boxes:
                image.boxes.append(corners)


def split_of_name(name: str) -> str | None:
    """The split named in a file's or folder's name: val for "captions_val2014.json"; None if there is none."""
    words = "".join(letter if letter.isalpha() else " " for letter in name.lower()).split()
    return next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), None)


def described_problems(annotations: Annotations) -> str:
    """All problems in one line, with the first entries of each."""
    return "; ".join(f"{problem}: {listed(about)}" for problem, about in annotations.problems.items())


def listed(about: list[str], count: int = 8) -> str:
    """The number of items and the first `count` of them: "12 (a.jpg, b.jpg, ...)"."""
    first = ", ".join(shortened(item) for item in about[:count])
    if len(about) > count:
        first += ", ..."
    return f"{len(about)} ({first})"
