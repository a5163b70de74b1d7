"""Facts in captions: precision of the stated facts, and recall of the facts in the picture.

Captions of drawn scenes are parsed by rules (`harness.data.graphs`) and compared with the scene itself, not with
references. A mention is matched with the object with which it agrees most, in at least shape or colour; all facts
about a mention without such an object are false. `docs/facts.md` has the rules of each kind.

For photographs the true facts are unknown: there, words of a few kinds are compared with those in references.
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

RESAMPLES: Final = 1_000  # of the bootstrap: a tenth of those of other metrics, to save time
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
"""Minimum distance of centres in pixels for a relation between objects that were not composed with it."""
_SHAPE, _COLOUR, _SIZE = 32, 6, 1
"""Weights of agreements when mentions are matched with objects; a true relation has weight 1."""
_RELATED: Final = 30
"""Maximum number of mentions in relations that are tried for an object, besides those that agree most with it."""


@dataclass(slots=True)
class Mention:
    """An object that a caption mentions, with its shape and stated attributes."""

    shape: str
    colours: list[str] = field(default_factory=list)
    sizes: list[bool] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    sides: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def agreement(self, item: Item) -> int:
        """The weight of its agreements with an object; 0 if neither shape nor colour agrees."""
        weight = 0
        if self.shape == item.shape:
            weight += _SHAPE
        if item.colour in self.colours:
            weight += _COLOUR
        if weight and item.large in self.sizes:
            weight += _SIZE
        return weight


@dataclass(slots=True)
class Reading:
    """A parsed caption.

    Attributes:
        relations: (index of the subject's mention, predicate, index of the object's mention), where the predicate is
            "left of", "above", "inside", "on" or "next to".
        backgrounds: stated colours and textures of the background.
        unknown: words that no rule knows.
    """

    mentions: list[Mention]
    relations: list[tuple[int, str, int]]
    backgrounds: list[str]
    unknown: list[str]


@cache
def read_caption(caption: str) -> Reading:
    """Parse a caption of a drawn scene into facts."""
    graph, unknown = read_scene_caption(caption)
    indices = [index for index, noun in enumerate(graph.objects) if noun != BACKGROUND]
    mention_of = {index: mention_index for mention_index, index in enumerate(indices)}
    reading = Reading([Mention(SHAPE_OF[graph.objects[index]]) for index in indices], [], [], unknown)
    for index, word in graph.attributes:
        if index not in mention_of:
            reading.backgrounds.append(_COLOUR_OF.get(word, word))
            continue
        mention = reading.mentions[mention_of[index]]
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
    reading.relations = [*_relations(graph, mention_of), *_by_opposite_sides(reading.mentions)]
    return reading


def _relations(graph: SceneGraph, mention_of: Mapping[int, int]) -> Iterator[tuple[int, str, int]]:
    """The graph's relations with predicates of `Reading.relations`, between the mentions of its objects."""
    for subject, obj, word in graph.relations:
        if subject not in mention_of or obj not in mention_of:
            continue
        if word in _INVERSE:
            yield mention_of[obj], _INVERSE[word], mention_of[subject]
        else:
            yield mention_of[subject], _MEANT.get(word, word), mention_of[obj]


def _by_opposite_sides(mentions: Sequence[Mention]) -> Iterator[tuple[int, str, int]]:
    """Relations between mentions on opposite sides, left and right or top and bottom, whose sides are removed."""
    for side, (opposite, predicate) in _OPPOSITE.items():
        first = next((index for index, mention in enumerate(mentions) if side in mention.sides), None)
        second = next((index for index, mention in enumerate(mentions) if opposite in mention.sides), None)
        if first is not None and second is not None and first != second:
            mentions[first].sides.remove(side)
            mentions[second].sides.remove(opposite)
            yield first, predicate, second


