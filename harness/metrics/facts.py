"""Facts of pictures: what captions state, what of it is true, and what of the picture they leave out.

A caption is read by rules (`harness.data.graphs`) and judged by what was drawn, not by its references. What it
mentions stands for the object that it shares most with, at least the shape or the colour; whatever is said of a thing
that shares neither with any is false. `docs/facts.md` has the rules of each kind.
Of photographs nobody knows the truth: there, words of a few kinds are compared with those of the references.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Final

import numpy as np

from harness.data.graphs import BACKGROUND, NUMBERS, SHAPE_OF, SceneGraph, read_scene_caption
from harness.data.scenes.drawing import TEXTURES
from harness.data.scenes.language import colour_words, size_words
from harness.data.scenes.layout import IMAGE_SIZE, Item, Scene
from harness.metrics.chair import ObjectWords, coco_words
from harness.metrics.contract import OVERALL
from results.metrics import depends_on
from results.records import Quantity, SplitResult
from results.runs.facts import (
    FACT_METRICS,
    KINDS,
    PARSED,
    WORD_KINDS,
    WORDS,
    fact_counts,
    fact_metric,
    fact_scores,
    packed,
    undefined,
)
from results.statistics.significance import Array, Metric, Statistics, bootstrap

RESAMPLES: Final = 1_000  # of the bootstrap: a tenth of those of other metrics, so that facts cost a run nothing
_COLOUR_OF: Final = colour_words()
_LARGE: Final = size_words()
_SIDES: Final = {
    **{side: side for side in ("left", "right", "top", "bottom", "middle")},
    "upper": "top",
    "lower": "bottom",
    "centre": "middle",
}
_LINES: Final = {
    **dict.fromkeys(("side by side", "next to each other", "row"), "row"),
    **dict.fromkeys(("above each other", "one below the other", "column"), "column"),
}
_OPPOSITE: Final = {"left": ("right", "left of"), "top": ("bottom", "above")}
_INVERSE: Final = {"right of": "left of", "below": "above", "under": "above", "beneath": "above", "around": "inside"}
_MEANT: Final = {
    "over": "above",
    "in": "inside",
    "within": "inside",
    "beside": "next to",
    "standing on": "on",
    "sitting on": "on",
}
_TURNED: Final = {"right": "left", "below": "above"}
_NEAR: Final = 10
"""Pixels that centres must be apart before one object is beside or above another that it was not composed so with."""
_SHAPE, _COLOUR, _SIZE = 32, 6, 1
"""What an agreement counts when mentions are matched with objects; a true relation counts 1."""
_RELATED: Final = 30
"""Mentions that are tried for an object since relations name them, beside those that share most with it."""


@dataclass(slots=True)
class Mention:
    """A thing that a caption names: its shape, and what is said of it."""

    shape: str
    colours: list[str] = field(default_factory=list)
    sizes: list[bool] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    sides: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def agreement(self, item: Item) -> int:
        """How much it shares with an object; 0 where neither shape nor colour."""
        found = _SHAPE * (self.shape == item.shape) + _COLOUR * (item.colour in self.colours)
        return found and found + _SIZE * (item.large in self.sizes)


@dataclass(slots=True)
class Reading:
    """A caption as the rules read it: mentions, how they lie to each other by place, and what is said of the ground.

    `relations` are (subject, predicate, object), of `left of`, `above`, `inside`, `on` and `next to` alone.
    """

    mentions: list[Mention]
    relations: list[tuple[int, str, int]]
    backgrounds: list[str]
    unknown: list[str]


@cache
def read_caption(caption: str) -> Reading:
    """Every fact that a caption states."""
    graph, unknown = read_scene_caption(caption)
    places = [place for place, noun in enumerate(graph.objects) if noun != BACKGROUND]
    of = {place: number for number, place in enumerate(places)}
    found = Reading([Mention(SHAPE_OF[graph.objects[place]]) for place in places], [], [], unknown)
    for place, word in graph.attributes:
        if place not in of:
            found.backgrounds.append(_COLOUR_OF.get(word, word))
            continue
        mention = found.mentions[of[place]]
        if word in _COLOUR_OF or word in TEXTURES:
            mention.colours.append(_COLOUR_OF.get(word, word))
        elif word in _LARGE:
            mention.sizes.append(_LARGE[word])
        elif word in NUMBERS:
            mention.numbers.append(NUMBERS[word])
        elif word in _LINES:
            mention.lines.append(_LINES[word])
        else:
            mention.sides.append(_SIDES[word])
    found.relations = [*_relations(graph, of), *_by_opposite_sides(found.mentions)]
    return found


def _relations(graph: SceneGraph, of: Mapping[int, int]) -> Iterator[tuple[int, str, int]]:
    for one, other, word in graph.relations:
        if one in of and other in of:
            ends = (one, other) if word not in _INVERSE else (other, one)
            yield of[ends[0]], _INVERSE.get(word, _MEANT.get(word, word)), of[ends[1]]


def _by_opposite_sides(mentions: Sequence[Mention]) -> Iterator[tuple[int, str, int]]:
    """Things on the left and on the right, or at the top and at the bottom: relations in place of their sides."""
    for side, (opposite, predicate) in _OPPOSITE.items():
        ends = [next((n for n, each in enumerate(mentions) if end in each.sides), None) for end in (side, opposite)]
        if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
            mentions[ends[0]].sides.remove(side)
            mentions[ends[1]].sides.remove(opposite)
            yield ends[0], predicate, ends[1]


class _Judge:
    """What is true of a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.items = scene, scene.items
        self.group = scene.arrangement == "group"
        self._centres = [(item.x + item.size / 2, item.y + item.size / 2) for item in scene.items]

    def related(self, one: int, predicate: str, other: int) -> bool:
        """Whether two objects lie so: as they were composed, or by their centres."""
        scene = self.scene
        if self.group:
            return predicate == {"row": "left of", "column": "above"}[scene.relation] or (
                predicate == "next to" and scene.relation == "row"
            )
        if predicate == "next to":
            return self.related(one, "left of", other) or self.related(other, "left of", one)
        if predicate in ("inside", "on"):
            return (one, other, predicate) == (0, 1, scene.relation)
        wanted = predicate.removesuffix(" of")
        composed = {2: scene.third, 0: scene.relation}.get(one) if other != 2 else _TURNED.get(scene.third or "")
        across, down = (there - here for here, there in zip(self._centres[one], self._centres[other], strict=True))
        along, aside = (across, down) if wanted == "left" else (down, across)
        return bool(composed == wanted or along >= max(_NEAR, abs(aside)))

    def at(self, one: int, side: str) -> bool:
        """Whether an object, or the group, is on this side of the picture."""
        if self.scene.arrangement == "single":
            return self.scene.relation == side
        centres = self._centres if self.group else [self._centres[one]]
        x, y = (sum(each) / len(centres) / IMAGE_SIZE for each in zip(*centres, strict=True))
        near = {"left": 0.45 - x, "right": x - 0.55, "top": 0.45 - y, "bottom": y - 0.55}
        return bool(near[side] > 0 if side in near else max(abs(x - 0.5), abs(y - 0.5)) < 1 / 6)

    def line(self, line: str) -> bool:
        """Whether the objects stand in such a line."""
        return {"left": "row", "above": "column"}.get(self.scene.relation, self.scene.relation) == line

    def meant(self, reading: Reading) -> list[int | None]:
        """The object that each mention stands for: no two the same, but in a group, which is one thing."""
        mentions = reading.mentions
        if self.group:
            return [0 if mention.agreement(self.items[0]) else None for mention in mentions]
        agreements = [[mention.agreement(item) for mention in mentions] for item in self.items]
        linked = sorted({end for one, _, other in reading.relations for end in (one, other)})
        options: list[list[int | None]] = []
        for shared in agreements:
            alike = sorted(filter(shared.__getitem__, range(len(mentions))), key=lambda mention: -shared[mention])
            options.append([None, *{*alike[: len(self.items)], *[each for each in linked if shared[each]][:_RELATED]}])
        true = Counter[tuple[int, int, int, int]]()
        for (one, said, other), (at, to) in product(reading.relations, product(range(len(self.items)), repeat=2)):
            true[one, at, other, to] += self.related(at, said, to)

        def order(chosen: Sequence[int | None]) -> tuple[int, list[tuple[int, int]]]:
            ends = [(mention, at) for at, mention in enumerate(chosen) if mention is not None]
            shared = sum(agreements[at][mention] for mention, at in ends)
            return -shared - sum(true[*one, *other] for one, other in product(ends, repeat=2)), sorted(ends)

        apart = (each for each in product(*options) if len({*each} - {None}) + each.count(None) == len(each))
        return list(map(dict(min(map(order, apart))[1]).get, range(len(mentions))))

    def holds(self, meant: Sequence[int | None], relation: tuple[int, str, int]) -> bool:
        """Whether a relation of mentions is true."""
        one, other = meant[relation[0]], meant[relation[2]]
        return one is not None and other is not None and self.related(one, relation[1], other)


