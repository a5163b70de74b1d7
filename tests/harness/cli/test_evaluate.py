"""`bench evaluate`, with `--more` too, and `bench export submission` from files to files."""

import csv
import json
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest

import captionbench
import harness.cli.evaluate as evaluate_module
import results
from harness.metrics.submission import SPLITS
from harness.utils.errors import BenchError
from results import DatasetRecord, Outcome, Quantity, RunSpec, SplitResult, Store, StoreError
from results.metrics import metric_names
from tests.harness.conftest import bench, bench_ok
from tests.harness.metrics.tiny_models import write_bert, write_clip

CAPTIONS = {
    7: ["A dog runs.", "A brown dog, running"],
    3: ["Two cats\u2028asleep.", "cats ||| sleep"],
    5: ["A red kite.", "kite"],
}


@pytest.fixture
def files(tmp_path):
    """References with domains, and predictions, as files."""
    images = [{"id": i, "domain": "out-domain" if i == 5 else "in-domain"} for i in CAPTIONS]
    annotations = [{"image_id": i, "caption": text} for i, texts in CAPTIONS.items() for text in texts]
    references, predictions = tmp_path / "refs.json", tmp_path / "predictions.json"
    references.write_text(json.dumps({"images": images, "annotations": annotations}))
    write(predictions, {7: "a dog runs", 3: "two cats", 5: "a kite\x00\r"})
    return predictions, references


def fields(signature):
    """The fields of a signature as it is written."""
    return dict(part.split(":", 1) for part in signature.split("|") if ":" in part)


def write(path, captions):
    path.write_text(json.dumps([{"image_id": i, "caption": caption} for i, caption in captions.items()]))


def test_scores_go_to_the_terminal_and_to_a_file(files, tmp_path):
    predictions, references = files
    out = tmp_path / "scores.json"
    result = bench_ok("evaluate", predictions, "--references", references, "--no-meteor", "--out", out)
    scores = json.loads(out.read_text())
    assert set(scores) >= {"signature", "scores", "n", "domains", "per_image"}
    assert set(scores["scores"]) == set(metric_names())
    assert scores["n"] == 3
    assert {domain: found["n"] for domain, found in scores["domains"].items()} == {"in-domain": 2, "out-domain": 1}
    assert scores["scores"]["METEOR"] is None
    assert scores["scores"]["SPICE"] is None
    assert "not requested" in scores["reasons"]["METEOR"]
    assert set(scores["per_image"]["CIDEr-D"]) == {"7", "3", "5"}
    assert scores["intervals"]["CIDEr-D"][0] <= scores["scores"]["CIDEr-D"] <= scores["intervals"]["CIDEr-D"][1]
    assert scores["signature"] in result.stdout.replace("\n", "")
    assert fields(scores["signature"])["domains"] == "in-domain=2,out-domain=1"
    assert f"{100 * scores['scores']['BLEU-1']:.2f}" in result.stdout


def test_numbers_without_images_are_taken_by_position_where_somebody_says_so(files, tmp_path):
    predictions, references = files
    write(predictions, {5: "a kite", 7: "a dog runs", 3: "two cats"})
    numbers, out = tmp_path / "numbers.json", tmp_path / "scores.json"
    words = ("evaluate", predictions, "--references", references, "--no-meteor", "--out", out, "--force")
    numbers.write_text("[0.5, 0.7, 0.3]")
    assert "--by-position" in str(bench(*words, "--scores", f"P={numbers}").exception.hint)
    bench_ok(*words, "--scores", f"P={numbers}", "--by-position")
    assert json.loads(out.read_text())["per_image"]["P"] == {"5": 0.5, "7": 0.7, "3": 0.3}
    numbers.write_text('[{"image_id": 5, "P": 0.5}, {"image_id": 5, "P": 9.0}]')
    for scores, said in {
        f"P={numbers}": "more than one number",
        f"CIDEr-D (df:domain)={numbers}": "is not NAME=FILE",
    }.items():
        assert said in str(bench(*words, "--scores", scores).exception)
    cards = tmp_path / "cards.yaml"
    cards.write_text(json.dumps({predictions.name: {"name": "Ours", "scores": {"CIDEr-D": numbers.name}}}))
    refused = bench("evaluate", predictions, "--references", references, "--cards", cards)
    assert "CIDEr-D is computed here" in str(refused.exception)


