"""CHAIR: the words that name COCO's objects, what images show, and scores against numbers worked out by hand."""

import json

import pytest

from harness.data.scenes.dataset import ScenesConfig, draw_scene, planned, prepare_scenes
from harness.metrics.chair import KnownObjects, chair, coco_words, objects_of_coco, objects_of_scenes
from harness.metrics.more.measure import measure_hallucination
from harness.utils.errors import BenchError


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
    assert (found.value, found.reason) == (None, "1 image that toy does not list (1); --instances may be repeated")
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
    for damage in ({"annotations": [{"image_id": 3, "category_id": 17}]}, {"categories": [{"id": 17, "name": "axe"}]}):
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
    content["images"][0]["boxes"] = []
    file.write_text(json.dumps(content))
    with pytest.raises(BenchError, match="changed after it was generated"):
        objects_of_scenes(file)
    file.write_text(json.dumps({"images": []}))
    assert objects_of_scenes(file) is None