def judged(reading: Reading, scene: Scene) -> Array:
    """Of each kind (6, 4): facts stated, true ones of these, facts of the picture, told ones of these."""
    judge, items = _Judge(scene), scene.items
    single, things = scene.arrangement == "single", 1 if judge.group else len(items)
    meant = judge.meant(reading)
    # By kind, whether each fact is true, and which of the picture's it tells; None: none of them.
    found: dict[str, list[tuple[bool, int | None]]] = {kind: [] for kind in KINDS}
    for mention, at in zip(reading.mentions, meant, strict=True):
        known, thing = at is not None, at or 0
        item = items[thing]
        alike = sum(other.shape == item.shape for other in items)
        # A side of the picture says nothing of how several objects lie to each other.
        side_of = 0 if single else None
        found["object"].append((known and mention.shape == item.shape, thing))
        found["colour"] += [(known and colour == item.colour, thing) for colour in mention.colours]
        found["size"] += [(known and large == item.large, thing) for large in mention.sizes]
        found["count"] += [(known and number == alike, 0) for number in mention.numbers]
        found["relation"] += [(known and judge.at(thing, side), side_of) for side in mention.sides]
        found["relation"] += [(known and alike > 1 and judge.line(line), 0) for line in mention.lines]
    if judge.group and not found["count"] and any(at is not None for at in meant):
        named = sum(true for true, _ in found["object"]) or sum(at is not None for at in meant)
        found["count"].append((named == len(items), 0))
    for one, predicate, other in reading.relations:
        true = judge.holds(meant, (one, predicate, other))
        found["relation"].append((true, int(2 in (meant[one], meant[other]))))
    for word in reading.backgrounds:
        of_texture = word in TEXTURES
        found["background"].append((word == (scene.texture if of_texture else scene.background), int(of_texture)))
    there = {
        **dict.fromkeys(("object", "colour", "size"), things),
        "count": int(judge.group),
        "relation": 1 + (scene.third is not None),
        "background": 1 + (scene.texture != "plain"),
    }
    rows = []
    for kind, facts in found.items():
        told = {what for true, what in facts if true and what is not None}
        rows.append([len(facts), sum(true for true, _ in facts), there[kind], min(len(told), there[kind])])
    return np.array(rows, np.float64)


