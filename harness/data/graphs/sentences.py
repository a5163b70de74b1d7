"""The scene graphs of the captions of images: read from a file, or parsed where captions are of the embedded scenes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data.dataset import Sample
from harness.data.graphs.contract import SceneGraph
from harness.data.graphs.scene_captions import parse_scene_caption
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.hashing import digest
from harness.utils.json_io import read_json

FORMAT = "captionbench sentence graphs 1"
OPTION = "--sentence-graphs"
_ID = re.compile(r"-?[0-9]{1,19}")
_SEE = "docs/graph_models.md has the format of the file"


@dataclass(frozen=True)
class SentenceGraphs:
    """By image id, one graph for each caption, or one for all captions; `described` says which, for the signature."""

    by_image: Mapping[int, tuple[SceneGraph, ...]]
    described: str

    def of(self, sample: Sample) -> tuple[SceneGraph, ...]:
        """One graph for each of an image's captions.

        Raises:
            BenchError: there is none for the image, or not one for each.
        """
        found, count = self.by_image.get(sample.image_id), len(sample.captions)
        if found is None:
            raise BenchError(
                f"{OPTION} has no graph for image {sample.image_id}",
                "give a graph of every training and validation image, without objects where nothing was found",
            )
        if len(found) not in (1, count):
            raise BenchError(
                f"{OPTION} has {len(found)} graphs for image {sample.image_id}, which has {count} captions",
                "give one for all captions, or one for each, in their order",
            )
        return found if len(found) == count else found * count


def parse_scene_sentences(samples: Sequence[Sample]) -> SentenceGraphs:
    """The graphs of the embedded scenes' captions; BenchError where one is of other data."""
    parsed = {sample.image_id: tuple(map(parse_scene_caption, sample.captions)) for sample in samples}
    return SentenceGraphs(parsed, "parsed")


def read_sentence_graphs(path: Path) -> SentenceGraphs:
    """The graphs of a JSON file, which may be gzipped.

    `images` has, by image id, a list with a graph of all captions or of each caption. A graph has `objects`, lists of a
    name and its attributes, and `relations`, lists of the places of subject and object and of a word.

    Raises:
        BenchError: it cannot be read, or is no such file; the message names the image.
    """
    content = read_json(path)
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, dict) or content.get("format") != FORMAT:
        raise BenchError(f'{path} is no file of sentence graphs: it needs "format": "{FORMAT}" and "images"', _SEE)
    found: dict[int, tuple[SceneGraph, ...]] = {}
    for image_id, graphs in images.items():
        where = f"{path}, image {shortened(image_id)}"
        if not _ID.fullmatch(image_id):
            raise BenchError(f"{where}: an image id is a whole number", _SEE)
        if not isinstance(graphs, list) or not graphs:
            raise BenchError(f"{where}: a list of graphs is expected, one or as many as captions", _SEE)
        if int(image_id) in found:
            raise BenchError(f"{where}: the image is there twice, its id in another spelling", _SEE)
        found[int(image_id)] = tuple(_graph(graph, where) for graph in graphs)
    return SentenceGraphs(found, f"file#{digest(content, 8)}")


def _graph(told: Any, where: str) -> SceneGraph:
    objects = told.get("objects") if isinstance(told, dict) else None
    if not isinstance(objects, list):
        raise BenchError(f'{where}: a graph needs "objects", a list', _SEE)
    relations = told.get("relations", [])
    for words in objects:
        if not isinstance(words, list) or not words or not all(map(_is_word, words)):
            raise BenchError(f"{where}: object {shortened(repr(words))} is no list of a name and attributes", _SEE)
    if not isinstance(relations, list):
        raise BenchError(f'{where}: "relations" is no list', _SEE)
    for relation in relations:
        if not _is_relation(relation, len(objects)):
            said = f"relation {shortened(repr(relation))} is not [subject, object, word], of {len(objects)} objects"
            raise BenchError(f"{where}: {said} counted from 0", _SEE)
    return SceneGraph(
        tuple(words[0].lower() for words in objects),
        tuple((place, word.lower()) for place, words in enumerate(objects) for word in words[1:]),
        tuple((subject, target, word.lower()) for subject, target, word in relations),
    )


def _is_relation(told: Any, count: int) -> bool:
    if not isinstance(told, list) or len(told) != 3 or not _is_word(told[2]):
        return False
    return all(type(place) is int and 0 <= place < count for place in told[:2])


def _is_word(told: Any) -> bool:
    return isinstance(told, str) and bool(told.strip())
