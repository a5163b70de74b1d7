"""A parser of the captions of the embedded scenes, by rules; it knows their phrases and no others."""

from __future__ import annotations

from typing import Final

from harness.data.graphs.contract import SceneGraph
from harness.data.preparation import tokenize
from harness.data.scenes.drawing import BACKGROUND_COLOURS, OBJECT_COLOURS, TEXTURES
from harness.utils.errors import BenchError
from harness.utils.files import shortened

_OPENINGS: Final = ("there is", "there are", "a picture of", "the image shows", "we can see")
_DETERMINERS: Final = frozenset({"a", "an", "two", "three"})
_NUMBERS: Final = frozenset({"two", "three"})
_ADJECTIVES: Final = frozenset(
    {*OBJECT_COLOURS, *BACKGROUND_COLOURS, *TEXTURES, "violet", "gray", "large", "big", "small", "little", "tiny"}
)
_RELATIONS: Final = {
    "to the left of": "left of",
    "to the right of": "right of",
    "in the middle of": "in",
    "on top of": "on",
    **{phrase: phrase for phrase in ("left of", "right of", "next to", "standing on", "sitting on", "beside", "above")},
    **{phrase: phrase for phrase in ("below", "over", "under", "beneath", "inside", "in", "within", "around")},
    **{phrase: phrase for phrase in ("on", "against")},
}
"""Between two things, by what stands in the caption."""
_PLACES: Final = {
    **{f"on the {side}": side for side in ("left", "right")},
    **{f"on the {side} side": side for side in ("left", "right")},
    **{f"at the {side} edge": side for side in ("left", "right", "upper", "lower")},
    **{f"{near} the {end}": end for near in ("at", "near") for end in ("top", "bottom")},
    **{f"in the {middle}": middle for middle in ("middle", "centre")},
    **{line: line for line in ("side by side", "next to each other", "above each other", "one below the other")},
    "in a row": "row",
    "in a column": "column",
}
"""Behind a thing, whose attribute they are."""
_BESIDE_HEAD: Final = {
    "inside": "inside",
    "on top": "on",
    "below": "below",
    "above": "above",
    "under them": "under",
    "over them": "over",
}
"""Behind a thing, of which they tell where it is, seen from a thing named before."""
_WITH: Final = {"left": "left of", "right": "right of"}
"""Places that tell the same, of a thing behind `with`."""
_PHRASES: Final = sorted(
    (tuple(phrase.split()) for phrase in {*_RELATIONS, *_PLACES, *_BESIDE_HEAD}), key=len, reverse=True
)


def parse_scene_caption(caption: str) -> SceneGraph:
    """The scene graph of a caption of the embedded scenes, in its own words; the background is an object too.

    Raises:
        BenchError: the caption is of other data.
    """
    words = tokenize(caption)
    for opening in sorted(_OPENINGS, key=len, reverse=True):
        if words[: len(opening.split())] == opening.split():
            words = words[len(opening.split()) :]
            break
    reading = _Reading(words)
    try:
        while reading.words:
            reading.take()
    except (ValueError, LookupError, StopIteration) as error:
        raise BenchError(
            f"{shortened(repr(caption))} cannot be parsed: the parser knows captions of the embedded scenes alone",
            "add --sentence-graphs FILE, with a graph of every caption",
        ) from error
    return SceneGraph(tuple(reading.objects), tuple(reading.attributes), tuple(reading.relations))


class _Reading:
    """What was read of a caption, and the words that are left."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.objects: list[str] = []
        self.attributes: list[tuple[int, str]] = []
        self.relations: list[tuple[int, int, str]] = []
        self._heads: list[int] = []  # things that others may be placed by: all but those behind `with`
        self._joint = ""

    def take(self) -> None:
        """Read a thing, what joins it to the next one, or the place of the last one; ValueError for anything else."""
        if self.words[0] in ("and", "with"):
            self._joint = self.words.pop(0)
            self._thing()
        elif self.words[0] in _DETERMINERS:
            self._thing()
        else:
            self._phrase()

    def _thing(self) -> None:
        determiner, thing = self.words.pop(0), len(self.objects)
        if determiner not in _DETERMINERS:
            raise ValueError(determiner)
        said = [determiner] if determiner in _NUMBERS else []
        while self.words[0] in _ADJECTIVES:
            said.append(self.words.pop(0))
        self.objects.append(self.words.pop(0))
        self.attributes += [(thing, word) for word in said]
        if self._joint != "with":
            self._heads.append(thing)

    def _phrase(self) -> None:
        last = len(self.objects) - 1
        parts = next((phrase for phrase in _PHRASES if tuple(self.words[: len(phrase)]) == phrase), None)
        if parts is None or last < 0:
            raise ValueError(self.words[0])
        phrase, self.words = " ".join(parts), self.words[len(parts) :]
        joint, self._joint = self._joint, ""
        if phrase in _RELATIONS and self.words and self.words[0] in _DETERMINERS:
            self.relations.append((last, last + 1, _RELATIONS[phrase]))
            self._thing()
            return
        told = _BESIDE_HEAD.get(phrase) or (_WITH.get(_PLACES[phrase]) if joint == "with" else None)
        if told is None:
            self.attributes.append((last, _PLACES[phrase]))
            return
        head = next(thing for thing in reversed(self._heads) if thing != last)
        self.relations.append((last, head, told))
