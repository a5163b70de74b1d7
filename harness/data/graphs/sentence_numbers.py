"""Scene graphs of sentences as tensors of word numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from harness.data.graphs.contract import SceneGraph
from harness.data.vocabulary import Vocabulary

ABSENT = -1
"""Where a graph has fewer objects, attributes or relations than others of a batch."""


@dataclass(frozen=True, slots=True)
class NumberedGraph:
    """A scene graph in numbers of the vocabulary; places of relations are those of `objects`."""

    objects: tuple[int, ...]
    attributes: tuple[tuple[int, ...], ...]
    """Of each object."""
    relations: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class GraphTensors:
    """R graphs: objects (R, N), attributes (R, N, a) of each object, relations (R, M, 3), -1 where padded.

    N, a and M are at least 1.
    """

    objects: Tensor
    attributes: Tensor
    relations: Tensor

    @classmethod
    def of(cls, graphs: Sequence[NumberedGraph]) -> GraphTensors:
        """Graphs padded to the largest of them."""
        most = max((len(graph.objects) for graph in graphs), default=0)
        words = max((len(said) for graph in graphs for said in graph.attributes), default=0)
        pairs = max((len(graph.relations) for graph in graphs), default=0)
        objects = torch.full((len(graphs), max(most, 1)), ABSENT)
        attributes = torch.full((len(graphs), max(most, 1), max(words, 1)), ABSENT)
        relations = torch.full((len(graphs), max(pairs, 1), 3), ABSENT)
        for row, graph in enumerate(graphs):
            objects[row, : len(graph.objects)] = torch.tensor(graph.objects)
            for place, said in enumerate(graph.attributes):
                attributes[row, place, : len(said)] = torch.tensor(said)
            for place, relation in enumerate(graph.relations):
                relations[row, place] = torch.tensor(relation)
        return cls(objects, attributes, relations)

    def each(self, change: Callable[[Tensor], Tensor]) -> GraphTensors:
        """What `change` makes of every tensor."""
        return replace(self, **{part.name: change(getattr(self, part.name)) for part in fields(self)})


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
        tuple(_known(names)),
        tuple(map(tuple, said)),
        tuple(
            (moved[subject], moved[target], number)
            for subject, target, number in related
            if number is not None and subject in moved and target in moved
        ),
    )


def _known(numbers: Iterable[int | None]) -> Iterable[int]:
    return (number for number in numbers if number is not None)


def _number(words: str, vocabulary: Vocabulary) -> int | None:
    found = (vocabulary.number_of(word) for word in (words, *words.split()))
    return next(iter(_known(found)), None)
