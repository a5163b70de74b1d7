"""What the parser reads in captions of the scenes is true of their layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations

import pytest

from harness.data.graphs.graph import SceneGraph
from harness.data.graphs.scenes import parse_scene_caption
from harness.data.scenes.dataset import DrawnScene, ScenesConfig, draw_scene
from harness.data.scenes.layout import Item, Scene
from harness.utils.errors import BenchError

SHAPES = {
    "box": "square", "disc": "circle", "plus": "cross", "hoop": "ring", "home": "house", "ship": "boat",
    "desk": "table", "crescent": "moon", "mug": "cup",
}  # fmt: skip
PLURALS = {"boxes": "box", "crosses": "cross", "pluses": "plus", "fish": "fish"}
COLOURS = {"violet": "purple", "gray": "grey"}
LARGE = {"large": True, "big": True, "small": False, "little": False, "tiny": False}
NUMBERS = {"two": 2, "three": 3}
FUNCTION_WORDS = {
    *(
        "a",
        "an",
        "there",
        "is",
        "are",
        "picture",
        "of",
        "the",
        "image",
        "shows",
        "we",
        "can",
        "see",
        "and",
        "with",
        "to",
    ),
    *("top", "in", "middle", "at", "near", "edge", "side", "on", "them"),
}
PLACES = {"left", "right", "top", "bottom", "middle"}
ENDS = {"upper": "top", "lower": "bottom", "centre": "middle"}
COLUMNS = {"column", "above each other", "one below the other"}
ROWS = {"row", "side by side", "next to each other"}


def centre(item: Item) -> tuple[float, float]:
    return item.x + item.size / 2, item.y + item.size / 2


def is_inside(inner: Item, outer: Item) -> bool:
    return (
        outer.x <= inner.x
        and inner.x + inner.size <= outer.x + outer.size
        and outer.y <= inner.y
        and inner.y + inner.size <= outer.y + outer.size
    )


def is_left(a: Item, b: Item) -> bool:
    return a.x + a.size <= b.x


def is_above(a: Item, b: Item) -> bool:
    return a.y + a.size <= b.y


RELATIONS: dict[str, Callable[[Item, Item], bool]] = {
    "left of": is_left,
    "right of": lambda a, b: is_left(b, a),
    **dict.fromkeys(("next to", "beside"), lambda a, b: is_left(a, b) or is_left(b, a)),
    **dict.fromkeys(("above", "over"), is_above),
    **dict.fromkeys(("below", "under", "beneath"), lambda a, b: is_above(b, a)),
    **dict.fromkeys(("inside", "in", "within"), is_inside),
    "around": lambda a, b: is_inside(b, a),
    **dict.fromkeys(("on", "standing on", "sitting on"), lambda a, b: a.y + a.size == b.y),
}


def fits(word: str, item: Item, scene: Scene) -> bool:
    """Whether an attribute is true of an item."""
    if word in NUMBERS:
        return NUMBERS[word] == len(scene.items)
    if word in LARGE:
        return LARGE[word] == item.large
    if word in COLUMNS | ROWS:
        return scene.relation == ("column" if word in COLUMNS else "row")
    if scene.arrangement == "single" and (place := ENDS.get(word, word)) in {
        "left",
        "right",
        "top",
        "bottom",
        "middle",
    }:
        return scene.relation == place
    others = [other for other in scene.items if other is not item]
    beside = {
        "left": lambda other: is_left(item, other),
        "right": lambda other: is_left(other, item),
        "top": lambda other: is_above(item, other),
        "bottom": lambda other: is_above(other, item),
    }
    if word in beside:
        return any(map(beside[word], others))
    return COLOURS.get(word, word) == item.colour


def is_true(graph: SceneGraph, scene: Scene) -> bool:
    """Whether things can be told apart as items of the scene so that all attributes and relations hold."""
    backgrounds = [place for place, name in enumerate(graph.objects) if name == "background"]
    things = [place for place in range(len(graph.objects)) if place not in backgrounds]
    for place, word in graph.attributes:
        if place in backgrounds and COLOURS.get(word, word) not in (scene.background, scene.texture):
            return False
    for subject, target, word in graph.relations:
        if target in backgrounds and (word not in ("on", "against") or subject in backgrounds):
            return False
    return any(
        _holds(graph, dict(zip(things, items, strict=True)), scene) for items in permutations(scene.items, len(things))
    )


def _holds(graph: SceneGraph, items: dict[int, Item], scene: Scene) -> bool:
    for place, item in items.items():
        name = graph.objects[place]
        if scene.arrangement == "group":
            name = PLURALS.get(name, name.removesuffix("s"))
        if SHAPES.get(name, name) != item.shape:
            return False
    attributes = all(fits(word, items[place], scene) for place, word in graph.attributes if place in items)
    return attributes and all(
        RELATIONS[word](items[subject], items[target]) for subject, target, word in graph.relations if target in items
    )


def drawn(count: int) -> Iterator[DrawnScene]:
    config = ScenesConfig()
    for domain in (None, "near-domain", "out-domain"):
        for number in range(count):
            yield draw_scene(config, "parsed", domain, number)


def test_every_triple_is_true_in_the_layout() -> None:
    arrangements, said = set(), set()
    for each in drawn(60):
        arrangements.add(each.scene.arrangement)
        for caption in each.captions:
            graph = parse_scene_caption(caption)
            assert is_true(graph, each.scene), (caption, graph, each.scene)
            said |= {word for _, _, word in graph.relations}
    assert arrangements == {"single", "pair", "trio", "group"}
    assert said >= RELATIONS.keys()


def test_nothing_that_a_caption_says_is_left_out() -> None:
    """Every noun, colour, size, texture and number is in the graph, and nothing else."""
    for each in drawn(20):
        for caption in each.captions:
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
                ("fish", "tree", "car"),
                ((0, "red"), (0, "left"), (1, "right"), (2, "blue")),
                ((2, 1, "below"),),
            ),
        ),
    ],
)
def test_graphs_as_they_are(caption: str, expected: SceneGraph) -> None:
    assert parse_scene_caption(caption) == expected


@pytest.mark.parametrize(
    "caption",
    ["A dog runs.", "Beside", "A red", "A red star beside", "On a table.", "A star under them.", "with a"],
)
def test_other_captions_are_refused(caption: str) -> None:
    with pytest.raises(BenchError, match="cannot be parsed") as caught:
        parse_scene_caption(caption)
    assert "--sentence-graphs" in (caught.value.hint or "")
