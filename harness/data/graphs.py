"""Scene graphs: of images from JSON, of the embedded scenes and their captions, and of captions from a file.

Own format of images: `{"format": "captionbench graphs 1", "graphs": [{"image_id": 42, "objects": ["dog", "ball"],
"attributes": [[0, "brown"]], "relations": [[0, 1, "next to"]]}]}`. Object i is region i, in the order of the boxes;
`objects` may be their number alone. Visual Genome's `scene_graphs.json` is a list of images whose objects have an
`object_id`, `names` and `attributes`, and whose relationships have a `subject_id`, an `object_id` and a `predicate`;
the objects are taken in the file's order. Words are made lower case.

Captions of the embedded scenes are parsed by rules, which know the phrases of these captions and no others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.data.dataset import Dataset, Sample
from harness.data.formats.ids import image_ids, is_image_id
from harness.data.scenes.dataset import annotations_of, compose_scenes, config_of
from harness.data.scenes.drawing import OBJECT_COLOURS, SHAPES, TEXTURES
from harness.data.scenes.language import PLURALS, colour_words, nouns, size_words
from harness.data.scenes.layout import Chance, Scene
from harness.data.vocabulary import Vocabulary, tokenize
from harness.utils.errors import BenchError
from harness.utils.files import require_file, shortened
from harness.utils.hashing import digest
from harness.utils.json_io import parse_json, read_file, read_json

FORMAT = "captionbench graphs 1"
UNNAMED = "object"
_PICKLES = frozenset({".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth"})
_MOST = 10_000  # objects of one image; more is refused as damaged or malicious
_LONGEST = 200


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


@dataclass(frozen=True, slots=True)
class GraphSource:
    """Scene graphs by image id, and reasons for unusable ones in `bad`; `fingerprint` (hex) changes with any graph."""

    name: str
    fingerprint: str
    graphs: Mapping[int, SceneGraph]
    bad: Mapping[int, str] = field(default_factory=dict)


class BadGraph(Exception):  # noqa: N818 - it tells of the image, not of the failure
    """An image whose graph cannot be used; the message is a short reason."""


def check_places(graph: SceneGraph) -> SceneGraph:
    """Return the graph; BadGraph if a relation or an attribute refers to an object that does not exist."""
    count = len(graph.objects)
    for subject, obj, word in graph.relations:
        if not (0 <= subject < count and 0 <= obj < count):
            raise BadGraph(f"has a relation {word!r} of objects {subject} and {obj}, but {count} objects")
    for index, word in graph.attributes:
        if not 0 <= index < count:
            raise BadGraph(f"has an attribute {word!r} of object {index}, but {count} objects")
    return graph


def read_graphs(path: Path) -> GraphSource:
    """The graphs of a file, including inconsistent ones as bad; BenchError if it is not a file of graphs."""
    check_file(path)
    raw = read_file(path)
    entries, read = _entries(path, parse_json(raw, path))
    ids = image_ids(path, [entry if isinstance(entry, dict) else {} for entry in entries], "image_id")
    graphs: dict[int, SceneGraph] = {}
    bad: dict[int, str] = {}
    for image_id, entry in zip(ids, entries, strict=True):
        try:
            graphs[image_id] = check_places(read(entry))
        except BadGraph as problem:
            bad[image_id] = str(problem)
    return GraphSource(path.name, hashlib.sha256(raw).hexdigest(), graphs, bad)


def check_file(path: Path) -> None:
    """BenchError if the file does not exist, or may be a pickle; its content is not read."""
    if path.suffix in _PICKLES:
        raise BenchError(
            f"--graphs {path}: {path.suffix} files of graphs are pickles, which can run code and are never loaded",
            "write them as JSON on a machine of your own: docs/graph_models.md has a script of ten lines",
        )
    require_file(path, "--graphs", "give scenes, scenes:noise=0.3, or a .json or .json.gz of graphs")


def _entries(path: Path, content: Any) -> tuple[list[Any], Callable[[Mapping[str, Any]], SceneGraph]]:
    """The entries of images, and the function that reads one."""
    if isinstance(content, dict) and content.get("format") == FORMAT and isinstance(content.get("graphs"), list):
        return content["graphs"], _own
    entries = content if isinstance(content, list) else []
    names = {"objects", "relationships"}
    if entries and all(isinstance(entry, dict) and names <= entry.keys() for entry in entries):
        return entries, _visual_genome
    raise BenchError(
        f"{path} holds no scene graphs",
        f'give {{"format": "{FORMAT}", "graphs": [...]}}, as docs/graph_models.md has it, or Visual Genome\'s '
        "scene_graphs.json",
    )


def _own(entry: Mapping[str, Any]) -> SceneGraph:
    objects = entry.get("objects")
    if isinstance(objects, int) and not isinstance(objects, bool) and 0 <= objects <= _MOST:
        names = (UNNAMED,) * objects
    else:
        names = tuple(map(word_of, listed(entry, "objects", required=True)))
    attributes = tuple(row_of(row, 1) for row in listed(entry, "attributes"))
    return SceneGraph(names, attributes, tuple(row_of(row, 2) for row in listed(entry, "relations")))


def _visual_genome(entry: Mapping[str, Any]) -> SceneGraph:
    objects = listed(entry, "objects")
    index_of: dict[Any, int] = {}
    names = []
    attributes = []
    for index, item in enumerate(objects):
        if not isinstance(item, dict) or not is_image_id(item.get("object_id")):
            raise BadGraph('has an object without a whole number as "object_id"')
        index_of[item["object_id"]] = index
        names.append(word_of(next(iter(listed(item, "names")), UNNAMED)))
        attributes += [(index, word_of(word)) for word in listed(item, "attributes")]
    relations = []
    for item in listed(entry, "relationships"):
        if not isinstance(item, dict):
            raise BadGraph(f"has a relationship that is none: {shortened(repr(item), 60)}")
        ids = (item.get(name) for name in ("subject_id", "object_id"))
        indices = [index_of.get(end, -1) if is_image_id(end) else -1 for end in ids]
        relations.append((indices[0], indices[1], word_of(item.get("predicate"))))
    return SceneGraph(tuple(names), tuple(attributes), tuple(relations))


def listed(entry: Mapping[str, Any], name: str, *, required: bool = False) -> list[Any]:
    """The list with this key, empty if it is absent and not required; BadGraph if it is not a list."""
    entries = entry.get(name, None if required else [])
    if not isinstance(entries, list) or len(entries) > _MOST:
        raise BadGraph(f'has no list of at most {_MOST} as "{name}"')
    return entries


def row_of(row: Any, n_indices: int) -> Any:
    """A relation or an attribute: `n_indices` indices of objects, then a word; BadGraph for anything else."""
    if (
        not isinstance(row, list)
        or len(row) != n_indices + 1
        or any(type(index) is not int for index in row[:n_indices])
    ):
        kind = "an attribute" if n_indices == 1 else "a relation"
        raise BadGraph(f"has {shortened(repr(row), 60)} for {kind}")
    return (*row[:n_indices], word_of(row[n_indices]))


def word_of(value: Any) -> str:
    """One or several words in lower case, with single spaces; BadGraph for anything else."""
    word = " ".join(value.lower().split()) if isinstance(value, str) else ""
    if not word or len(word) > _LONGEST or not word.isprintable():
        raise BadGraph(f"has {shortened(repr(value), 60)} for a word")
    return word


SIZES: Final = ("large", "small")
PREDICATES: Final = ("left of", "right of", "above", "below", "inside", "on")
_OF_PAIR: Final = {"left": "left of", "right": "right of"}
_OF_LINE: Final = {"row": "left of", "column": "above"}
_RULES = 1  # raise it with any change to the graphs of a scene: their fingerprint changes with it
_OPENINGS: Final = [
    phrase.split() for phrase in ("a picture of", "the image shows", "we can see", "there is", "there are")
]
_PLAIN: Final = re.compile("[a-z ]*")  # a caption that a model generated, which is split at spaces
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
_BEGINS_OBJECT: Final = _DETERMINERS | _ADJECTIVES | SHAPE_OF.keys() | {BACKGROUND}
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
"""Phrases after an object that are its attribute."""
_BESIDE_HEAD: Final = {
    "inside": "inside",
    "on top": "on",
    "below": "below",
    "above": "above",
    "under them": "under",
    "over them": "over",
}
"""Phrases after an object that state its position relative to an object mentioned before."""
_WITH: Final = {"left": "left of", "right": "right of"}  # positions of an object after `with`, as relations
_PHRASES: Final = sorted(
    (tuple(phrase.split()) for phrase in {*_RELATIONS, *_PLACES, *_BESIDE_HEAD}), key=len, reverse=True
)


def scene_graph(scene: Scene) -> SceneGraph:
    """The exact graph: each object's shape, colour and size, and the relations between objects.

    Relations are those of a pair, of the third object of a trio to both others, and of neighbours in a line.
    Backgrounds have no boxes and are not in the graph, and neither is the position of a single object.
    """
    attributes: list[tuple[int, str]] = []
    for index, item in enumerate(scene.items):
        attributes += [(index, item.colour), (index, SIZES[0] if item.large else SIZES[1])]
    relations: list[tuple[int, int, str]] = []
    if scene.arrangement == "group":
        line = _OF_LINE[scene.relation]
        relations = [(index, index + 1, line) for index in range(len(scene.items) - 1)]
    elif scene.arrangement != "single":
        relations = [(0, 1, _OF_PAIR.get(scene.relation, scene.relation))]
        if scene.third is not None:
            third = _OF_PAIR.get(scene.third, scene.third)
            relations += [(2, 0, third), (2, 1, third)]
    return SceneGraph(tuple(item.shape for item in scene.items), tuple(attributes), tuple(relations))


def noisy(graph: SceneGraph, rate: float, chance: Chance) -> SceneGraph:
    """The graph with faults, each with probability `rate`.

    Each word of an object, attribute or relation becomes another word of its kind, each relation is removed, and for
    each relation of the exact graph, one between random objects with a random predicate is added. The draws do not
    depend on the rate, so that the faults at a lower rate are among those at a higher rate.
    """
    objects = tuple(_changed(chance, rate, word, tuple(SHAPES)) for word in graph.objects)
    attributes = tuple(
        (index, _changed(chance, rate, word, SIZES if word in SIZES else tuple(OBJECT_COLOURS)))
        for index, word in graph.attributes
    )
    remaining: list[tuple[int, int, str]] = []
    added: list[tuple[int, int, str]] = []
    for subject, obj, word in graph.relations:
        is_removed = chance.happens(rate)
        predicate_word = _changed(chance, rate, word, PREDICATES)
        if not is_removed:
            remaining.append((subject, obj, predicate_word))
        is_added = chance.happens(rate)
        first = chance.between(0, len(objects) - 1)
        second = (first + chance.between(1, len(objects) - 1)) % len(objects)
        predicate = chance.pick(PREDICATES)
        if is_added:
            added.append((first, second, predicate))
    return SceneGraph(objects, attributes, (*remaining, *added))


def scenes_graphs(dataset: Dataset, noise: float = 0.0, seed: int = 0) -> GraphSource:
    """The graphs of all images of a data set of drawn scenes; BenchError if another version drew it."""
    file = annotations_of(dataset)
    try:
        drawn_by = config_of(None if file is None else read_json(file))
    except ValueError as error:
        raise BenchError(
            f"--graphs scenes: the images of {dataset.name} cannot be composed again: {error}",
            "run with --data scenes, or give a file of graphs: --graphs FILE.json",
        ) from error
    scenes = compose_scenes(drawn_by)
    image_ids = {sample.image_id for sample in dataset.samples}
    graphs = {image_id: scene_graph(scene) for image_id, scene in enumerate(scenes) if image_id in image_ids}
    name = "scenes"
    if noise:
        name = f"scenes:noise={noise:g}" + (f",seed={seed}" if seed else "")
        graphs = {
            image_id: noisy(graph, noise, Chance(f"graph {seed}/{image_id}")) for image_id, graph in graphs.items()
        }
    return GraphSource(name, digest([_RULES, dataset.fingerprint, noise, seed if noise else 0]), graphs)


def _changed(chance: Chance, rate: float, word: str, words: Sequence[str]) -> str:
    """The word, or with probability `rate` another one of the same kind."""
    is_changed = chance.happens(rate)
    replacement = chance.pick([candidate for candidate in words if candidate != word])
    return replacement if is_changed else word


def parse_scene_caption(caption: str) -> SceneGraph:
    """The graph of a caption of the embedded scenes, and its background as an object; BenchError for others."""
    graph, unknown = read_scene_caption(caption)
    if unknown or not graph.objects:
        raise BenchError(
            f"{shortened(repr(caption))} cannot be parsed: the parser knows captions of the embedded scenes alone",
            "add --set features.sentence_graphs=FILE, with a graph of every caption",
        )
    return graph


def read_scene_caption(caption: str) -> tuple[SceneGraph, list[str]]:
    """The graph of the parts of any caption that the rules know, and the words that no rule knows."""
    words = caption.split() if _PLAIN.fullmatch(caption) else tokenize(caption)
    for opening in _OPENINGS:
        if words[: len(opening)] == opening:
            words = words[len(opening) :]
            break
    reading = _Reading(words)
    unknown: list[str] = []
    while remaining := reading.words:
        try:
            reading.take()
        except (ValueError, LookupError, StopIteration):
            unknown.append(remaining[0])
            reading.words = remaining[1:]
    return SceneGraph(tuple(reading.objects), tuple(reading.attributes), tuple(reading.relations)), unknown


class _Reading:
    """The parsed part of a caption, and its remaining words."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.objects: list[str] = []
        self.attributes: list[tuple[int, str]] = []
        self.relations: list[tuple[int, int, str]] = []
        self._heads: list[int] = []  # objects that others' positions refer to: all except those after `with`
        self._conjunction = ""

    def take(self) -> None:
        """Read an object, with a conjunction before it, or the position of the last object.

        ValueError, LookupError or StopIteration if that fails; then only `words` may have changed.
        """
        if self.words[0] in ("and", "with"):
            self._conjunction = self.words[0]
            self.words = self.words[1:]
            self._read_object()
        elif self.words[0] in _BEGINS_OBJECT:
            self._read_object()
        else:
            self._read_position()

    def _read_object(self) -> None:
        index = len(self.objects)
        words = self.words
        modifiers: list[str] = []
        if words[0] in _DETERMINERS:
            if words[0] in NUMBERS:
                modifiers.append(words[0])
            words = words[1:]
        while words[0] in _ADJECTIVES:
            modifiers.append(words[0])
            words = words[1:]
        if words[0] != BACKGROUND and words[0] not in SHAPE_OF:
            raise ValueError(words[0])
        self.objects.append(words[0])
        self.words = words[1:]
        self.attributes += [(index, word) for word in modifiers]
        if self._conjunction != "with":
            self._heads.append(index)

    def _read_position(self) -> None:
        last = len(self.objects) - 1
        parts = next((phrase for phrase in _PHRASES if tuple(self.words[: len(phrase)]) == phrase), None)
        if parts is None or last < 0:
            raise ValueError(self.words[0])
        phrase = " ".join(parts)
        self.words = self.words[len(parts) :]
        conjunction = self._conjunction
        self._conjunction = ""
        if phrase in _RELATIONS and self.words and self.words[0] in _BEGINS_OBJECT:
            self._read_object()
            self.relations.append((last, last + 1, _RELATIONS[phrase]))
            return
        relation = _BESIDE_HEAD.get(phrase)
        if not relation and conjunction == "with":
            relation = _WITH.get(_PLACES[phrase])
        if not relation:
            self.attributes.append((last, _PLACES[phrase]))
            return
        head = next(index for index in reversed(self._heads) if index != last)
        self.relations.append((last, head, relation))


