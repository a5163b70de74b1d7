"""Compose the scenes of the embedded data set: objects, their sizes, positions and relations."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from harness.data.scenes.drawing import BACKGROUND_COLOURS, OBJECT_COLOURS, TEXTURES

T = TypeVar("T")

SEEN = (
    *("circle", "square", "triangle", "star", "cross", "ring", "heart"),
    *("house", "tree", "boat", "car", "fish", "table"),
)
UNSEEN = ("moon", "arrow", "flower", "cup", "umbrella", "hexagon")
DOMAINS = ("in-domain", "near-domain", "out-domain")
_CONTAINERS = frozenset({"circle", "square", "ring", "heart", "hexagon"})
_FLAT_TOPS = frozenset({"square", "table", "hexagon", "cup"})
_ARRANGEMENTS = {"single": 0.2, "pair": 0.43, "trio": 0.25, "group": 0.12}
_RELATIONS = {"left": 0.34, "above": 0.26, "inside": 0.2, "on": 0.2}
_THIRD_PLACES = {
    "left": ("above", "below"),
    "above": ("left", "right"),
    "on": ("left", "right"),
    "inside": ("left", "right", "above", "below"),
}
_TEXTURES = dict(zip(TEXTURES, (0.55, 0.15, 0.15, 0.15), strict=True))
IMAGE_SIZE = 96
SMALL = (20, 25)
LARGE = (34, 42)
"""Minimum and maximum side of objects, in pixels; two large ones fit beside each other."""
_JITTER = 7  # maximum misalignment of neighbours in a row, in pixels
_MARGIN = 2

Region = tuple[int, int, int, int]  # x1, y1, x2, y2


class Chance:
    """Random choices that are the same in every Python version: only `random()` is promised to be stable."""

    def __init__(self, seed: str) -> None:
        self._source = random.Random(seed)

    def happens(self, probability: float) -> bool:
        """Toss a biased coin."""
        return self._source.random() < probability

    def between(self, low: int, high: int) -> int:
        """Draw a whole number from low to high, both included; low where high is below it."""
        return low + int(self._source.random() * (max(high, low) - low + 1))

    def pick(self, options: Sequence[T]) -> T:
        """Draw one of the options, each as likely."""
        return options[self.between(0, len(options) - 1)]

    def weigh(self, weights: Mapping[str, float]) -> str:
        """Draw one of the keys, in proportion to its weight."""
        left = self._source.random() * sum(weights.values())
        for option, weight in weights.items():
            left -= weight
            if left < 0:
                return option
        return option


@dataclass(frozen=True, slots=True)
class Item:
    """A drawn object; (x, y) is its top left corner, `size` the side of its square, in pixels."""

    shape: str
    colour: str
    large: bool
    x: int
    y: int
    size: int


@dataclass(frozen=True, slots=True)
class Scene:
    """The content of an image.

    `relation` depends on the arrangement: the position of a single object; the relation of items[0] to items[1] in a
    pair or trio (left, above, inside, on); the line of a group (row, column). `third` is the position of items[2] of a
    trio relative to the pair.
    """

    arrangement: str
    relation: str
    third: str | None
    items: tuple[Item, ...]
    background: str
    texture: str


def compose(chance: Chance, domain: str) -> Scene:
    """Compose a random scene: "in-domain" of `SEEN` objects only, "out-domain" of `UNSEEN`, "near-domain" of both."""
    arrangement = chance.weigh(_ARRANGEMENTS)
    if domain == "near-domain" and arrangement in ("single", "group"):
        arrangement = chance.pick(("pair", "trio"))
    image_region = (_MARGIN, _MARGIN, IMAGE_SIZE - _MARGIN, IMAGE_SIZE - _MARGIN)
    third: str | None = None
    items: tuple[Item, ...]
    if arrangement == "single":
        relation = chance.pick(("left", "right", "top", "bottom", "middle"))
        items = (_single(chance, _pool(chance, domain, 1)[0], relation, image_region),)
    elif arrangement == "group":
        relation = chance.pick(("row", "column"))
        items = _group(chance, _pool(chance, domain, 1)[0], relation, image_region)
    else:
        pools = _pool(chance, domain, 2 if arrangement == "pair" else 3)
        fitting = {
            name: weight
            for name, weight in _RELATIONS.items()
            if (name != "inside" or _CONTAINERS.intersection(pools[1]))
            and (name != "on" or _FLAT_TOPS.intersection(pools[1]))
        }
        relation = chance.weigh(fitting)
        colours_left = list(OBJECT_COLOURS)
        colours = [colours_left.pop(chance.between(0, len(colours_left) - 1)) for _ in pools]
        region = image_region
        if arrangement == "trio":
            third = chance.pick(_THIRD_PLACES[relation])
            region, third_region = _cut(image_region, third)
        items = _pair(chance, pools, colours, relation, region)
        if third:
            items += (_anywhere(chance, chance.pick(pools[2]), colours[2], third_region),)
    return Scene(arrangement, relation, third, items, chance.pick(tuple(BACKGROUND_COLOURS)), chance.weigh(_TEXTURES))


def _pool(chance: Chance, domain: str, count: int) -> list[tuple[str, ...]]:
    """For each of `count` objects the shapes it may have."""
    if domain != "near-domain":
        return [SEEN if domain == "in-domain" else UNSEEN] * count
    novel = chance.between(0, count - 1)
    return [UNSEEN if index == novel else SEEN for index in range(count)]


def _size(chance: Chance, large: bool) -> int:
    return chance.between(*(LARGE if large else SMALL))


def _anywhere(chance: Chance, shape: str, colour: str, region: Region) -> Item:
    large = chance.happens(0.5)
    side = _size(chance, large)
    x1, y1, x2, y2 = region
    return Item(shape, colour, large, chance.between(x1, x2 - side), chance.between(y1, y2 - side), side)


def _single(chance: Chance, pool: Sequence[str], place: str, region: Region) -> Item:
    """One object in the named third of the image, centred in the other direction."""
    item = _anywhere(chance, chance.pick(pool), chance.pick(tuple(OBJECT_COLOURS)), region)
    low = region[0]
    high = region[2] - item.size
    ranges = {"low": (low, low + _JITTER), "high": (high - _JITTER, high)}
    middle = ((low + high - _JITTER) // 2, (low + high + _JITTER) // 2)
    x = chance.between(*ranges.get({"left": "low", "right": "high"}.get(place, ""), middle))
    y = chance.between(*ranges.get({"top": "low", "bottom": "high"}.get(place, ""), middle))
    return replace(item, x=x, y=y)


def _group(chance: Chance, pool: Sequence[str], line: str, region: Region) -> tuple[Item, ...]:
    """Two or three objects of one kind, lined up."""
    count = chance.pick((2, 2, 3))
    large = count == 2 and chance.happens(0.5)
    shape = chance.pick(pool)
    colour = chance.pick(tuple(OBJECT_COLOURS))
    sides = [_size(chance, large)] * count
    corners = _lined_up(chance, sides, region, upright=line == "column")
    return tuple(Item(shape, colour, large, x, y, side) for (x, y), side in zip(corners, sides, strict=True))


def _pair(
    chance: Chance, pools: Sequence[Sequence[str]], colours: Sequence[str], relation: str, region: Region
) -> tuple[Item, ...]:
    """Two objects of which the first is left of, above, inside or on the second."""
    shape = chance.pick(pools[0])
    if relation == "inside":
        outer = chance.pick([name for name in pools[1] if name in _CONTAINERS])
        side = chance.between(LARGE[1], LARGE[1] + 2)
        inner = chance.between(SMALL[0] - 2, SMALL[0])
        x = chance.between(region[0], region[2] - side)
        y = chance.between(region[1], region[3] - side)
        inset = (side - inner) // 2
        return (
            Item(shape, colours[0], False, x + inset + chance.between(-1, 1), y + inset + chance.between(-1, 1), inner),
            Item(outer, colours[1], True, x, y, side),
        )
    large = chance.happens(0.5), chance.happens(0.5)
    sides = [_size(chance, kind) for kind in large]
    if relation == "on":
        base = chance.pick([name for name in pools[1] if name in _FLAT_TOPS])
        x = chance.between(region[0], region[2] - max(sides))
        y = chance.between(region[1] + sides[0], region[3] - sides[1])
        lefts = [x + (max(sides) - side) // 2 for side in sides]
        corners = [(lefts[0], y - sides[0]), (lefts[1], y)]
        shapes = (shape, base)
    else:
        corners = _lined_up(chance, sides, region, upright=relation == "above")
        shapes = (shape, chance.pick(pools[1]))
    return tuple(Item(shapes[place], colours[place], large[place], *corners[place], sides[place]) for place in range(2))


def _lined_up(chance: Chance, sides: Sequence[int], region: Region, *, upright: bool) -> list[tuple[int, int]]:
    """Top left corners of objects side by side, each in its own part of the region, roughly on one line."""
    x1, y1, x2, y2 = (region[1], region[0], region[3], region[2]) if upright else region
    part = (x2 - x1) // len(sides)
    line = chance.between(y1, y2 - max(sides))
    corners = []
    for place, side in enumerate(sides):
        along = chance.between(x1 + place * part, x1 + (place + 1) * part - side)
        across = line + (max(sides) - side) // 2 + chance.between(-_JITTER, _JITTER)
        across = min(max(across, y1), y2 - side)
        corners.append((across, along) if upright else (along, across))
    return corners


def _cut(region: Region, third: str) -> tuple[Region, Region]:
    """Halve a region: (the pair's half, the half named by `third`)."""
    x1, y1, x2, y2 = region
    x = (x1 + x2) // 2
    y = (y1 + y2) // 2
    halves = {"left": (x1, y1, x, y2), "right": (x, y1, x2, y2), "above": (x1, y1, x2, y), "below": (x1, y, x2, y2)}
    opposite = {"left": "right", "right": "left", "above": "below", "below": "above"}
    return halves[opposite[third]], halves[third]
