"""`bench evaluate --more`: hallucinated objects, sets of captions and model scores from files to files."""

import json

import pytest

from tests.harness.conftest import bench
from tests.harness.metrics.tiny_models import write_bert, write_clip


@pytest.fixture
def files(pictures, tmp_path):
    """Two images with references, and a caption of each; the second names a dog that is not there."""
    images = [{"id": number, "file_name": picture.name} for number, picture in enumerate(pictures, 1)]
    captions = {1: "a red square", 2: "a dog on a bench"}
    annotations = [{"image_id": 1, "caption": "the red square"}, {"image_id": 2, "caption": "a wooden bench"}]
    references, predictions = tmp_path / "references.json", tmp_path / "predictions.json"
    references.write_text(json.dumps({"images": images, "annotations": annotations}))
    predictions.write_text(json.dumps([{"image_id": i, "caption": text} for i, text in captions.items()]))
    return predictions, "--references", references, "--no-meteor", "--out", tmp_path / "scores.json"


def scored(files, *options, code=0):
    result = bench("evaluate", *files, *options)
    assert result.exit_code == code, result.output
    return json.loads(files[-1].read_text()), result.output


def test_without_models_and_files_each_metric_says_what_to_type(files):
    scores, output = scored(files, "--more")
    reasons = scores["more_reasons"]
    assert set(reasons) == {"self-CIDEr", "CHAIR-i", "CHAIR-s", "CLIPScore", "RefCLIPScore", "BERTScore"}
    assert all(scores["more"][name] is None for name in reasons)
    for option, name in (("--instances", "CHAIR-i"), ("--clip", "CLIPScore"), ("--bert", "BERTScore")):
        assert option in reasons[name]
        assert f"{name}: {reasons[name]}" in output


def test_objects_models_and_sets_are_named_with_their_scores(files, tmp_path, pictures):
    content = {
        "images": [{"id": 1}, {"id": 2}],
        "categories": [{"id": 18, "name": "dog"}],
        "annotations": [{"image_id": 1, "category_id": 18}],
    }
    instances, sets = tmp_path / "instances_toy.json", tmp_path / "sets.json"
    instances.write_text(json.dumps(content))
    several = [{"image_id": i, "caption": text} for i in (1, 2) for text in ("a red square", "the wooden bench")]
    sets.write_text(json.dumps(several))
    scores, _ = scored(
        files, "--more", "--instances", instances, "--sets", sets, "--images", pictures[0].parent,
        "--clip", write_clip(tmp_path / "my-clip"), "--bert", write_bert(tmp_path / "my-bert"),
    )  # fmt: skip
    assert scores["more_reasons"] == {}
    by_start = {name.partition("#")[0].partition(", ")[0]: value for name, value in scores["more"].items()}
    assert by_start["CHAIR-i (objects:instances_toy"] == 1 / 2  # a dog and a bench are named, which a reference names
    assert by_start["CHAIR-s (objects:instances_toy"] == 1 / 2
    assert by_start["self-CIDEr (captions:2"] == pytest.approx(1)
    assert {"CLIPScore (clip:my-clip", "RefCLIPScore (clip:my-clip", "BERTScore (bert:my-bert"} <= by_start.keys()
    assert all(0 <= value <= 2.5 for name, value in by_start.items() if "Score" in name)
    assert set(scores["more_per_image"]) == {"caption_words", *(name for name in scores["more"] if "(" in name)} - {
        name for name in scores["more"] if name.startswith("CHAIR-i")
    }


def test_options_of_more_metrics_need_them(files, tmp_path):
    result = bench("evaluate", *files, "--clip", tmp_path)
    assert "--clip: read by --more alone" in str(result.exception)
    result = bench("evaluate", *files, "--more", "--clip", "nowhere")
    assert "there is no such folder" in str(result.exception)
    scores, _ = scored(files, "--more", "--clip", "org/name@0123abc", "--images", tmp_path, code=1)
    assert "bench prefetch model hf:org/name@0123abc" in scores["more_reasons"]["CLIPScore (clip:org/name@0123abc)"]


def test_what_was_asked_for_and_not_measured_is_a_finding(files, tmp_path):
    (tmp_path / "no-model").mkdir()
    for option, name in (("--clip", "CLIPScore (clip:no-model)"), ("--bert", "BERTScore (bert:no-model)")):
        scores, _ = scored(files, "--more", option, tmp_path / "no-model", "--images", tmp_path, code=1)
        assert scores["more"][name] is None
        assert option in scores["more_reasons"][name]
    (tmp_path / "one.json").write_text(json.dumps([{"image_id": i, "caption": "a dog"} for i in (1, 2)]))
    scored(files, "--more", "--sets", tmp_path / "one.json", code=1)


def test_what_scenes_show_is_known_without_a_file(draw_scenes, tmp_path):
    folder = draw_scenes(train=1, val=1, test=4)
    content = json.loads((folder / "dataset_scenes.json").read_text())
    test = [image for image in content["images"] if image["split"] == "test"]
    predictions, out = tmp_path / "predictions.json", tmp_path / "scores.json"
    said = [{"image_id": image["imgid"], "caption": image["sentences"][0]["raw"]} for image in test]
    said[0]["caption"] += " beside a hexagon"  # no seen object
    predictions.write_text(json.dumps(said))
    where = ("--references", folder / "dataset_scenes.json", "--no-meteor", "--out", out)
    scores, output = scored((predictions, *where), "--more")
    assert scores["more"]["CHAIR-s (objects:scenes)"] == 1 / 4
    assert "CHAIR-i, CHAIR-s by objects:scenes" in output