SENTENCES_FORMAT = "captionbench sentence graphs 1"
OPTION = "--set features.sentence_graphs"
_ID = re.compile(r"-?[0-9]{1,19}")
_SEE = "docs/graph_models.md has the format of the file"


@dataclass(frozen=True)
class SentenceGraphs:
    """By image id, one graph for each caption or one for all; `described` is the description for the signature."""

    by_image: Mapping[int, tuple[SceneGraph, ...]]
    described: str

    def of(self, sample: Sample) -> tuple[SceneGraph, ...]:
        """One graph for each caption of an image; BenchError if graphs are missing."""
        graphs = self.by_image.get(sample.image_id)
        count = len(sample.captions)
        if graphs is None:
            raise BenchError(
                f"{OPTION} has no graph for image {sample.image_id}",
                "give a graph of every training and validation image, without objects where nothing was found",
            )
        if len(graphs) not in (1, count):
            raise BenchError(
                f"{OPTION} has {len(graphs)} graphs for image {sample.image_id}, which has {count} captions",
                "give one for all captions, or one for each, in their order",
            )
        return graphs if len(graphs) == count else graphs * count


def parse_scene_sentences(samples: Sequence[Sample]) -> SentenceGraphs:
    """The graphs of the embedded scenes' captions; BenchError for captions of other data."""
    parsed = {sample.image_id: tuple(map(parse_scene_caption, sample.captions)) for sample in samples}
    return SentenceGraphs(parsed, "parsed")


