"""A scene graph, of an image or of its captions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SceneGraph:
    """Objects with attributes and relations; words are lower case and may be several, as in "next to".

    Of an image, object i is its region i, in the order of its boxes.

    objects: a name each. attributes: (object, word). relations: (subject, object, predicate), the first two places in
    `objects`.
    """

    objects: tuple[str, ...]
    attributes: tuple[tuple[int, str], ...] = ()
    relations: tuple[tuple[int, int, str], ...] = ()