def test_what_does_not_fit_is_refused_unless_allowed(files, tmp_path):
    predictions, references = files
    write(predictions, {7: "a dog runs", 3: "two cats", 8: "x"})
    result = bench("evaluate", predictions, "--references", references, "--no-meteor")
    assert "1 image missing (5); 1 image without references (8)" in str(result.exception)
    out = tmp_path / "scores.json"
    result = bench_ok(
        "evaluate", predictions, "--references", references, "--no-meteor", "--allow-subset", "--out", out
    )
    assert "left out: 1 image missing (5)" in result.stdout
    scores = json.loads(out.read_text())
    assert scores["n"] == 2
    assert fields(scores["signature"])["of"] == "3"


def test_subset_frequencies_change_domains_and_the_signature(files, tmp_path):
    out = tmp_path / "s.json"
    words = ("evaluate", files[0], "--references", files[1], "--no-meteor", "--force", "--domain-df")
    found = [(bench(*words, option, "--out", out), json.loads(out.read_text()))[1] for option in ("all", "subset")]
    assert found[0]["scores"] == found[1]["scores"]
    assert found[0]["domains"] != found[1]["domains"]
    assert [fields(each["signature"])["df"] for each in found] == ["all", "subset"]


def test_domain_frequencies_need_domains(files, tmp_path):
    plain = tmp_path / "plain.json"
    annotations = [{"image_id": number, "caption": "a dog"} for number in CAPTIONS]
    plain.write_text(json.dumps({"images": [{"id": number} for number in CAPTIONS], "annotations": annotations}))
    refused = bench("evaluate", files[0], "--references", plain, "--no-meteor", "--domain-df", "subset")
    assert "no image has a domain" in str(refused.exception)


@pytest.fixture
def splits_of_three(monkeypatch):
    for splits in SPLITS.values():
        for split in splits:
            monkeypatch.setitem(splits, split, 3)


def submission(what, server, references, folder, *options):
    words = ("--server", server, "--images", references, "--out", folder / "up", *options)
    return bench("export", "submission", what, *words)


@pytest.mark.usefixtures("splits_of_three")
def test_submission_of_a_file(files, tmp_path):
    predictions, references = files
    assert submission(predictions, "nocaps", references, tmp_path).exit_code == 0
    content = json.loads((tmp_path / "up" / "nocaps_test_captionbench.json").read_text())
    assert [entry["image_id"] for entry in content] == [7, 3, 5]
    assert "the same for the other split" in submission(predictions, "coco", references, tmp_path).output
    joined = submission(predictions, "coco", references, tmp_path, "--split", "val2014").output
    assert "each system needs a --name" in joined


@pytest.mark.usefixtures("splits_of_three")
def test_submission_of_a_stored_run(files, tmp_path):
    references, key = files[1], "mine-s0-1"
    scores = {"overall": {"CIDEr-D": Quantity(0.5)}}
    other = SplitResult("other", {11: "a cat", 5: "no"}, scores, {})
    test = SplitResult("test", {3: "a dog", 5: "two cats", 7: "a man\u2028rides"}, scores, {})
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("toy", "f" * 16, "/pictures", {"test": 3}, ()))
        store.plan([RunSpec(key, "mine", "model", 0, "controlled", "f" * 16, {}, {"beam": "3"})])
        store.finish(key, Outcome((other, test), {}, {}))
    assert submission(key, "nocaps", references, tmp_path, "-w", tmp_path).exit_code == 0
    content = json.loads((tmp_path / "up" / "nocaps_test_captionbench.json").read_text())
    assert {entry["image_id"]: entry["caption"] for entry in content} == {7: "a man rides", 3: "a dog", 5: "two cats"}
    for run, split, said in (
        ("nobody", test, "no run is named nobody"),
        ("mine", test, "mine is a model, but one run is exported"),
        (key, replace(test, captions={3: "a dog", 5: " ", 7: "x"}), "1 image with an empty caption (5)"),
        (key, replace(other, captions={11: "a cat"}), "no caption of any image"),
    ):
        with Store(tmp_path / "bench.sqlite") as store:
            store.finish(key, Outcome((split,), {}, {}))
        assert said in str(submission(run, "nocaps", references, tmp_path, "-w", tmp_path).exception)