def read_sentence_graphs(path: Path) -> SentenceGraphs:
    """The graphs of a JSON file, which may be gzipped.

    `images` has, by image id, a list with a graph of all captions or of each caption. A graph has `objects`, lists of a
    name and its attributes, and `relations`, lists of the places of subject and object and of a word. BenchError, which
    names the image, where it cannot be read, or is no such file.
    """
    content = read_json(path)
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, dict) or content.get("format") != SENTENCES_FORMAT:
        raise BenchError(
            f'{path} is no file of sentence graphs: it needs "format": "{SENTENCES_FORMAT}" and "images"', _SEE
        )
    by_image: dict[int, tuple[SceneGraph, ...]] = {}
    for image_id, graphs in images.items():
        where = f"{path}, image {shortened(image_id)}"
        if not _ID.fullmatch(image_id):
            raise BenchError(f"{where}: an image id is a whole number", _SEE)
        if not isinstance(graphs, list) or not graphs:
            raise BenchError(f"{where}: a list of graphs is expected, one or as many as captions", _SEE)
        if int(image_id) in by_image:
            raise BenchError(f"{where}: the image is there twice, its id in another spelling", _SEE)
        try:
            by_image[int(image_id)] = tuple(map(_graph, graphs))
        except BadGraph as bad:
            raise BenchError(f"{where} {bad}", _SEE) from bad
    return SentenceGraphs(by_image, f"file#{digest(content, 8)}")


