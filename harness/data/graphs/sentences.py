"""The scene graphs of captions: read from a file or parsed, of the embedded scenes; and as tensors of word numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.data.dataset import Sample
from harness.data.graphs.graph import BadGraph, SceneGraph, check_places, listed, row_of, word_of
from harness.data.graphs.scenes import parse_scene_caption
from harness.data.vocabulary import Vocabulary
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.hashing import digest
from harness.utils.json_io import read_json

FORMAT = "captionbench sentence graphs 1"
OPTION = "--sentence-graphs"
_ID = re.compile(r"-?[0-9]{1,19}")
_SEE = "docs/graph_models.md has the format of the file"
ABSENT = -1  # where a graph has fewer objects, attributes or relations than others of a batch


@dataclass(frozen=True)
class SentenceGraphs:
    """By image id, one graph for each caption, or one for all captions; `described` says which, for the signature."""

    by_image: Mapping[int, tuple[SceneGraph, ...]]
    described: str

    def of(self, sample: Sample) -> tuple[SceneGraph, ...]:
        """One graph for each of an image's captions; BenchError where there is none, or not one for each."""
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
    name and its attributes, and `relations`, lists of the places of subject and object and of a word. BenchError, which
    names the image, where it cannot be read, or is no such file.
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
        try:
            found[int(image_id)] = tuple(map(_graph, graphs))
        except BadGraph as bad:
            raise BenchError(f"{where} {bad}", _SEE) from bad
    return SentenceGraphs(found, f"file#{digest(content, 8)}")


def _graph(told: Any) -> SceneGraph:
    """A graph whose objects are lists of a name and attributes; BadGraph where it is none."""
    if not isinstance(told, dict):
        raise BadGraph(f"has {shortened(repr(told), 60)} for a graph")
    objects = listed(told, "objects", required=True)
    if not all(isinstance(words, list) and words for words in objects):
        raise BadGraph("has an object that is no list of a name and attributes")
    said = [tuple(map(word_of, words)) for words in objects]
    graph = SceneGraph(
        tuple(words[0] for words in said),
        tuple((place, word) for place, words in enumerate(said) for word in words[1:]),
        tuple(row_of(row, 2) for row in listed(told, "relations")),
    )
    return check_places(graph)


@dataclass(frozen=True, slots=True)
class NumberedGraph:
    """A scene graph in numbers of the vocabulary; places of relations are those of `objects`."""

    objects: tuple[int, ...]
    attributes: tuple[tuple[int, ...], ...]
    relations: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class GraphTensors:
    """R graphs: objects (R, N), attributes (R, N, a) and relations (R, M, 3), all >= 1 long, -1 where padded."""

    objects: Tensor
    attributes: Tensor
    relations: Tensor

    @classmethod
    def of(cls, graphs: Sequence[NumberedGraph]) -> GraphTensors:
        """Graphs padded to the largest of them."""
        words = max((len(said) for graph in graphs for said in graph.attributes), default=0)
        return cls(
            padded([[(number,) for number in graph.objects] for graph in graphs], 1, least=1)[..., 0],
            padded([graph.attributes for graph in graphs], max(words, 1), least=1),
            padded([graph.relations for graph in graphs], 3, least=1),
        )

    def each(self, change: Callable[[Tensor], Tensor]) -> GraphTensors:
        """What `change` makes of every tensor."""
        return replace(self, **{part.name: change(getattr(self, part.name)) for part in fields(self)})


def padded(rows: Sequence[Sequence[Sequence[int]]], width: int, least: int = 0) -> Tensor:
    """Rows of each image or graph as one tensor (B, most, width), of `least` rows or more, -1 where padded."""
    whole = torch.full((len(rows), max(least, *map(len, rows), 0), width), ABSENT)
    for number, own in enumerate(rows):
        for place, row in enumerate(own):
            whole[number, place, : len(row)] = torch.tensor(row)
    return whole


def number_graph(graph: SceneGraph, vocabulary: Vocabulary) -> NumberedGraph:
    """A graph in numbers, without what the vocabulary lacks: objects with their attributes and relations, or these.

    Of several words that are no entry of their own ("left of"), the first known one is taken.
    """
    names = [_number(name, vocabulary) for name in graph.objects]
    known = [place for place, number in enumerate(names) if number is not None]
    moved = {place: new for new, place in enumerate(known)}
    said: list[list[int]] = [[] for _ in known]
    for place, word in graph.attributes:
        number = _number(word, vocabulary)
        if place in moved and number is not None:
            said[moved[place]].append(number)
    related = ((subject, target, _number(word, vocabulary)) for subject, target, word in graph.relations)
    return NumberedGraph(
        tuple(number for number in names if number is not None),
        tuple(map(tuple, said)),
        tuple(
            (moved[subject], moved[target], number)
            for subject, target, number in related
            if number is not None and subject in moved and target in moved
        ),
    )


def _number(words: str, vocabulary: Vocabulary) -> int | None:
    found = (vocabulary.number_of(word) for word in (words, *words.split()))
    return next((number for number in found if number is not None), None)
