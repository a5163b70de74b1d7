"""Scene graphs of the embedded data set: of its images, exact ones and noisy ones to study, and of its captions.

Those of captions are parsed by rules, which know the phrases of these captions and no others.
"""

import re
from collections.abc import Sequence
from typing import Final

from harness.data.dataset import Dataset
from harness.data.graphs.graph import GraphSource, SceneGraph
from harness.data.scenes.dataset import annotations_of, compose_scenes, config_of
from harness.data.scenes.drawing import OBJECT_COLOURS, SHAPES, TEXTURES
from harness.data.scenes.language import PLURALS, colour_words, nouns, size_words
from harness.data.scenes.layout import Chance, Scene
from harness.data.vocabulary import tokenize
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.hashing import digest
from harness.utils.json_io import read_json

SIZES: Final = ("large", "small")
PREDICATES: Final = ("left of", "right of", "above", "below", "inside", "on")
_OF_PAIR: Final = {"left": "left of", "right": "right of"}
_OF_LINE: Final = {"row": "left of", "column": "above"}
_RULES = 1  # raise it with any change to the graphs of a scene: their fingerprint changes with it
_OPENINGS: Final = [each.split() for each in ("a picture of", "the image shows", "we can see", "there is", "there are")]
_PLAIN: Final = re.compile("[a-z ]*")  # a caption that a model generated: it is cut at its spaces alone
NUMBERS: Final = {"two": 2, "three": 3, "four": 4, "five": 5}
_DETERMINERS: Final = frozenset({"a", "an", "the", *NUMBERS})
BACKGROUND: Final = "background"
SHAPE_OF: Final = {
    word: shape for shape, named in nouns().items() for noun in named for word in (noun, PLURALS.get(noun, f"{noun}s"))
}
_ADJECTIVES: Final = frozenset({*colour_words(), *TEXTURES, *size_words()})
_RELATIONS: Final = {
    "to the left of": "left of",
    "to the right of": "right of",
    "in the middle of": "in",
    "on top of": "on",
    **{phrase: phrase for phrase in ("left of", "right of", "next to", "standing on", "sitting on", "beside", "above")},
    **{phrase: phrase for phrase in ("below", "over", "under", "beneath", "inside", "in", "within", "around")},
    "on": "on",
    "against": "against",
}
_BEGINS_THING: Final = _DETERMINERS | _ADJECTIVES | SHAPE_OF.keys() | {BACKGROUND}
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
_WITH: Final = {"left": "left of", "right": "right of"}  # places that tell the same, of a thing behind `with`
_PHRASES: Final = sorted(
    (tuple(phrase.split()) for phrase in {*_RELATIONS, *_PLACES, *_BESIDE_HEAD}), key=len, reverse=True
)


def scene_graph(scene: Scene) -> SceneGraph:
    """The exact graph: each object's shape, its colour and size, and how the objects lie to each other.

    A pair has its relation; the third object of a trio has its position to both others; neighbours in a line have
    theirs. Backgrounds are no objects and have no boxes: they are in no graph, and neither is a single object's place.
    """
    attributes: list[tuple[int, str]] = []
    for place, item in enumerate(scene.items):
        attributes += [(place, item.colour), (place, SIZES[0] if item.large else SIZES[1])]
    relations: list[tuple[int, int, str]] = []
    if scene.arrangement == "group":
        line = _OF_LINE[scene.relation]
        relations = [(place, place + 1, line) for place in range(len(scene.items) - 1)]
    elif scene.arrangement != "single":
        relations = [(0, 1, _OF_PAIR.get(scene.relation, scene.relation))]
        if scene.third is not None:
            third = _OF_PAIR.get(scene.third, scene.third)
            relations += [(2, 0, third), (2, 1, third)]
    return SceneGraph(tuple(item.shape for item in scene.items), tuple(attributes), tuple(relations))


def noisy(graph: SceneGraph, rate: float, chance: Chance) -> SceneGraph:
    """The graph with faults, each with probability `rate`.

    Every word, of an object, an attribute or a relation, becomes another of its kind; every relation is lost; and for
    every relation of the exact graph one is added, of two objects and a predicate by chance. The draws do not depend
    on the rate: the faults at a lower rate are among those at a higher one.
    """
    objects = tuple(_changed(chance, rate, word, tuple(SHAPES)) for word in graph.objects)
    attributes = tuple(
        (place, _changed(chance, rate, word, SIZES if word in SIZES else tuple(OBJECT_COLOURS)))
        for place, word in graph.attributes
    )
    kept: list[tuple[int, int, str]] = []
    added: list[tuple[int, int, str]] = []
    for subject, obj, word in graph.relations:
        lost, said = chance.happens(rate), _changed(chance, rate, word, PREDICATES)
        kept += [] if lost else [(subject, obj, said)]
        invented = chance.happens(rate)
        first = chance.between(0, len(objects) - 1)
        second = (first + chance.between(1, len(objects) - 1)) % len(objects)
        predicate = chance.pick(PREDICATES)
        added += [(first, second, predicate)] if invented else []
    return SceneGraph(objects, attributes, (*kept, *added))