def _graph(content: Any) -> SceneGraph:
    """A graph whose objects are lists of a name and attributes; BadGraph for anything else."""
    if not isinstance(content, dict):
        raise BadGraph(f"has {shortened(repr(content), 60)} for a graph")
    objects = listed(content, "objects", required=True)
    if not all(isinstance(words, list) and words for words in objects):
        raise BadGraph("has an object that is no list of a name and attributes")
    word_lists = [tuple(map(word_of, words)) for words in objects]
    graph = SceneGraph(
        tuple(words[0] for words in word_lists),
        tuple((index, word) for index, words in enumerate(word_lists) for word in words[1:]),
        tuple(row_of(row, 2) for row in listed(content, "relations")),
    )
    return check_places(graph)


@dataclass(frozen=True, slots=True)
class NumberedGraph:
    """A scene graph in numbers of the vocabulary; relations have indices into `objects`."""

    objects: tuple[int, ...]
    attributes: tuple[tuple[int, ...], ...]
    relations: tuple[tuple[int, int, int], ...]


def number_graph(graph: SceneGraph, vocabulary: Vocabulary) -> NumberedGraph:
    """A graph in numbers, without objects, attributes and relations whose words are not in the vocabulary.

    A phrase that is no entry itself ("left of") is replaced by the first of its words that is one.
    """
    names = [_number(name, vocabulary) for name in graph.objects]
    kept_indices = [index for index, number in enumerate(names) if number is not None]
    new_indices = {index: new_index for new_index, index in enumerate(kept_indices)}
    attributes: list[list[int]] = [[] for _ in kept_indices]
    for index, word in graph.attributes:
        number = _number(word, vocabulary)
        if index in new_indices and number is not None:
            attributes[new_indices[index]].append(number)
    relations: list[tuple[int, int, int]] = []
    for subject, target, word in graph.relations:
        number = _number(word, vocabulary)
        if number is not None and subject in new_indices and target in new_indices:
            relations.append((new_indices[subject], new_indices[target], number))
    return NumberedGraph(
        tuple(number for number in names if number is not None), tuple(map(tuple, attributes)), tuple(relations)
    )


def _number(words: str, vocabulary: Vocabulary) -> int | None:
    numbers = (vocabulary.number_of(word) for word in (words, *words.split()))
    return next((number for number in numbers if number is not None), None)
