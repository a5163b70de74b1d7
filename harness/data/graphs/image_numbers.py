"""Words of scene graphs as the numbers that models read, and the visual input with the graph beside regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from harness.config.features import GraphConfig
from harness.data.batches import VisualSource
from harness.data.graphs.contract import SceneGraph
from harness.data.vocabulary import Vocabulary
from harness.utils.errors import BenchError
from zoo.captioner import GraphKind, Visual, VisualSpec


@dataclass(frozen=True, slots=True)
class ImageGraphs:
    """The scene graphs of all images of a run.

    Attributes:
        graphs: by image id, with no more objects than the image has regions.
        described: the source with the settings of each kind of graph, as signatures show it.
        entries: by kind, what has a number besides the words of the vocabulary: words of graphs, or labels of edges.
    """

    graphs: Mapping[int, SceneGraph]
    described: Mapping[GraphKind, str]
    entries: Mapping[GraphKind, tuple[str, ...]]


def graph_entries(
    kind: GraphKind, graphs: Iterable[SceneGraph], vocabulary: Vocabulary, config: GraphConfig
) -> tuple[str, ...]:
    """What is numbered of the training images' graphs, frequent ones first, ties in code-point order.

    "words": words of attributes and relations that the vocabulary lacks, seen `config.min_count` times or more.
    "labels": the predicates of relations, the `config.labels` most frequent.
    """
    told = list(graphs)
    counts = Counter(word for graph in told for _, _, word in graph.relations)
    if kind == "labels":
        return tuple(_ranked(counts)[: config.labels])
    counts.update(word for graph in told for _, word in graph.attributes)
    return tuple(
        word for word in _ranked(counts) if counts[word] >= config.min_count and vocabulary.number_of(word) is None
    )


def numbers(kind: GraphKind, words: Iterable[str], entries: Sequence[str], vocabulary: Vocabulary) -> dict[str, int]:
    """The number of each word that has one.

    "words": that of the vocabulary, or of `entries` behind it. "labels": from 1 on, since 0 stands for no edge.
    """
    if kind == "labels":
        return {word: number for number, word in enumerate(entries, 1)}
    own = {word: len(vocabulary) + place for place, word in enumerate(entries)}
    known = {word: vocabulary.number_of(word) for word in set(words)}
    return own | {word: number for word, number in known.items() if number is not None}


class WithGraph:
    """Visual input of another source, with the scene graphs of its images as one kind of model reads them.

    Relations and attributes whose words have no number are left out; of several labels of one ordered pair of regions
    the first is kept. Safe to share between threads.

    Attributes:
        source: of the regions.

    Args:
        graphs: by image id.
        entries: see `ImageGraphs.entries`.
    """

    def __init__(
        self,
        source: VisualSource,
        kind: GraphKind,
        graphs: Mapping[int, SceneGraph],
        entries: Sequence[str],
        vocabulary: Vocabulary,
    ) -> None:
        self.source, self._kind, self._graphs = source, kind, graphs
        said = (word for graph in graphs.values() for word in _words(graph))
        self._numbers = numbers(kind, said, entries, vocabulary)
        # One width for all batches, so that one image is the same in each of them.
        rows = (row for graph in graphs.values() for row in self._attributes(graph))
        self._width = max(map(len, rows), default=2)

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:
        """Visual input of the images for this `VisualSpec`; BenchError where one has no graph."""
        try:
            graphs = [self._graphs[image_id] for image_id in image_ids]
        except KeyError as error:
            raise BenchError(f"no graph for image {error.args[0]}", "it was skipped or is not listed") from None
        seen = self.source.visual(image_ids, replace(spec, graph="none"))
        relations = _padded([self._relations(graph) for graph in graphs], 3)
        if self._kind == "labels":
            return replace(seen, relations=relations)
        return replace(seen, relations=relations, attributes=_padded(list(map(self._attributes, graphs)), self._width))

    def _relations(self, graph: SceneGraph) -> list[tuple[int, ...]]:
        told = [(subject, obj, self._numbers.get(word)) for subject, obj, word in graph.relations]
        known = [(subject, obj, number) for subject, obj, number in told if number is not None]
        if self._kind == "labels":
            first = {(subject, obj): number for subject, obj, number in reversed(known)}
            known = [(subject, obj, number) for (subject, obj), number in sorted(first.items())]
        return list(known)

    def _attributes(self, graph: SceneGraph) -> list[tuple[int, ...]]:
        """A row for each object of which a word is known."""
        rows: dict[int, list[int]] = {}
        for place, word in graph.attributes:
            if word in self._numbers:
                rows.setdefault(place, []).append(self._numbers[word])
        return [(place, *said) for place, said in sorted(rows.items())]


def _padded(rows: Sequence[Sequence[Sequence[int]]], width: int) -> Tensor:
    """Rows of each image as one tensor (B, most, width), -1 where padded."""
    padded = torch.full((len(rows), max(map(len, rows), default=0), width), -1)
    for image, own in enumerate(rows):
        for place, row in enumerate(own):
            padded[image, place, : len(row)] = torch.tensor(row)
    return padded


def _words(graph: SceneGraph) -> Iterable[str]:
    yield from (word for _, word in graph.attributes)
    yield from (word for _, _, word in graph.relations)


def _ranked(counts: Mapping[str, int]) -> list[str]:
    return sorted(counts, key=lambda word: (-counts[word], word))
