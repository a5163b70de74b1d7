"""Scene graphs of captions of the embedded scenes: their relations, places and words, and no others."""

import pytest

from harness.data.graphs.graph import SceneGraph
from harness.data.graphs.scenes import parse_scene_caption
from harness.data.scenes.dataset import ScenesConfig, draw_scene
from harness.utils.errors import BenchError

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
    assert "--sentence-graphs" in (caught.value.hint or "")
