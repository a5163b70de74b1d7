"""Scene graphs of drawn scenes and of their captions: they say what these say, and faults come at their rate."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.dataset import Dataset
from harness.data.graphs import (
    PREDICATES,
    SceneGraph,
    check_places,
    noisy,
    parse_scene_caption,
    scene_graph,
    scenes_graphs,
)
from harness.data.opening import open_dataset
from harness.data.scenes.dataset import ScenesConfig, draw_scene, prepare_scenes
from harness.data.scenes.layout import Chance
from harness.utils.errors import BenchError

GRAPH = SceneGraph(("ring", "car", "tree"), ((0, "red"), (1, "small")), ((0, 1, "above"), (2, 0, "left of")))
FUNCTION_WORDS = {
    *("a", "an", "the", "there", "is", "are", "picture", "of", "image", "shows", "we", "can", "see", "and", "with"),
    *("to", "top", "in", "middle", "at", "near", "edge", "side", "on", "them"),
}
RELATIONS = {
    "A tiny tree above a red heart.": "tree above heart",
    "A blue table below a red hexagon.": "table below hexagon",
    "A hexagon beneath a big pink star.": "hexagon beneath star",
    "A red cup under a brown tree.": "cup under tree",
    "A pink house over a yellow ring.": "house over ring",
    "A blue house beside a triangle.": "house beside triangle",
    "A yellow box next to a red house.": "box next to house",
    "A pink cup left of a yellow flower.": "cup left of flower",
    "A box to the left of a large red house.": "box left of house",
    "A pink house right of a green disc.": "house right of disc",
    "A boat to the right of an orange house.": "boat right of house",
    "A pink flower inside a hexagon.": "flower inside hexagon",
    "A blue arrow within a big yellow circle.": "arrow within circle",
    "The image shows a purple boat in the middle of a yellow heart.": "boat in heart",
    "A pink cup on top of a brown table.": "cup on table",
    "A blue fish sitting on a red hexagon.": "fish sitting on hexagon",
    "A tree standing on a tiny red cup.": "tree standing on cup",
    "A blue ring next to a brown heart around a red fish.": "ring next to heart, heart around fish",
    "A blue circle next to an orange ring and a green cross over them.": "circle next to ring, cross over ring",
    "A red house left of a big disc and a brown star under them.": "house left of disc, star under disc",
    "A big red box with a blue star on top.": "star on box",
    "An orange cross at the right edge on a gray background.": "cross on background",
    "A green disc against a white background.": "disc against background",
}


def test_relations_are_where_the_boxes_are() -> None:
    config = ScenesConfig(nocaps_per_domain=0)
    seen = set()
    for number in range(100):
        drawn = draw_scene(config, "train", None, number)
        graph = check_places(scene_graph(drawn.scene))
        assert graph.objects == tuple(item.shape for item in drawn.scene.items)
        for place, item in enumerate(drawn.scene.items):
            assert [word for at, word in graph.attributes if at == place] == [
                item.colour,
                "large" if item.large else "small",
            ]
        for one, other, word in graph.relations:
            (x1, y1, x2, y2), (u1, v1, u2, v2) = drawn.boxes[one], drawn.boxes[other]
            seen.add(word)
            holds = {
                "left of": x1 + x2 < u1 + u2,
                "right of": x1 + x2 > u1 + u2,
                "above": y1 + y2 < v1 + v2,
                "below": y1 + y2 > v1 + v2,
                "inside": u1 < x1 and v1 < y1 and x2 < u2 and y2 < v2,
                "on": y2 <= v1 + 4,
            }
            assert holds[word], (number, word)
    assert seen == set(PREDICATES)


@given(st.integers(0, 10**6), st.floats(0, 1), st.floats(0, 1))
def test_faults_are_the_same_for_a_seed_and_among_those_of_a_higher_rate(seed: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    few, many = (noisy(GRAPH, rate, Chance(str(seed))) for rate in (low, high))
    assert few == noisy(GRAPH, low, Chance(str(seed)))
    for graph in (few, many):
        check_places(graph)
        assert all(one != other for one, other, _ in graph.relations)
    for exact, less, more in zip(GRAPH.objects, few.objects, many.objects, strict=True):
        assert less in {exact, more}
    assert noisy(GRAPH, 0.0, Chance(str(seed))) == GRAPH
    wholly = noisy(GRAPH, 1.0, Chance(str(seed)))
    assert not {*zip(GRAPH.objects, wholly.objects, strict=True)} & {(word, word) for word in GRAPH.objects}
    assert len(wholly.relations) == len(GRAPH.relations), "all are lost, and as many invented"


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = prepare_scenes(tmp_path_factory.mktemp("s"), ScenesConfig(train=3, val=1, test=1, nocaps_per_domain=1))
    return open_dataset(str(folder), cache_dir=folder)


def test_graphs_of_a_data_set_are_of_its_images_and_signed_by_their_settings(scenes: Dataset) -> None:
    exact = scenes_graphs(scenes)
    assert {sample.image_id: len(sample.boxes or ()) for sample in scenes.samples} == {
        image_id: len(graph.objects) for image_id, graph in exact.graphs.items()
    }
    told = [exact, *(scenes_graphs(scenes, noise, seed) for noise, seed in ((0.3, 0), (0.3, 1), (0.4, 0)))]
    assert [each.name for each in told] == ["scenes", "scenes:noise=0.3", "scenes:noise=0.3,seed=1", "scenes:noise=0.4"]
    assert len({each.fingerprint for each in told}) == 4


def test_other_data_have_no_graphs_of_scenes(scenes: Dataset, tmp_path: Path) -> None:
    stated = json.loads((scenes.root.parent / "dataset_scenes.json").read_text())
    for change in ({"version": 0}, {"config": {"seed": 0}}, {"config": stated["config"] | {"train": "many"}}):
        (tmp_path / "dataset_scenes.json").write_text(json.dumps(stated | change))
        with pytest.raises(BenchError, match=r"cannot be composed again"):
            scenes_graphs(Dataset("mine", tmp_path, scenes.samples, "f"))
    with pytest.raises(BenchError, match="mine cannot be composed again") as refused:
        scenes_graphs(Dataset("mine", tmp_path / "a" / "b", scenes.samples, "f"))
    assert "--data scenes" in (refused.value.hint or "")


@pytest.mark.parametrize("caption", RELATIONS)
def test_things_are_related_as_the_caption_says(caption: str) -> None:
    graph = parse_scene_caption(caption)
    told = (f"{graph.objects[one]} {word} {graph.objects[other]}" for one, other, word in graph.relations)
    assert ", ".join(told) == RELATIONS[caption]


@pytest.mark.parametrize("domain", [None, "near-domain", "out-domain"])
def test_nothing_that_a_caption_says_is_left_out(domain: str | None) -> None:
    """Every noun, colour, size, texture and number is in the graph, and nothing else."""
    for number in range(40):
        for caption in draw_scene(ScenesConfig(), "parsed", domain, number).captions:
            graph = parse_scene_caption(caption)
            words = set(caption.lower().replace(",", "").rstrip(".").split())
            told = {*graph.objects, *(part for _, word in graph.attributes for part in word.split())}
            assert told <= words
            told |= {part for _, _, word in graph.relations for part in word.split()}
            assert words - told <= FUNCTION_WORDS


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "A big red box with a blue star on top against a dotted grey background.",
            SceneGraph(
                ("box", "star", "background"),
                ((0, "big"), (0, "red"), (1, "blue"), (2, "dotted"), (2, "grey")),
                ((1, 0, "on"), (1, 2, "against")),
            ),
        ),
        (
            "We can see a red fish on the left and a tree on the right with a blue car below.",
            SceneGraph(
                ("fish", "tree", "car"), ((0, "red"), (0, "left"), (1, "right"), (2, "blue")), ((2, 1, "below"),)
            ),
        ),
    ],
)
def test_graphs_as_they_are(caption: str, expected: SceneGraph) -> None:
    assert parse_scene_caption(caption) == expected


@pytest.mark.parametrize(
    "caption", ["A dog runs.", "Beside", "A red", "A red star beside", "On a table.", "A star under them.", "with a"]
)
def test_other_captions_are_refused(caption: str) -> None:
    with pytest.raises(BenchError, match="cannot be parsed") as caught:
        parse_scene_caption(caption)
    assert "features.sentence_graphs" in (caught.value.hint or "")
