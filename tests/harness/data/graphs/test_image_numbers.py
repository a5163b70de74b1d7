"""Scene graphs as models read them: numbers of words and labels, padding, and the same images on a device."""

from collections.abc import Sequence

import pytest
import torch

from harness.config.features import GraphConfig
from harness.data import pixels
from harness.data.graphs.graph import GraphSource, SceneGraph
from harness.data.graphs.images import WithGraph, check_graphs, graph_entries
from harness.data.vocabulary import Vocabulary
from harness.utils.errors import BenchError
from zoo.captioner import Visual, VisualSpec

VOCABULARY = Vocabulary(("red", "on", "dog"))  # 4, 5, 6
GRAPHS = {
    1: SceneGraph(("dog", "cat"), ((1, "red"), (0, "furry"), (1, "rare")), ((0, 1, "next to"), (1, 0, "on"))),
    2: SceneGraph(("dog",)),
    3: SceneGraph(
        ("a", "b", "c"), ((0, "furry"),), ((0, 1, "on"), (0, 1, "next to"), (2, 1, "next to"), (1, 2, "rarely"))
    ),
}
CONFIG = GraphConfig(source="scenes", min_count=2, labels=2)
WORDS = VisualSpec("regions", 2, graph="words")


class Regions:
    """Three regions an image, whatever is asked for but a graph."""

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:
        assert spec.graph == "none"
        return Visual(torch.ones(len(image_ids), 3, 2), torch.ones(len(image_ids), 3, dtype=torch.bool))


def test_entries_are_words_that_no_caption_has_and_frequent_predicates() -> None:
    assert graph_entries("words", GRAPHS.values(), VOCABULARY, CONFIG) == ("next to", "furry")
    assert graph_entries("labels", GRAPHS.values(), VOCABULARY, CONFIG) == ("next to", "on")
    assert graph_entries("words", [], VOCABULARY, CONFIG) == ()


def test_words_keep_their_numbers_and_those_of_graphs_follow() -> None:
    read = WithGraph(Regions(), "words", GRAPHS, ("next to", "furry"), VOCABULARY)
    seen = read.visual([1, 2, 3], WORDS)
    none = [-1, -1, -1]
    assert seen.relations.tolist() == [
        [[0, 1, 7], [1, 0, 5], none],
        [none, none, none],
        [[0, 1, 5], [0, 1, 7], [2, 1, 7]],
    ]
    assert seen.attributes.tolist() == [[[0, 8], [1, 4]], [[-1, -1], [-1, -1]], [[0, 8], [-1, -1]]]
    alone = read.visual([2], WORDS)
    assert (alone.relations.shape, alone.relations.dtype) == ((1, 0, 3), torch.long)
    with pytest.raises(BenchError, match="no graph for image 9"):
        read.visual([9], WORDS)


def test_labels_are_one_a_pair_the_first() -> None:
    read = WithGraph(Regions(), "labels", GRAPHS, ("next to", "on"), VOCABULARY)
    seen = read.visual([3], VisualSpec("regions", 2, graph="labels"))
    assert seen.attributes is None
    assert seen.relations.tolist() == [[[0, 1, 2], [2, 1, 1]]]


@pytest.mark.parametrize("chosen", [[1, 2, 3], [2], [3, 1], [2, 1]])
def test_graphs_that_lie_on_a_device_are_the_same(chosen: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels, "IMAGES_AT_ONCE", 1)  # each is read with another number of relations
    read = WithGraph(Regions(), "words", GRAPHS, ("next to", "furry"), VOCABULARY)
    held = pixels.hold(read, [2, 1, 3], WORDS, torch.device("cpu"), 10**6)
    expected, found = read.visual(chosen, WORDS), held.visual(chosen, WORDS)
    for name in ("relations", "attributes", "features", "mask"):
        assert torch.equal(getattr(expected, name), getattr(found, name)), name


def test_objects_beyond_the_regions_are_refused_or_cut() -> None:
    source = GraphSource("g.json", "f", GRAPHS, {4: "has no objects"})
    regions = {1: 2, 2: 5, 3: 2, 4: 1, 5: 1}
    graphs, bad = check_graphs(source, regions, regions.get)
    assert graphs == {1: GRAPHS[1], 2: GRAPHS[2]}
    assert bad == {
        3: "image 3: has a graph of 3 objects, but 2 regions (g.json)",
        4: "image 4: has no objects (g.json)",
        5: "image 5: has no graph (g.json)",
    }
    cut, bad = check_graphs(source, [3], regions.get, first=True)
    assert not bad
    assert cut[3] == SceneGraph(("a", "b"), ((0, "furry"),), ((0, 1, "on"), (0, 1, "next to")))
    assert check_graphs(source, [3], {}.get)[0] == {3: GRAPHS[3]}, "unknown regions fit"
