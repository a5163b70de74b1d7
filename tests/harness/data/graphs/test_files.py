"""Files of scene graphs: both formats, what is refused, and what makes one image's graph unusable."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.config.features import GraphConfig
from harness.data import pixels
from harness.data.graph_source import WithGraph, check_graphs, graph_entries
from harness.data.graphs import FORMAT, GraphSource, SceneGraph, read_graphs
from harness.data.vocabulary import Vocabulary
from harness.utils.errors import BenchError
from zoo.captioner import Visual, VisualSpec

words = (
    st.text("abcdefgh ", min_size=1, max_size=8).map(str.strip).filter(bool).map(lambda word: " ".join(word.split()))
)


@st.composite
def graphs(draw: st.DrawFn) -> SceneGraph:
    objects = draw(st.lists(words, min_size=1, max_size=4))
    place = st.integers(0, len(objects) - 1)
    attributes = draw(st.lists(st.tuples(place, words), max_size=4))
    return SceneGraph(
        tuple(objects), tuple(attributes), tuple(draw(st.lists(st.tuples(place, place, words), max_size=4)))
    )


def write(path: Path, *entries: Any) -> Path:
    text = json.dumps({"format": FORMAT, "graphs": list(entries)})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def entry(image_id: int, graph: SceneGraph) -> dict[str, Any]:
    parts = {"objects": graph.objects, "attributes": graph.attributes, "relations": graph.relations}
    return {"image_id": image_id, **parts}


@given(st.lists(graphs(), min_size=1, max_size=3), st.sampled_from(["graphs.json", "graphs.json.gz"]))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, told: list[SceneGraph], name: str) -> None:
    path = write(tmp_path_factory.mktemp("g") / name, *(entry(7 * number, each) for number, each in enumerate(told)))
    found = read_graphs(path)
    assert found.graphs == {7 * number: each for number, each in enumerate(told)}
    assert not found.bad


def test_words_are_lower_case_and_objects_may_be_a_number(tmp_path: Path) -> None:
    path = write(tmp_path / "g.json", {"image_id": 1, "objects": 2, "relations": [[0, 1, " Next  To"]]})
    assert read_graphs(path).graphs == {1: SceneGraph(("object", "object"), (), ((0, 1, "next to"),))}


def test_visual_genome_is_read_in_the_order_of_its_objects(tmp_path: Path) -> None:
    man = {"object_id": 90, "names": ["Man"], "attributes": ["tall", "old"], "x": 1}
    hat = {"object_id": 12, "names": ["hat"], "synsets": []}
    stranger = {"predicate": "ON", "subject_id": 12, "object_id": 91, "relationship_id": 3}
    content = [
        {"image_id": 1, "objects": [man, hat], "relationships": [{**stranger, "object_id": 90}]},
        {"image_id": 2, "objects": [man, hat], "relationships": [stranger]},
    ]
    (tmp_path / "scene_graphs.json").write_text(json.dumps(content))
    found = read_graphs(tmp_path / "scene_graphs.json")
    assert found.graphs == {1: SceneGraph(("man", "hat"), ((0, "tall"), (0, "old")), ((1, 0, "on"),))}
    assert list(found.bad) == [2]
    assert "'on' of objects 1 and -1" in found.bad[2]
    for wrong in ({"names": 3}, {"attributes": "tall"}, {"object_id": "90"}, {"object_id": [1]}):
        content = [{"image_id": 1, "objects": [man | wrong], "relationships": [{"predicate": "on", "object_id": [1]}]}]
        (tmp_path / "scene_graphs.json").write_text(json.dumps(content))
        assert read_graphs(tmp_path / "scene_graphs.json").bad.keys() == {1}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"objects": None}, '10000 as "objects"'),
        ({"objects": True}, '10000 as "objects"'),
        ({"objects": 10**9}, '10000 as "objects"'),
        ({"objects": [""]}, "has '' for a word"),
        ({"objects": ["a\x00b"]}, "for a word"),
        ({"relations": [[0, 2, "on"]]}, "'on' of objects 0 and 2"),
        ({"relations": [[2, 0, "on"]]}, "objects 2 and 0"),
        ({"relations": [[0, -1, "on"]]}, "objects 0 and -1"),
        ({"relations": [[0, 1]]}, "has [0, 1] for a relation"),
        ({"relations": [[0, 1.0, "on"]]}, "for a relation"),
        ({"relations": {}}, 'as "relations"'),
        ({"attributes": [[2, "red"]]}, "'red' of object 2"),
        ({"attributes": [[0, "red", "big"]]}, "for an attribute"),
        ({"attributes": [[0, 3]]}, "has 3 for a word"),
    ],
)
def test_a_graph_that_contradicts_itself_is_of_no_use_and_the_others_are(
    tmp_path: Path, wrong: dict[str, Any], reason: str
) -> None:
    sound = {"image_id": 1, "objects": ["a", "b"]}
    found = read_graphs(write(tmp_path / "g.json", sound, {**sound, "image_id": 2, **wrong}))
    assert found.graphs.keys() == {1}
    assert reason in found.bad[2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "holds no scene graphs"),
        ({"graphs": []}, "holds no scene graphs"),
        ([{"image_id": 1, "objects": []}], "holds no scene graphs"),
        ({"format": FORMAT, "graphs": [{"objects": []}]}, r"without a whole number .* \(entry 0\)"),
        ({"format": FORMAT, "graphs": [{"image_id": True}]}, r"\(entry 0\)"),
        ({"format": FORMAT, "graphs": [3]}, r"\(entry 0\)"),
        ({"format": FORMAT, "graphs": [{"image_id": 4}, {"image_id": 4}]}, r"listed more than once \(4\)"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    (tmp_path / "g.json").write_text(json.dumps(content))
    with pytest.raises(BenchError, match=message):
        read_graphs(tmp_path / "g.json")


@pytest.mark.parametrize("name", ["1.npy", "graphs.pickle", "graphs.pkl"])
def test_pickles_are_never_loaded(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(BenchError, match="pickles") as refused:
        read_graphs(tmp_path / name)
    assert "docs/graph_models.md" in (refused.value.hint or "")
    with pytest.raises(BenchError, match=r"--graphs .* cannot be read"):
        read_graphs(tmp_path / "missing.json")


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
