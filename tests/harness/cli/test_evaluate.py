"""`bench evaluate` and `bench export submission` from files to files."""

import json
from dataclasses import replace

import pytest

from harness.metrics.submission import SPLITS
from results import DatasetRecord, Outcome, Quantity, RunSpec, SplitResult, Store
from tests.harness.conftest import bench, bench_ok

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
    names = ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr-D", "METEOR", "ROUGE-L", "SPICE"]
    assert sorted(scores["scores"]) == names
    assert scores["n"] == 3
    assert {domain: found["n"] for domain, found in scores["domains"].items()} == {"in-domain": 2, "out-domain": 1}
    assert scores["scores"]["METEOR"] is None
    assert scores["scores"]["SPICE"] is None
    assert "not asked for" in scores["reasons"]["METEOR"]
    assert set(scores["per_image"]["CIDEr-D"]) == {"7", "3", "5"}
    assert scores["intervals"]["CIDEr-D"][0] <= scores["scores"]["CIDEr-D"] <= scores["intervals"]["CIDEr-D"][1]
    assert scores["signature"] in result.output.replace("\n", "")
    assert fields(scores["signature"])["domains"] == "in-domain=2,out-domain=1"
    assert f"{100 * scores['scores']['BLEU-1']:.2f}" in result.output


def test_what_does_not_fit_is_refused_unless_allowed(files, tmp_path):
    predictions, references = files
    write(predictions, {7: "a dog runs", 3: "two cats", 8: "x"})
    result = bench("evaluate", predictions, "--references", references, "--no-meteor")
    assert "1 image missing (5); 1 image without references (8)" in str(result.exception)
    out = tmp_path / "scores.json"
    result = bench_ok(
        "evaluate", predictions, "--references", references, "--no-meteor", "--allow-subset", "--out", out
    )
    assert "left out: 1 image missing (5)" in result.output
    scores = json.loads(out.read_text())
    assert scores["n"] == 2
    assert fields(scores["signature"])["of"] == "3"


def test_subset_frequencies_change_domains_and_the_signature(files, tmp_path):
    out, words = tmp_path / "s.json", ("evaluate", files[0], "--references", files[1], "--no-meteor", "--domain-df")
    found = [(bench(*words, option, "--out", out), json.loads(out.read_text()))[1] for option in ("all", "subset")]
    assert found[0]["scores"] == found[1]["scores"]
    assert found[0]["domains"] != found[1]["domains"]
    assert [fields(each["signature"])["df"] for each in found] == ["all", "subset"]


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
        ("mine", test, "mine is a model, and one run is exported"),
        (key, replace(test, captions={3: "a dog", 5: " ", 7: "x"}), "1 image with an empty caption (5)"),
        (key, replace(other, captions={11: "a cat"}), "no caption of any image"),
    ):
        with Store(tmp_path / "bench.sqlite") as store:
            store.finish(key, Outcome((split,), {}, {}))
        assert said in str(submission(run, "nocaps", references, tmp_path, "-w", tmp_path).exception)