@pytest.fixture
def pictured(pictures, tmp_path):
    """Two images with references, and a caption of each; the second names a dog that is not there."""
    images = [{"id": number, "file_name": picture.name} for number, picture in enumerate(pictures, 1)]
    captions = {1: "a red square", 2: "a dog on a bench"}
    annotations = [{"image_id": 1, "caption": "the red square"}, {"image_id": 2, "caption": "a wooden bench"}]
    references, predictions = tmp_path / "references.json", tmp_path / "predictions.json"
    references.write_text(json.dumps({"images": images, "annotations": annotations}))
    predictions.write_text(json.dumps([{"image_id": i, "caption": text} for i, text in captions.items()]))
    return predictions, "--references", references, "--no-meteor", "--force", "--out", tmp_path / "scores.json"


def scored(pictured, *options, code=0):
    result = bench("evaluate", *pictured, *options)
    assert result.exit_code == code, result.output
    return json.loads(pictured[-1].read_text()), result.stdout


def test_without_models_and_files_each_metric_says_what_to_type(pictured):
    scores, output = scored(pictured, "--more")
    reasons = scores["more_reasons"]
    assert set(reasons) == {"self-CIDEr", "CHAIR-i", "CHAIR-s", "CLIPScore", "RefCLIPScore", "BERTScore"}
    assert all(scores["more"][name] is None for name in reasons)
    for option, name in (("--instances", "CHAIR-i"), ("--clip", "CLIPScore"), ("--bert", "BERTScore")):
        assert option in reasons[name]
        assert f"{name}: {reasons[name]}" in output


def test_objects_models_and_sets_are_named_with_their_scores(pictured, tmp_path, pictures):
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
        pictured, "--more", "--instances", instances, "--sets", sets, "--images", pictures[0].parent,
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


def test_a_model_that_is_named_asks_for_its_metric(pictured, tmp_path):
    for more in ((), ("--more",)):  # which naming a model asks for, too
        result = bench("evaluate", *pictured, *more, "--clip", "nowhere")
        assert "there is no such folder" in str(result.exception)
    assert "--images" in str(bench("evaluate", *pictured[:3], "--images", tmp_path).exception)
    scores, _ = scored(pictured, "--more", "--clip", "org/name@0123abc", "--images", tmp_path, code=1)
    assert "bench prefetch model hf:org/name@0123abc" in scores["more_reasons"]["CLIPScore (clip:org/name@0123abc)"]


def test_what_was_asked_for_and_not_measured_is_a_finding(pictured, tmp_path):
    (tmp_path / "no-model").mkdir()
    for option, name in (("--clip", "CLIPScore (clip:no-model)"), ("--bert", "BERTScore (bert:no-model)")):
        scores, _ = scored(pictured, "--more", option, tmp_path / "no-model", "--images", tmp_path, code=1)
        assert scores["more"][name] is None
        assert option in scores["more_reasons"][name]
    (tmp_path / "one.json").write_text(json.dumps([{"image_id": i, "caption": "a dog"} for i in (1, 2)]))
    scored(pictured, "--more", "--sets", tmp_path / "one.json", code=1)


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


def test_a_report_is_a_workspace_that_other_commands_read(files, tmp_path):
    predictions, references = files
    ours, theirs, folder = tmp_path / "ours.json", tmp_path / "theirs.json", tmp_path / "comparison"
    write(ours, {7: "a dog runs", 3: "two cats", 5: "a red kite"})
    write(theirs, {7: "a cat", 3: "two cats asleep", 5: "a dog"})
    words = ("evaluate", "--references", references, "--report", folder)
    bench_ok(*words, ours, theirs)
    compared = json.loads(bench_ok("compare", "ours", "theirs", "-w", folder, "--format", "json").stdout)
    assert [pair["before"]["model"] for pair in compared["pairs"]] == ["ours"]
    exported = bench_ok("export", "leaderboard", "-w", folder, "--format", "csv").stdout
    assert {row["model"] for row in csv.DictReader(exported.splitlines())} == {"ours", "theirs"}
    bench_ok(*words, ours, predictions)
    with Store(folder / "bench.sqlite", read_only=True) as store:
        assert {store.spec(key).model for key in store.keys({"finished"})} == {"ours", "predictions"}, "as the report"