_RELATION_OF: Final = {
    **{word: word for word in ("on", "next to", "left of", "right of", "above", "below", "inside", "around")},
    **_MEANT,
    **dict.fromkeys(("under", "beneath"), "below"),
}
_COUNTED: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_WORD: Final = re.compile(r"[a-z]+")


@cache
def _closed_words() -> ObjectWords:
    """Words of colour, number and relation, by kind and meaning."""
    kinds = {"colour": _COLOUR_OF, "count": dict(zip(_COUNTED, _COUNTED, strict=True)), "relation": _RELATION_OF}
    return ObjectWords(
        {tuple(text.split()): f"{kind} {meaning}" for kind, of in kinds.items() for text, meaning in of.items()}
    )


@cache
def words_of(caption: str) -> frozenset[str]:
    """What a caption of a photograph names, as kind and meaning: COCO's objects, colours, numbers and relations."""
    words = _WORD.findall(caption.lower())
    return frozenset((*(f"object {name}" for name in coco_words().among(words)), *_closed_words().among(words)))


Expected = tuple[frozenset[str], frozenset[str]]
"""Of an image, what any reference names or is known to be there, and what at least half of the references name."""


def expected_words(
    references: Mapping[int, Sequence[str]], objects: Mapping[int, Iterable[str]]
) -> dict[int, Expected]:
    """What captions of photographs are judged by; `objects` are COCO's, of the images where they are known."""
    found = {}
    for image_id, texts in references.items():
        named = Counter(word for text in texts for word in words_of(text))
        known = {f"object {name}" for name in objects.get(image_id, ())}
        often = (word for word, count in named.items() if 2 * count >= len(texts))
        found[image_id] = frozenset({*named, *known}), frozenset(often)
    return found


