"""Facts of scenes: against references, which are true by construction, and against captions of models read by hand."""

import csv
from pathlib import Path

import numpy as np
import pytest

from harness.data.scenes.dataset import ScenesConfig, compose_scenes, draw_scene
from harness.data.scenes.layout import Item, Scene
from harness.metrics.facts import (
    expected_words,
    judged,
    judged_words,
    measure_facts,
    measure_words,
    read_caption,
    words_of,
)
from results.runs.facts import (
    KINDS,
    MEASURES,
    MOST,
    PARSED,
    WORD_KINDS,
    WORDS,
    fact_influences,
    fact_scores,
    packed,
    unpacked,
)

LABELLED = Path(__file__).parents[2] / "fixtures" / "scenes" / "labelled_captions.csv"
"""Of each caption by kind: how many facts it states and, after that digit, how many of these are true of the image."""


def item(shape: str, colour: str, x: int, y: int, *, large: bool = False) -> Item:
    return Item(shape, colour, large, x - 10, y - 10, 20)


PAIR = Scene("pair", "left", None, (item("cup", "red", 20, 50), item("fish", "blue", 70, 50)), "white", "striped")
GROUP = Scene("group", "column", None, (item("cup", "red", 40, 20), item("cup", "red", 44, 70)), "black", "plain")
TRIO = Scene("trio", "above", "left", (*PAIR.items, item("star", "pink", 20, 20)), "grey", "plain")
SINGLE = Scene("single", "top", None, (item("tree", "green", 48, 12, large=True),), "beige", "dotted")


def test_references_are_true_and_read_whole() -> None:
    totals, whole, captions = np.zeros((len(KINDS), 4)), 0, 0
    for split, domain in (("test", None), ("nocaps", "near-domain"), ("nocaps", "out-domain")):
        for number in range(60):
            drawn = draw_scene(ScenesConfig(), split, domain, number)
            for caption in drawn.captions:
                reading = read_caption(caption)
                totals += judged(reading, drawn.scene)
                whole, captions = whole + (not reading.unknown), captions + 1
    assert whole >= 0.98 * captions
    assert (totals[:, 1] >= 0.99 * totals[:, 0]).all()
    assert (totals[:, 0] > 0).all()


def test_captions_of_models_are_judged_as_a_reader_judges_them() -> None:
    scenes = list(compose_scenes(ScenesConfig()))
    with LABELLED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    agreed, stated = np.zeros(len(KINDS)), np.zeros(len(KINDS))
    for row in rows:
        found = judged(read_caption(row["caption"]), scenes[int(row["image_id"])])[:, :2].astype(int)
        for place, kind in enumerate(KINDS):
            label = [int(digit) for digit in row[kind]]
            stated[place] += label[0] > 0
            agreed[place] += label[0] > 0 and found[place].tolist() == label
            assert label[0] or not found[place].any(), row["caption"]
    assert len(rows) == 300
    assert (agreed >= 0.98 * stated).all(), dict(zip(KINDS, agreed / stated, strict=True))


@pytest.mark.parametrize(
    ("scene", "caption", "kind", "expected"),
    [
        (PAIR, "a red cup next to a blue fish", "relation", (1, 1, 1, 1)),
        (PAIR, "a blue fish to the right of a red cup", "relation", (1, 1, 1, 1)),
        (PAIR, "a red cup on the left and a blue fish on the right", "relation", (1, 1, 1, 1)),
        (PAIR, "a red cup on the left", "relation", (1, 1, 1, 0)),
        (PAIR, "a red moon beside a blue fish", "relation", (1, 1, 1, 1)),
        (PAIR, "a pink moon beside a blue fish", "relation", (1, 0, 1, 0)),
        (PAIR, "a blue cup and a red fish", "colour", (2, 0, 2, 0)),
        (PAIR, "a red cup a red cup and a fish", "object", (3, 2, 2, 2)),
        (PAIR, "a violet mug on a striped gray background", "background", (2, 1, 2, 1)),
        (PAIR, "two red cups", "count", (1, 0, 0, 0)),
        (GROUP, "two red mugs above each other", "count", (1, 1, 1, 1)),
        (GROUP, "two red mugs above each other", "relation", (1, 1, 1, 1)),
        (GROUP, "a red cup above a red cup", "count", (1, 1, 1, 1)),
        (GROUP, "a red cup on a black background", "count", (1, 0, 1, 0)),
        (GROUP, "three red cups", "object", (1, 1, 1, 1)),
        (TRIO, "a red cup above a blue fish with a pink star on the left", "relation", (2, 2, 2, 2)),
        (SINGLE, "a big green tree at the bottom", "relation", (1, 0, 1, 0)),
        (SINGLE, "a small tree", "size", (1, 0, 1, 0)),
        pytest.param(TRIO, "a red cup above " * 1200, "object", (1200, 1, 3, 1), id="a caption without an end"),
    ],
)
def test_kinds(scene: Scene, caption: str, kind: str, expected: tuple[int, ...]) -> None:
    assert tuple(judged(read_caption(caption), scene)[KINDS.index(kind)]) == expected