def test_a_report_never_replaces_runs_of_other_kinds(files, tmp_path):
    predictions, references = files
    folder = tmp_path / "comparison"
    words = ("evaluate", predictions, "--references", references, "--report", folder)
    bench_ok(*words)
    bench_ok("run", "--models", "human", "--data", references, "-w", folder)
    before = (folder / "bench.sqlite").read_bytes()
    refused = bench(*words)
    assert refused.exit_code != 0
    assert "human" in str(refused.exception)
    assert (folder / "bench.sqlite").read_bytes() == before


MANY = 40
"""Images of `series`: enough for a test over images."""


@pytest.fixture
def series(tmp_path):
    """References of 40 images, and captions that are good, worse in ten images, and wrong."""
    colours = ("red", "green", "blue", "brown")
    truth = {i: f"a {colours[i % 4]} ball beside {i} small cubes" for i in range(MANY)}
    references = tmp_path / "references.json"
    references.write_text(json.dumps({str(i): [text, f"{text} on a table"] for i, text in truth.items()}))
    paths = {name: tmp_path / f"{name}.json" for name in ("good", "worse", "wrong")}
    write(paths["good"], truth)
    write(paths["worse"], {i: "a dog" if i % 4 == 0 else text for i, text in truth.items()})
    write(paths["wrong"], dict.fromkeys(truth, "a dog in the rain"))
    return references, paths


def written(captions, references, out, *options):
    """What `bench evaluate --out` writes."""
    bench_ok("evaluate", captions, "--references", references, "--no-meteor", "--out", out, "--force", *options)
    return json.loads(out.read_text())


def against(captions, references, baseline, *options):
    return bench("evaluate", captions, "--references", references, "--no-meteor", "--baseline", baseline, *options)


def test_a_drop_fails_exactly_where_it_exceeds_its_limit(series, tmp_path):
    references, paths = series
    baseline, out = tmp_path / "scores.json", tmp_path / "now.json"
    before = written(paths["good"], references, baseline)
    after = written(paths["worse"], references, out)
    drop = {metric: 100 * (before["scores"][metric] - after["scores"][metric]) for metric in ("CIDEr-D", "BLEU-4")}
    assert drop["CIDEr-D"] > 1
    for metric, points in drop.items():
        for limit, code in ((points - 0.01, 1), (points, 0), (points + 0.01, 0)):
            result = against(paths["worse"], references, baseline, "--max-drop", f"{metric}={limit!r}")
            assert result.exit_code == code, (metric, limit, result.output)
    both = ("--max-drop", "CIDEr-D=1000", "--max-drop", "BLEU-4=0.1")
    assert against(paths["worse"], references, baseline, *both).exit_code == 1
    assert against(paths["worse"], references, baseline).exit_code == 0, "nothing has a limit"
    assert against(paths["good"], references, baseline, "--max-drop", "CIDEr-D=0").exit_code == 0


def test_changes_since_a_baseline_are_paired_and_written(series, tmp_path):
    references, paths = series
    baseline, out = tmp_path / "scores.json", tmp_path / "now.json"
    written(paths["good"], references, baseline)
    limits = ("--baseline", baseline, "--max-drop", "CIDEr-D=1000", "--max-drop", "BLEU-4=100")
    changes = {change["metric"]: change for change in written(paths["worse"], references, out, *limits)["changes"]}
    assert set(changes) == {"CIDEr-D", "BLEU-4"}, "those that have a limit are tested alone"
    compared = captionbench.evaluate(references, paths["good"], meteor=False).compare(out)
    for metric, change in changes.items():
        assert change["low"] < change["change"] < change["high"] < 0
        assert change["p"] < 0.05
        assert change["n"] == MANY
        assert change["smallest"] > 0
        assert change["change"] == pytest.approx(change["after"] - change["before"])
        assert change["change"] == pytest.approx(compared[metric].value)
    assert changes["CIDEr-D"]["max_drop_points"] == 1000