class _Judge:
    """Decides which facts are true of a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.items = scene.items
        self.group = scene.arrangement == "group"
        self._centres = [(item.x + item.size / 2, item.y + item.size / 2) for item in scene.items]

    def related(self, subject: int, predicate: str, obj: int) -> bool:
        """Whether a relation of two objects is true, by the scene's composition or by their centres."""
        scene = self.scene
        if self.group:
            true_predicates = {"row": ("left of", "next to"), "column": ("above",)}
            return predicate in true_predicates[scene.relation]
        if predicate == "next to":
            return self.related(subject, "left of", obj) or self.related(obj, "left of", subject)
        if predicate in ("inside", "on"):
            return (subject, obj, predicate) == (0, 1, scene.relation)
        direction = predicate.removesuffix(" of")
        composed = {2: scene.third, 0: scene.relation}.get(subject) if obj != 2 else _TURNED.get(scene.third or "")
        (subject_x, subject_y), (object_x, object_y) = self._centres[subject], self._centres[obj]
        across = object_x - subject_x
        down = object_y - subject_y
        along, aside = (across, down) if direction == "left" else (down, across)
        return bool(composed == direction or along >= max(_NEAR, abs(aside)))

    def at(self, index: int, side: str) -> bool:
        """Whether an object, or the whole group, is on this side of the picture."""
        if self.scene.arrangement == "single":
            return self.scene.relation == side
        centres = self._centres if self.group else [self._centres[index]]
        x, y = (sum(coordinates) / len(centres) / IMAGE_SIZE for coordinates in zip(*centres, strict=True))
        near = {"left": 0.45 - x, "right": x - 0.55, "top": 0.45 - y, "bottom": y - 0.55}
        return bool(near[side] > 0 if side in near else max(abs(x - 0.5), abs(y - 0.5)) < 1 / 6)

    def line(self, line: str) -> bool:
        """Whether the objects form a row or column."""
        return {"left": "row", "above": "column"}.get(self.scene.relation, self.scene.relation) == line

    def meant(self, reading: Reading) -> list[int | None]:
        """The object that each mention stands for, or None. Only in a group may mentions share an object."""
        mentions = reading.mentions
        if self.group:
            return [0 if mention.agreement(self.items[0]) else None for mention in mentions]
        # agreements[item][mention]
        agreements = [[mention.agreement(item) for mention in mentions] for item in self.items]
        in_relations = sorted({index for subject, _, obj in reading.relations for index in (subject, obj)})
        candidates: list[list[int | None]] = []  # of each item, the mentions that may stand for it
        for of_item in agreements:
            agreeing = [index for index in range(len(mentions)) if of_item[index]]
            agreeing.sort(key=of_item.__getitem__, reverse=True)
            related = [index for index in in_relations if of_item[index]]
            candidates.append([None, *{*agreeing[: len(self.items)], *related[:_RELATED]}])
        n_true = Counter[tuple[int, int, int, int]]()  # relations by mention and item of the subject and of the object
        for subject, predicate, obj in reading.relations:
            for subject_item, object_item in product(range(len(self.items)), repeat=2):
                n_true[subject, subject_item, obj, object_item] += self.related(subject_item, predicate, object_item)

        def cost(assignment: Sequence[int | None]) -> tuple[int, list[tuple[int, int]]]:
            """Lower for more agreements and true relations, with the pairs (mention, item) to break ties."""
            pairs = [(mention, item) for item, mention in enumerate(assignment) if mention is not None]
            weight = sum(agreements[item][mention] for mention, item in pairs)
            weight += sum(n_true[*first, *second] for first, second in product(pairs, repeat=2))
            return -weight, sorted(pairs)

        def is_injective(assignment: Sequence[int | None]) -> bool:
            assigned = [mention for mention in assignment if mention is not None]
            return len(set(assigned)) == len(assigned)

        _, best_pairs = min(map(cost, filter(is_injective, product(*candidates))))
        item_of = dict(best_pairs)
        return [item_of.get(index) for index in range(len(mentions))]

    def holds(self, meant: Sequence[int | None], relation: tuple[int, str, int]) -> bool:
        """Whether a relation of mentions is true of the objects that they stand for."""
        subject = meant[relation[0]]
        obj = meant[relation[2]]
        return subject is not None and obj is not None and self.related(subject, relation[1], obj)


def judged(reading: Reading, scene: Scene) -> Array:
    """Counts by kind (6, 4): stated facts, true stated facts, facts of the picture, stated facts of the picture."""
    judge = _Judge(scene)
    items = scene.items
    single = scene.arrangement == "single"
    n_objects = 1 if judge.group else len(items)
    meant = judge.meant(reading)
    # By kind, whether each stated fact is true, and the index of the picture's fact that it states, or None.
    facts: dict[str, list[tuple[bool, int | None]]] = {kind: [] for kind in KINDS}
    for mention, object_index in zip(reading.mentions, meant, strict=True):
        is_matched = object_index is not None
        matched_index = object_index or 0
        item = items[matched_index]
        n_same_shape = sum(obj.shape == item.shape for obj in items)
        # A side of the picture is a fact of the picture only if there is a single object.
        side_of = 0 if single else None
        facts["object"].append((is_matched and mention.shape == item.shape, matched_index))
        facts["colour"] += [(is_matched and colour == item.colour, matched_index) for colour in mention.colours]
        facts["size"] += [(is_matched and large == item.large, matched_index) for large in mention.sizes]
        facts["count"] += [(is_matched and count == n_same_shape, 0) for count in mention.numbers]
        facts["relation"] += [(is_matched and judge.at(matched_index, side), side_of) for side in mention.sides]
        facts["relation"] += [(is_matched and n_same_shape > 1 and judge.line(line), 0) for line in mention.lines]
    if judge.group and not facts["count"] and any(object_index is not None for object_index in meant):
        n_named = sum(true for true, _ in facts["object"]) or sum(object_index is not None for object_index in meant)
        facts["count"].append((n_named == len(items), 0))
    for subject, predicate, obj in reading.relations:
        true = judge.holds(meant, (subject, predicate, obj))
        facts["relation"].append((true, int(2 in (meant[subject], meant[obj]))))
    for word in reading.backgrounds:
        of_texture = word in TEXTURES
        facts["background"].append((word == (scene.texture if of_texture else scene.background), int(of_texture)))
    n_facts = {
        **dict.fromkeys(("object", "colour", "size"), n_objects),
        "count": int(judge.group),
        "relation": 1 + (scene.third is not None),
        "background": 1 + (scene.texture != "plain"),
    }
    rows = []
    for kind, of_kind in facts.items():
        stated = {fact_index for true, fact_index in of_kind if true and fact_index is not None}
        rows.append([len(of_kind), sum(true for true, _ in of_kind), n_facts[kind], min(len(stated), n_facts[kind])])
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
    """Words for colours, numbers and relations, by kind and meaning."""
    kinds = {"colour": _COLOUR_OF, "count": dict(zip(_COUNTED, _COUNTED, strict=True)), "relation": _RELATION_OF}
    return ObjectWords(
        {
            tuple(text.split()): f"{kind} {meaning}"
            for kind, meanings in kinds.items()
            for text, meaning in meanings.items()
        }
    )