def judged_words(said: frozenset[str], expected: Expected) -> list[list[int]]:
    """Of each kind (6, 4), as `judged`: what any reference names is true, what half of them name is there."""
    true, there = expected
    counts = {kind: [0, 0, 0, 0] for kind in KINDS}
    for place, words, among in ((0, said, true), (2, there, said)):
        for word in words:
            of_kind = counts[word.partition(" ")[0]]
            of_kind[place] += 1
            of_kind[place + 1] += word in among
    return list(counts.values())


def _fact_scores(totals: Array) -> Array:
    """Precision, recall and F of each kind of (..., 24) sums: of each kind the four counts of `judged`."""
    return fact_scores(totals.reshape(*totals.shape[:-1], len(KINDS), 4)).reshape(*totals.shape[:-1], -1)


def measure_facts(
    split: str, captions: Mapping[int, str], scenes: Mapping[int, Scene], domains: Mapping[int, str]
) -> tuple[SplitResult, Counter[str]]:
    """Every measure over a split and each of its domains, the counts of its images, and words that no rule knows."""
    readings = {image_id: read_caption(caption) for image_id, caption in captions.items()}
    values = np.array([judged(reading, scenes[image_id]) for image_id, reading in readings.items()])
    whole = [not reading.unknown for reading in readings.values()]
    unknown = Counter(word for reading in readings.values() for word in reading.unknown)
    return _result(split, captions, values, domains, KINDS, (PARSED, whole, "")), unknown


def measure_words(
    split: str, captions: Mapping[int, str], expected: Mapping[int, Expected], domains: Mapping[int, str], by: str
) -> SplitResult:
    """As `measure_facts`, of photographs; `by` says what captions are judged by."""
    said = {image_id: words_of(caption) for image_id, caption in captions.items()}
    values = np.array([judged_words(words, expected[image_id]) for image_id, words in said.items()], np.float64)
    return _result(split, captions, values, domains, WORD_KINDS, (WORDS, list(map(bool, said.values())), by))


def _result(
    split: str,
    captions: Mapping[int, str],
    values: Array,
    domains: Mapping[int, str],
    kinds: Sequence[str],
    share: tuple[str, Sequence[bool], str],
) -> SplitResult:
    """Scores and counts; before the scores stands the `share` of captions of which something holds, with a unit."""
    name, holds, unit = share
    rows: dict[str, list[int]] = {OVERALL: list(range(len(values)))}
    for row, image_id in enumerate(captions):
        if image_id in domains:
            rows.setdefault(domains[image_id], []).append(row)
    scores = {
        group: {
            name: Quantity(float(np.mean([holds[row] for row in members])), unit=unit),
            **_scores(values[members], kinds),
        }
        for group, members in rows.items()
    }
    by_image = {
        fact_counts(kind): dict(zip(captions, numbers.tolist(), strict=True))
        for kind, numbers in zip(KINDS, packed(values).T, strict=True)
        if kind in kinds
    }
    return SplitResult(split, dict(captions), scores, by_image)


def _scores(values: Array, kinds: Sequence[str]) -> dict[str, Quantity]:
    statistics = Statistics(Metric(FACT_METRICS, _fact_scores), values.reshape(len(values), -1))
    bounds, found = bootstrap([statistics], resamples=RESAMPLES), statistics.corpus()
    reasons: dict[str, str] = {}
    for kind, totals in zip(KINDS, values.sum(axis=0), strict=True):
        reasons |= {fact_metric(measure, kind): why for measure, why in undefined(totals, kind).items()}
    return {
        metric: Quantity(None, reasons[metric]) if metric in reasons else Quantity(value, None, "", *bounds[metric])
        for metric, value in found.items()
        if depends_on(metric) in kinds
    }