def test_a_set_of_images_that_cannot_show_a_drop_is_said(series, tmp_path):
    references, paths = series
    baseline = tmp_path / "scores.json"
    captions = json.loads(paths["good"].read_text())
    captions[3]["caption"], captions[7]["caption"] = captions[7]["caption"], captions[3]["caption"]
    paths["good"].write_text(json.dumps(captions))
    written(paths["worse"], references, baseline)
    flat = " ".join(against(paths["good"], references, baseline, "--max-drop", "CIDEr-D=0.01").stdout.split())
    assert f"{MANY} images cannot show a drop of 0.01: the smallest drop that they show is" in flat
    flat = against(paths["good"], references, baseline, "--max-drop", "CIDEr-D=900").stdout
    assert "cannot show" not in flat


def test_a_step_of_github_gets_a_summary(series, tmp_path, monkeypatch):
    references, paths = series
    baseline, summary = tmp_path / "scores.json", tmp_path / "summary.md"
    written(paths["good"], references, baseline)
    summary.write_text("of an earlier step\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    against(paths["worse"], references, baseline, "--max-drop", "CIDEr-D=1")
    lines = summary.read_text().splitlines()
    assert lines[0] == "of an earlier step"
    assert lines[1].startswith("### ❌")
    assert [line.split("|")[1].strip() for line in lines if line.startswith("| CIDEr-D")] == ["CIDEr-D"]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    refused = against(paths["worse"], references, baseline)
    assert isinstance(refused.exception, BenchError)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"tokenizer": "characters"}, "tok"),
        ({"limit": "7"}, "limit"),
    ],
)
def test_a_baseline_of_other_conditions_is_refused(series, tmp_path, change, field):
    references, paths = series
    baseline = tmp_path / "scores.json"
    words = [word for name, value in change.items() for word in (f"--{name}", value)]
    written(paths["good"], references, baseline, *words)
    refused = against(paths["good"], references, baseline, "--max-drop", "CIDEr-D=1")
    assert isinstance(refused.exception, BenchError)
    assert f"{field} is" in str(refused.exception)
    words = shlex.split(refused.exception.hint.partition("conditions: ")[2])[1:]
    bench_ok(*(str(paths["good"]) if word == "ACCEPTED" else word for word in words))
    assert against(paths["good"], references, baseline, "--max-drop", "CIDEr-D=1").exit_code == 0


def test_a_baseline_of_other_references_is_refused(series, tmp_path):
    references, paths = series
    baseline = tmp_path / "scores.json"
    written(paths["good"], references, baseline)
    content = json.loads(references.read_text())
    content["0"].append("another")
    references.write_text(json.dumps(content))
    assert isinstance(against(paths["good"], references, baseline).exception, BenchError)


def test_what_is_no_baseline_is_refused(series, tmp_path):
    references, paths = series
    baseline = tmp_path / "scores.json"
    content = written(paths["good"], references, baseline)
    text = baseline.read_text()
    for broken in (
        "[]",
        "{}",
        paths["good"].read_text(),
        json.dumps(content | {"signature": "n"}),
        json.dumps(content | {"per_image": {}}),
        json.dumps(content | {"per_image": content["per_image"] | {"CIDEr-D": {"0": 1.0}}}),
        json.dumps(content | {"scores": content["scores"] | {"CIDEr-D": "1"}}),
        text.replace('"BLEU-1":{', '"BLEU-1":{"0":NaN,', 1),
    ):
        baseline.write_text(broken)
        refused = against(paths["good"], references, baseline)
        assert isinstance(refused.exception, BenchError | StoreError), broken[:80]
    baseline.write_text(json.dumps(content))
    for words in (
        ("--max-drop", "METEOR=1"),
        ("--max-drop", "CIDEr=1"),
        ("--max-drop", "CIDEr-D=-1"),
        ("--out", baseline, "--force"),
    ):
        assert isinstance(against(paths["good"], references, baseline, *words).exception, BenchError), words
    without = bench("evaluate", paths["good"], "--references", references, "--no-meteor", "--max-drop", "CIDEr-D=1")
    assert isinstance(without.exception, BenchError)


