"""What the readers of other formats give: pictures with captions, and what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from harness.data.dataset import Box
from harness.utils.files import shortened

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    "test": "test",
    "restval": "restval",
}
"""Names of splits in other formats, and Karpathy's of them."""


@dataclass(slots=True)
class Picture:
    """One image as its source has it; `file` is relative to the picture folder, with forward slashes.

    `image_id` and `split` are None where the source has none; `boxes` are corners in pixels, None where unknown.
    `usable` is false where its split cannot be told.
    """

    file: str
    captions: list[str] = field(default_factory=list)
    image_id: int | None = None
    split: str | None = None
    boxes: list[Box] | None = None
    size: tuple[int, int] | None = None
    usable: bool = True


@dataclass(slots=True)
class Source:
    """The pictures of a source in its order, and by problem the files or entries that it concerns."""

    pictures: list[Picture] = field(default_factory=list)
    problems: dict[str, list[str]] = field(default_factory=dict)

    def complain(self, problem: str, about: str) -> None:
        """Add to a problem's list."""
        self.problems.setdefault(problem, []).append(about)

    def set_split(self, picture: Picture, said: object, where: str) -> None:
        """Take the split that an entry says; another than those of Karpathy, or than before, is complained about.

        Args:
            where: the entry, as messages name it: "line 3".
        """
        split = SPLIT_NAMES.get(said.strip().lower()) if isinstance(said, str) else None
        if split is None:
            problem = f"pictures with a split that is none of {', '.join(SPLIT_NAMES)}"
            self.complain(problem, f"{picture.file} ({where}: {shortened(repr(said), 40)})")
            picture.usable = False
        elif picture.split not in (None, split):
            self.complain("pictures in two splits", f"{picture.file} ({where}: {split}, before {picture.split})")
            picture.usable = False
        else:
            picture.split = split

    def add_boxes(self, picture: Picture, given: Iterable[Any]) -> None:
        """Add boxes that are given as x, y, width, height; those without area or numbers are complained about."""
        picture.boxes = picture.boxes or []
        for box in given:
            try:
                x, y, width, height = (float(number) for number in box)
                sound = math.isfinite(x + y + width + height) and min(width, height) > 0
            except (OverflowError, TypeError, ValueError):
                sound = False
            if sound:
                picture.boxes.append((x, y, x + width, y + height))
            else:
                self.complain("boxes that are no x, y, width, height", f"{picture.file}: {str(box)[:60]}")
