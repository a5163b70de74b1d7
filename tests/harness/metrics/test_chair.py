"""Objects that captions make up, and how diverse captions are: against numbers worked out by hand."""

import json
import math

import pytest

from harness.data.scenes.dataset import ScenesConfig, draw_scene, planned, prepare_scenes
from harness.metrics.chair import KnownObjects, chair, coco_words, objects_of_coco, objects_of_scenes
from harness.metrics.more.diversity import ONE_CAPTION, measure_diversity, measure_self_cider
from harness.metrics.more.measure import measure_hallucination
from harness.metrics.ptb import tokenize_ptb
from harness.utils.errors import BenchError
from results.records import Quantity


def named(caption):
    return coco_words().mentioned([caption])[0]


def test_all_categories_of_coco_are_named_by_their_names():
    assert len(coco_words().categories) == 80
    for name in coco_words().categories - {"orange"}:  # a colour, more often
        assert named(f"a photo of a {name} outside") == [name]


@pytest.mark.parametrize(
    ("caption", "objects"),
    [
        ("Two men ride bikes.", ["person", "bicycle"]),
        ("a man eats a hot dog beside two dogs", ["person", "hot dog", "dog"]),
        ("A teddy bear, a bear and teddy bears", ["teddy bear", "bear", "teddy bear"]),
        ("a baby cow near a passenger train on the train tracks", ["cow", "train"]),
        ("a baby holding an adult elephant's trunk", ["person", "elephant"]),
        ("a double-decker bus at a bus stop", ["bus"]),
        ("an orange cat on a wooden home plate", ["cat"]),
        ("sliced oranges, knives and a pair of scissors", ["orange", "knife", "scissors"]),
        ("the street at night", []),
    ],
)
def test_the_longest_name_wins_and_plurals_count(caption, objects):
    assert named(caption) == objects


def test_scores_by_hand():
    """Mentions: cat, dog* | dog, dog, car* | none | bus: two of six are not shown, in two of four captions."""
    shown = {1: frozenset({"cat"}), 2: frozenset(), 3: frozenset({"kite"}), 4: frozenset()}
    references = {1: ["a pet"], 2: ["The dog sleeps."], 3: ["sky"], 4: ["two buses"]}
    captions = {1: "a cat and a dog", 2: "a dog, a dog and a car", 3: "the blue sky", 4: "a bus"}
    objects = KnownObjects(coco_words(), shown, "toy", with_references=True)
    assert chair(captions, references, objects).corpus() == {"CHAIR-i": pytest.approx(2 / 6), "CHAIR-s": 0.5}
    found = measure_hallucination(captions, references, objects)
    assert found.per_image["CHAIR-s (objects:toy)"] == {1: 1.0, 2: 1.0, 3: 0.0, 4: 0.0}
    bounded = found.values["CHAIR-i (objects:toy)"]
    assert 0 <= bounded.low < 2 / 6 < bounded.high <= 1
    # Without the references the dogs and the bus are not shown either.
    alone = chair(captions, references, KnownObjects(coco_words(), shown, "toy", with_references=False))
    assert alone.corpus() == {"CHAIR-i": pytest.approx(5 / 6), "CHAIR-s": 0.75}


def test_what_is_unknown_is_null_with_its_reason():
    captions, references = {1: "a cat", 2: "grass"}, {1: ["x"], 2: ["y"]}
    assert "--instances" in measure_hallucination(captions, references, None).values["CHAIR-i"].reason
    objects = KnownObjects(coco_words(), {2: frozenset()}, "toy", with_references=False)
    found = measure_hallucination(captions, references, objects).values["CHAIR-s (objects:toy)"]
    assert found.value is None
    assert "--instances" in (found.reason or "")
    found = measure_hallucination({2: "grass"}, references, objects).values
    assert (found["CHAIR-i (objects:toy)"].value, found["CHAIR-s (objects:toy)"].value) == (None, 0.0)