def test_scores_without_influences_of_images_are_compared_untested(series, tmp_path):
    references, paths = series
    baseline, out = tmp_path / "scores.json", tmp_path / "now.json"
    content = written(paths["good"], references, baseline)
    del content["influences"]
    baseline.write_text(json.dumps(content))
    assert against(paths["worse"], references, baseline, "--max-drop", "BLEU-4=1").exit_code == 1
    now = written(paths["worse"], references, out, "--baseline", baseline)
    changes = {change["metric"]: change for change in now["changes"]}
    assert changes["BLEU-4"]["p"] is changes["BLEU-4"]["low"] is None
    assert changes["BLEU-4"]["change"] == pytest.approx(changes["BLEU-4"]["after"] - changes["BLEU-4"]["before"])
    assert "influences" in changes["BLEU-4"]["reason"]
    assert changes["CIDEr-D"]["p"] < 0.05


def test_a_metric_of_elsewhere_may_have_a_limit(series, tmp_path):
    references, paths = series
    baseline, numbers = tmp_path / "scores.json", tmp_path / "numbers.json"
    numbers.write_text(json.dumps({str(i): 0.5 for i in range(MANY)}))
    written(paths["good"], references, baseline, "--scores", f"Mine={numbers}")
    numbers.write_text(json.dumps({str(i): 0.5 - 0.1 * (i % 2) for i in range(MANY)}))
    words = ("--scores", f"Mine={numbers}", "--max-drop")
    assert against(paths["good"], references, baseline, *words, "Mine=4.9").exit_code == 1
    assert against(paths["good"], references, baseline, *words, "Mine=5.1").exit_code == 0


def test_several_files_are_compared_with_the_first(series, tmp_path):
    references, paths = series
    out = tmp_path / "scores"
    words = ("evaluate", *paths.values(), "--references", references, "--no-meteor")
    result = bench_ok(*words, "--out", out)
    contents = {name: json.loads((out / f"{name}.json").read_text()) for name in paths}
    for name, path in paths.items():
        alone = written(path, references, tmp_path / "alone.json")
        assert {**contents[name], "changes": 0, "baseline": 0} == {**alone, "changes": 0, "baseline": 0}
        assert f"{100 * alone['scores']['CIDEr-D']:.2f}" in result.stdout
    assert "changes" not in contents["good"]
    for name in ("worse", "wrong"):
        changes = {change["metric"]: change for change in contents[name]["changes"]}
        assert changes["CIDEr-D"]["p"] < 0.05
        assert changes["CIDEr-D"]["before"] == contents["good"]["scores"]["CIDEr-D"]
    alone = captionbench.evaluate(references, paths["good"], meteor=False).compare(out / "worse.json")
    [worse] = [change for change in contents["worse"]["changes"] if change["metric"] == "ROUGE-L"]
    assert worse["change"] == alone["ROUGE-L"].value
    bench_ok(*words, "--out", out)  # files of the folder's own are replaced
    (out / "mine.txt").write_text("x")
    assert isinstance(bench(*words, "--out", references).exception, BenchError)
    assert isinstance(bench(*words, paths["good"]).exception, BenchError), "twice"
    for option in (("--baseline", out / "good.json"), ("--scores", f"P={references}")):
        assert isinstance(bench(*words, *option).exception, BenchError)


def without_the_first(path, folder):
    """A copy of a file of captions without that of the first image."""
    captions = json.loads(path.read_text())
    shorter = folder / "shorter.json"
    shorter.write_text(json.dumps(captions[1:]))
    return shorter