def scenes_graphs(dataset: Dataset, noise: float = 0.0, seed: int = 0) -> GraphSource:
    """The graphs of all images of a data set of drawn scenes; BenchError if this version did not draw it."""
    file = annotations_of(dataset)
    try:
        drawn_by = config_of(None if file is None else read_json(file))
    except ValueError as error:
        raise BenchError(
            f"--graphs scenes: the images of {dataset.name} cannot be composed again: {error}",
            "run with --data scenes, or give a file of graphs: --graphs FILE.json",
        ) from error
    scenes = compose_scenes(drawn_by)
    wanted = {sample.image_id for sample in dataset.samples}
    graphs = {image_id: scene_graph(scene) for image_id, scene in enumerate(scenes) if image_id in wanted}
    name = "scenes"
    if noise:
        name = f"scenes:noise={noise:g}" + (f",seed={seed}" if seed else "")
        graphs = {
            image_id: noisy(graph, noise, Chance(f"graph {seed}/{image_id}")) for image_id, graph in graphs.items()
        }
    return GraphSource(name, digest([_RULES, dataset.fingerprint, noise, seed if noise else 0]), graphs)


def _changed(chance: Chance, rate: float, word: str, words: Sequence[str]) -> str:
    """The word, or with probability `rate` another one of the same kind."""
    wrong, other = chance.happens(rate), chance.pick([each for each in words if each != word])
    return other if wrong else word


def parse_scene_caption(caption: str) -> SceneGraph:
    """The graph of a caption of the embedded scenes, the background an object too; BenchError for other captions."""
    graph, unknown = read_scene_caption(caption)
    if unknown or not graph.objects:
        raise BenchError(
            f"{shortened(repr(caption))} cannot be parsed: the parser knows captions of the embedded scenes alone",
            "add --sentence-graphs FILE, with a graph of every caption",
        )
    return graph


def read_scene_caption(caption: str) -> tuple[SceneGraph, list[str]]:
    """What the rules know of any caption, as `parse_scene_caption` has it, and the words that none of them knows."""
    words = caption.split() if _PLAIN.fullmatch(caption) else tokenize(caption)
    words = words[next((len(opening) for opening in _OPENINGS if words[: len(opening)] == opening), 0) :]
    reading, unknown = _Reading(words), []
    while left := reading.words:
        try:
            reading.take()
        except (ValueError, LookupError, StopIteration):
            unknown.append(left[0])
            reading.words = left[1:]
    return SceneGraph(tuple(reading.objects), tuple(reading.attributes), tuple(reading.relations)), unknown


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
        """Read a thing, what joins it to the next one, or the place of the last one; ValueError for anything else.

        Where that cannot be read whole, nothing of it is kept but that `words` may be fewer.
        """
        if self.words[0] in ("and", "with"):
            self._joint, self.words = self.words[0], self.words[1:]
            self._thing()
        elif self.words[0] in _BEGINS_THING:
            self._thing()
        else:
            self._phrase()

    def _thing(self) -> None:
        thing, words, said = len(self.objects), self.words, []
        if words[0] in _DETERMINERS:
            said, words = [word for word in words[:1] if word in NUMBERS], words[1:]
        while words[0] in _ADJECTIVES:
            said.append(words[0])
            words = words[1:]
        if words[0] != BACKGROUND and words[0] not in SHAPE_OF:
            raise ValueError(words[0])
        self.objects.append(words[0])
        self.words = words[1:]
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
        if phrase in _RELATIONS and self.words and self.words[0] in _BEGINS_THING:
            self._thing()
            self.relations.append((last, last + 1, _RELATIONS[phrase]))
            return
        told = _BESIDE_HEAD.get(phrase) or (_WITH.get(_PLACES[phrase]) if joint == "with" else None)
        if told is None:
            self.attributes.append((last, _PLACES[phrase]))
            return
        self.relations.append((last, next(thing for thing in reversed(self._heads) if thing != last), told))