def test_objects_of_cocos_instances(tmp_path):
    content = {
        "images": [{"id": 1}, {"id": 2}],
        "categories": [{"id": 17, "name": "cat"}, {"id": 58, "name": "hot dog"}],
        "annotations": [{"image_id": 1, "category_id": 17}, {"image_id": 1, "category_id": 58}],
    }
    path = tmp_path / "instances_val2014.json"
    path.write_text(json.dumps(content))
    objects = objects_of_coco([path])
    assert objects.by_image == {1: {"cat", "hot dog"}, 2: frozenset()}
    assert objects.label.startswith("instances_val2014#")
    assert objects.shown({2: ["a dog", "two birds"]}) == {2: {"dog", "bird"}}
    faults = [{"annotations": [{"image_id": image_id, "category_id": 17}]} for image_id in (3, [1])]
    for damage in (*faults, {"categories": [{"id": 17, "name": "axe"}]}):
        path.write_text(json.dumps({**content, "annotations": [], **damage}))
        with pytest.raises(BenchError, match="instances_val2014"):
            objects_of_coco([path])


def test_objects_of_scenes_are_those_drawn(tmp_path):
    config = ScenesConfig(train=6, val=1, test=4, nocaps_per_domain=4)
    file = prepare_scenes(tmp_path, config) / "dataset_scenes.json"
    objects = objects_of_scenes(file)
    for image_id, place in enumerate(planned(config)):
        drawn = draw_scene(config, *place)
        assert objects.by_image[image_id] == {item.shape for item in drawn.scene.items}
        named = objects.words.mentioned(drawn.captions)
        assert all(set(each) <= objects.by_image[image_id] for each in named)
        assert any(set(each) == objects.by_image[image_id] for each in named)
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "images": content["images"][1:]}))
    assert objects_of_scenes(file) == objects
    content["images"][0]["boxes"] = []
    file.write_text(json.dumps(content))
    with pytest.raises(BenchError, match="changed after it was generated"):
        objects_of_scenes(file)
    file.write_text(json.dumps({"images": []}))
    assert objects_of_scenes(file) is None


def diversity_of(*captions: str) -> dict[str, Quantity]:
    return measure_diversity(dict(enumerate(captions))).values


def test_words_and_pairs_are_counted_over_all_captions() -> None:
    found = {name: cost.value for name, cost in diversity_of("A dog runs.", "a dog, a cat", "Dog").items()}
    # Words: a dog runs | a dog a cat | dog. Pairs: a-dog dog-runs | a-dog dog-a a-cat.
    assert found == {
        "caption_words": pytest.approx(8 / 3),
        "caption_words_sd": pytest.approx((42 / 27) ** 0.5),  # of 3, 4 and 1
        "distinct-1": pytest.approx(4 / 8),
        "distinct-2": pytest.approx(4 / 5),
        "vocabulary_used": 4.0,
    }


def test_what_has_no_n_gram_is_null_with_its_reason() -> None:
    found = diversity_of("", "dog")
    assert (found["caption_words"].value, found["distinct-1"].value) == (0.5, 1.0)
    assert (found["distinct-2"].value, found["distinct-2"].reason) == (None, "no caption has a pair of words")
    assert {each.value for each in diversity_of().values()} == {None}


REFERENCES = {1: ["X y.", "x"], 2: ["z w"]}


def measure(sets):
    [(name, quantity)] = measure_self_cider(sets, REFERENCES, tokenize_ptb).values.items()
    return name, quantity


def test_two_captions_by_hand():
    """Every n-gram occurs with one image of two, so that weights are equal.

    "x y" and "x z": cosine 1/2 of words, 0 of pairs, none longer. With themselves 1, 1, 0, 0. The matrix has 1/2 on its
    diagonal and 1/8 beside it: eigenvalues 5/8 and 3/8.
    """
    ratio = math.sqrt(5) / (math.sqrt(5) + math.sqrt(3))
    name, found = measure({1: ["x y", "x z"]})
    assert found.value == pytest.approx(-math.log2(ratio))
    assert name == "self-CIDEr (captions:2, df:references)"


def test_the_mean_is_over_images_between_none_and_all_different():
    _, found = measure({1: ["x y", "x y"], 2: ["x y", "z w"]})
    assert found.value == pytest.approx((0 + 1) / 2)
    assert (found.low, found.high) == (pytest.approx(0), pytest.approx(1))


def test_one_caption_of_each_image_is_null():
    assert measure({1: ["x y"], 2: ["z", "w"]}) == ("self-CIDEr", Quantity(None, ONE_CAPTION))
    assert measure({}) == ("self-CIDEr", Quantity(None, ONE_CAPTION))
    [alone] = measure_self_cider({1: ["x", "y"]}, {1: ["x"]}, tokenize_ptb).values.values()
    assert alone.value is None
    assert "one image alone" in alone.reason