def test_several_files_are_compared_over_the_images_that_all_have(series, tmp_path):
    references, paths = series
    shorter = without_the_first(paths["worse"], tmp_path)
    words = ("evaluate", paths["good"], shorter, "--references", references, "--no-meteor")
    assert isinstance(bench(*words).exception, BenchError)
    result = bench_ok(*words, "--allow-subset", "--out", tmp_path / "scores")
    assert "good: left out: 1 image without a caption in shorter" in result.stdout
    good, worse = (json.loads((tmp_path / "scores" / f"{name}.json").read_text()) for name in ("good", "shorter"))
    assert good["signature"] == worse["signature"]
    images = len(json.loads(paths["good"].read_text()))
    assert (good["n"], fields(good["signature"])["of"]) == (images - 1, f"{images}")
    assert worse["changes"]

    report = tmp_path / "report"
    bench_ok("evaluate", paths["good"], shorter, "--references", references, "--report", report, "--allow-subset")
    leaderboard = results.open(report).leaderboard()
    assert set(leaderboard["model"]) == {"good", "shorter"}
    assert leaderboard["group"].nunique() == 1
    with closing(sqlite3.connect(report / "bench.sqlite")) as database:
        assert database.execute("SELECT reason FROM skipped_images").fetchall() == [("no caption in shorter",)]
    page = (report / "index.html").read_text()
    assert "Images left out" in page
    assert "1 image of the data is left out" in page.partition("<table")[0], "above the table, not in a note below it"
    for form in ("latex", "markdown"):  # a score of a part of the images must not pass for one of all
        assert (
            "1 image of the data is left out"
            in bench_ok(*("export", "leaderboard", "--workspace", report, "--format", form)).stdout
        )


@pytest.mark.parametrize(("cores", "free", "most"), [(4, None, 4), (4, 2**40, 4), (64, 5 * 2**30, 5), (4, 1000, 1)])
def test_as_many_files_are_scored_at_a_time_as_there_are_cores_and_memory(monkeypatch, cores, free, most):
    monkeypatch.setattr("harness.config.execution.usable_cores", lambda: cores)
    monkeypatch.setattr("harness.utils.memory.free_host_memory", lambda: free)
    assert evaluate_module._max_jobs() == most


def test_several_files_need_neither_torch_nor_a_workspace(series, tmp_path):
    references, paths = series
    words = ["evaluate", paths["good"], paths["wrong"], "--references", references, "--no-meteor"]
    code = (
        "import sys; from harness.cli.app import build_app; sys.argv = ['bench', *sys.argv[1:]]\n"
        "try: build_app()()\nexcept SystemExit as ended: code = ended.code\n"
        "print(code, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "0 False"
    assert {path.name for path in tmp_path.iterdir()} == {"references.json", *(path.name for path in paths.values())}


def test_domains_of_several_files_are_compared(files, tmp_path):
    predictions, references = files
    theirs, out = tmp_path / "theirs.json", tmp_path / "scores"
    write(theirs, {7: "a cat", 3: "two cats asleep", 5: "a dog"})
    bench_ok("evaluate", predictions, theirs, "--references", references, "--no-meteor", "--out", out)
    ours, content = (json.loads((out / f"{name}.json").read_text()) for name in ("predictions", "theirs"))
    changes = {change["images"]: change for change in content["changes"] if change["metric"] == "CIDEr-D"}
    assert set(changes) == {"overall", "in-domain", "out-domain"}
    for domain in ("in-domain", "out-domain"):
        assert changes[domain]["before"] == ours["domains"][domain]["CIDEr-D"]
        assert changes[domain]["after"] == content["domains"][domain]["CIDEr-D"]
        assert changes[domain]["n"] == content["domains"][domain]["n"]


def test_a_limit_scores_the_first_images_and_is_signed(series, tmp_path):
    references, paths = series
    out = tmp_path / "scores.json"
    whole = written(paths["worse"], references, out)
    some = written(paths["worse"], references, out, "--limit", "7")
    assert some["n"] == 7
    assert list(map(int, some["per_image"]["ROUGE-L"])) == list(range(7))
    assert {i: whole["per_image"]["ROUGE-L"][i] for i in some["per_image"]["ROUGE-L"]} == some["per_image"]["ROUGE-L"]
    assert fields(some["signature"])["limit"] == "7"
    assert "limit" not in fields(whole["signature"])
    assert captionbench.evaluate(references, paths["worse"], meteor=False, limit=7).signature == some["signature"]
    first = json.loads(paths["worse"].read_text())[:7]
    (tmp_path / "few.json").write_text(json.dumps(first))
    assert written(tmp_path / "few.json", references, out, "--limit", "7")["scores"] == some["scores"]
    for limit, captions in ((MANY, "worse"), (8, "few")):
        refused = bench("evaluate", tmp_path / f"{captions}.json", "--references", references, "--limit", limit)
        assert isinstance(refused.exception, BenchError)