@cache
def words_of(caption: str) -> frozenset[str]:
    """The facts that a caption of a photograph states, as kind and meaning: objects, colours, numbers, relations."""
    words = _WORD.findall(caption.lower())
    return frozenset((*(f"object {name}" for name in coco_words().among(words)), *_closed_words().among(words)))


Expected = tuple[frozenset[str], frozenset[str]]
"""The facts of an image that count as true, in any reference or known, and those in at least half of the references."""


def expected_words(
    references: Mapping[int, Sequence[str]], objects: Mapping[int, Iterable[str]]
) -> dict[int, Expected]:
    """The `Expected` facts of photographs; `objects` are COCO's annotated objects, where known."""
    expected = {}
    for image_id, texts in references.items():
        counts = Counter(word for text in texts for word in words_of(text))
        known_objects = {f"object {name}" for name in objects.get(image_id, ())}
        frequent = (word for word, count in counts.items() if 2 * count >= len(texts))
        expected[image_id] = frozenset({*counts, *known_objects}), frozenset(frequent)
    return expected


def judged_words(stated: frozenset[str], expected: Expected) -> list[list[int]]:
    """Counts by kind (6, 4) as `judged`, where facts in half of the references are those of the picture."""
    true, frequent = expected
    counts = {kind: [0, 0, 0, 0] for kind in KINDS}
    for column, words, reference_words in ((0, stated, true), (2, frequent, stated)):
        for word in words:
            of_kind = counts[word.partition(" ")[0]]
            of_kind[column] += 1
            of_kind[column + 1] += word in reference_words
    return list(counts.values())


def _fact_scores(totals: Array) -> Array:
    """Precision, recall and F of each kind, from sums (..., 24) of the counts of `judged`."""
    return fact_scores(totals.reshape(*totals.shape[:-1], len(KINDS), 4)).reshape(*totals.shape[:-1], -1)


def measure_facts(
    split: str, captions: Mapping[int, str], scenes: Mapping[int, Scene], domains: Mapping[int, str]
) -> tuple[SplitResult, Counter[str]]:
    """All measures of a split and its domains, and the number of occurrences of words that no rule knows."""
    readings = {image_id: read_caption(caption) for image_id, caption in captions.items()}
    values = np.array([judged(reading, scenes[image_id]) for image_id, reading in readings.items()])
    fully_parsed = [not reading.unknown for reading in readings.values()]
    unknown = Counter(word for reading in readings.values() for word in reading.unknown)
    return _result(split, captions, values, domains, KINDS, (PARSED, fully_parsed, "")), unknown


def measure_words(
    split: str, captions: Mapping[int, str], expected: Mapping[int, Expected], domains: Mapping[int, str], by: str
) -> SplitResult:
    """As `measure_facts`, for photographs; `by` describes what captions are compared with."""
    stated = {image_id: words_of(caption) for image_id, caption in captions.items()}
    values = np.array([judged_words(words, expected[image_id]) for image_id, words in stated.items()], np.float64)
    return _result(split, captions, values, domains, WORD_KINDS, (WORDS, list(map(bool, stated.values())), by))


def _result(
    split: str,
    captions: Mapping[int, str],
    values: Array,
    domains: Mapping[int, str],
    kinds: Sequence[str],
    share: tuple[str, Sequence[bool], str],
) -> SplitResult:
    """Scores and counts of a split.

    `share` adds a score: its name, whether a condition holds for each caption, and a unit.
    """
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
    bounds = bootstrap([statistics], resamples=RESAMPLES)
    corpus_scores = statistics.corpus()
    reasons: dict[str, str] = {}
    for kind, totals in zip(KINDS, values.sum(axis=0), strict=True):
        reasons |= {fact_metric(measure, kind): why for measure, why in undefined(totals, kind).items()}
    return {
        metric: Quantity(None, reasons[metric]) if metric in reasons else Quantity(value, None, "", *bounds[metric])
        for metric, value in corpus_scores.items()
        if depends_on(metric) in kinds
    }
