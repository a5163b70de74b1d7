"""Scene graphs, and those of images from JSON, plain or gzipped: captionbench's own format, or Visual Genome's.

Own: `{"format": "captionbench graphs 1", "graphs": [{"image_id": 42, "objects": ["dog", "ball"], "attributes":
[[0, "brown"]], "relations": [[0, 1, "next to"]]}]}`. Object i is region i, in the order of the boxes; `objects` may be
their number alone. Visual Genome's `scene_graphs.json` is a list of images whose objects have an `object_id`, `names`
and `attributes`, and whose relationships have a `subject_id`, an `object_id` and a `predicate`; the objects are taken
in the file's order. Words are made lower case.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.data.formats.references import image_ids, is_image_id
from harness.utils.errors import BenchError
from harness.utils.files import require_file, shortened
from harness.utils.json_io import parse_json, read_file

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
    """Scene graphs by image id, and why those in `bad` are none; `fingerprint` (hex) changes with any graph."""

    name: str
    fingerprint: str
    graphs: Mapping[int, SceneGraph]
    bad: Mapping[int, str] = field(default_factory=dict)


class BadGraph(Exception):  # noqa: N818 - it tells of the image, not of the failure
    """An image whose graph cannot be used; the message is the reason in a few words."""


def check_places(graph: SceneGraph) -> SceneGraph:
    """The graph itself; BadGraph where a relation or an attribute is of an object that is not there."""
    count = len(graph.objects)
    for subject, obj, word in graph.relations:
        if not (0 <= subject < count and 0 <= obj < count):
            raise BadGraph(f"has a relation {word!r} of objects {subject} and {obj}, but {count} objects")
    for place, word in graph.attributes:
        if not 0 <= place < count:
            raise BadGraph(f"has an attribute {word!r} of object {place}, but {count} objects")
    return graph


def read_graphs(path: Path) -> GraphSource:
    """The graphs of a file, and those that contradict themselves; BenchError where it is no file of graphs."""
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
    """BenchError where there is no such file, or it may be a pickle; its content is not looked at."""
    if path.suffix in _PICKLES:
        raise BenchError(
            f"--graphs {path}: {path.suffix} files of graphs are pickles, which can run code and are never loaded",
            "write them as JSON on a machine of your own: docs/graph_models.md has a script of ten lines",
        )
    require_file(path, "--graphs", "give scenes, scenes:noise=0.3, or a .json or .json.gz of graphs")


def _entries(path: Path, content: Any) -> tuple[list[Any], Callable[[Mapping[str, Any]], SceneGraph]]:
    """The images' entries, and how one is read."""
    if isinstance(content, dict) and content.get("format") == FORMAT and isinstance(content.get("graphs"), list):
        return content["graphs"], _own
    entries, names = content if isinstance(content, list) else [], {"objects", "relationships"}
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
    places: dict[Any, int] = {}
    names, attributes = [], []
    for place, each in enumerate(objects):
        if not isinstance(each, dict) or not is_image_id(each.get("object_id")):
            raise BadGraph('has an object without a whole number as "object_id"')
        places[each["object_id"]] = place
        names.append(word_of(next(iter(listed(each, "names")), UNNAMED)))
        attributes += [(place, word_of(word)) for word in listed(each, "attributes")]
    relations = []
    for each in listed(entry, "relationships"):
        if not isinstance(each, dict):
            raise BadGraph(f"has a relationship that is none: {shortened(repr(each), 60)}")
        told = (each.get(name) for name in ("subject_id", "object_id"))
        ends = [places.get(end, -1) if is_image_id(end) else -1 for end in told]
        relations.append((ends[0], ends[1], word_of(each.get("predicate"))))
    return SceneGraph(tuple(names), tuple(attributes), tuple(relations))


def listed(entry: Mapping[str, Any], name: str, *, required: bool = False) -> list[Any]:
    """The list of this name, empty where it may be absent; BadGraph where it is none."""
    found = entry.get(name, None if required else [])
    if not isinstance(found, list) or len(found) > _MOST:
        raise BadGraph(f'has no list of at most {_MOST} as "{name}"')
    return found


def row_of(row: Any, places: int) -> Any:
    """A relation or an attribute: its places, of this number, then its word; BadGraph where it is none."""
    if not isinstance(row, list) or len(row) != places + 1 or any(type(place) is not int for place in row[:places]):
        kind = "attribute" if places == 1 else "relation"
        raise BadGraph(f"has {shortened(repr(row), 60)} for {'an' if places == 1 else 'a'} {kind}")
    return (*row[:places], word_of(row[places]))


def word_of(said: Any) -> str:
    """A word or several, lower case, with single spaces; BadGraph where it is none."""
    word = " ".join(said.lower().split()) if isinstance(said, str) else ""
    if not word or len(word) > _LONGEST or not word.isprintable():
        raise BadGraph(f"has {shortened(repr(said), 60)} for a word")
    return word