def test_what_a_split_gets() -> None:
    captions = {3: "a red cup beside a blue fish", 5: "a dragon near two red cups", 8: "a tree"}
    found, unknown = measure_facts("test", captions, {3: PAIR, 5: GROUP, 8: SINGLE}, {3: "near", 5: "near"})
    scores = found.scores["overall"]
    assert unknown == {"a": 1, "dragon": 1, "near": 1}
    assert scores[PARSED].value == pytest.approx(2 / 3)
    assert scores["facts-precision (object)"].value == scores["facts-F (object)"].value == 1.0
    assert scores["facts-recall (colour)"].value == pytest.approx(3 / 4)
    assert scores["facts-precision (size)"].value is None
    assert scores["facts-F (size)"].value == 0.0
    assert found.scores["near"]["facts-recall (count)"].value == 1.0
    counts = {image: unpacked(np.array(value)).tolist() for image, value in found.per_image["facts (object)"].items()}
    assert counts == {3: [2, 2, 2, 2], 5: [1, 1, 1, 1], 8: [1, 1, 1, 1]}


def test_influences_have_the_score_as_their_mean() -> None:
    generator = np.random.default_rng(1)
    counts = generator.integers(0, 4, (40, 4)).astype(np.float64)
    counts[:, 1], counts[:, 3] = np.minimum(counts[:, 1], counts[:, 0]), np.minimum(counts[:, 3], counts[:, 2])
    numbers = packed(counts)
    assert (unpacked(numbers) == counts).all()
    assert unpacked(packed(np.full(4, 99.0))).tolist() == [MOST] * 4
    means = [fact_influences(numbers, f"facts-{measure}").mean() for measure in MEASURES]
    assert means == pytest.approx(fact_scores(counts.sum(axis=0)).tolist())


DOGS = ("Two dogs on a brown couch.", "A dog next to a brown dog", "two brown puppies", "a cat under a red umbrella")


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "A red dog and two cats on a couch.",
            {"object": (3, 3, 1, 1), "colour": (1, 1, 1, 0), "relation": (1, 1, 0, 0)},
        ),
        ("brown dogs to the left of a dog", {"object": (1, 1, 1, 1), "colour": (1, 1, 1, 1), "relation": (1, 0, 0, 0)}),
        ("three blue birds", {"object": (1, 0, 1, 0), "colour": (1, 0, 1, 0), "count": (1, 0, 1, 0)}),
        ("two large dogs beneath a sky", {"count": (1, 1, 1, 1), "relation": (1, 1, 0, 0), "size": (0, 0, 0, 0)}),
    ],
)
def test_words_are_right_where_a_reference_has_them_and_left_out_where_half_have(
    caption: str, expected: dict[str, tuple[int, ...]]
) -> None:
    counts = judged_words(words_of(caption), expected_words({7: DOGS}, {})[7])
    assert {kind: tuple(counts[KINDS.index(kind)]) for kind in expected} == expected


def test_objects_that_are_known_to_be_there_are_right_but_not_asked_for() -> None:
    expected = expected_words({7: DOGS}, {7: ["bird"]})[7]
    assert tuple(judged_words(words_of("a bird"), expected)[KINDS.index("object")]) == (1, 1, 1, 0)


def test_what_a_split_of_photographs_gets() -> None:
    captions = {7: "A red dog and two cats on a couch.", 9: "nothing to see"}
    expected = expected_words({7: DOGS, 9: ("a bird", "a bird and a dog")}, {})
    found = measure_words("test", captions, expected, {9: "far"}, "references")
    scores = found.scores["overall"]
    assert (scores[WORDS].value, scores[WORDS].unit) == (0.5, "references")
    assert scores["facts-precision (object)"].value == 1.0
    assert scores["facts-recall (object)"].value == pytest.approx(1 / 3)  # a dog of two dogs and a bird
    assert scores["facts-precision (colour)"].value == 1.0
    assert scores["facts-recall (colour)"].value == 0.0
    assert "no picture" in (scores["facts-recall (relation)"].reason or "")
    assert "facts-F (size)" not in scores
    assert "no caption" in (found.scores["far"]["facts-precision (object)"].reason or "")
    assert list(found.per_image) == [f"facts ({kind})" for kind in KINDS if kind in WORD_KINDS]
