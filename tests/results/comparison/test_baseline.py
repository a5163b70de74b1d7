"""A baseline file: exact where it must be, small, and refused where it is anything else."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results import Outcome, Quantity, SplitResult, Store, StoreError
from results.comparison.baseline import Baseline, PerImage, baseline_of, compare_baselines, read_baseline, write_out
from results.runs.reading import failures, finished_with_images

SCORES = st.dictionaries(st.integers(-(2**40), 2**40), st.floats(0, 10), min_size=1, max_size=40)


@pytest.fixture
def filled(tmp_path: Path, make: Any) -> Store:
    """A store with a model of two epochs and one of none."""
    store = Store(tmp_path / "b.sqlite")
    store.record_dataset(make.dataset())
    store.plan([make.spec("blind"), make.spec("updown", signature={"nrefs": "5", "v": "0.1.0"})])
    for epoch in (1, 2):
        store.record_epoch("blind-1", make.epoch(epoch, train_loss=math.pi / epoch))
    environment = {"packages": {"torch": "2.15.0", "numpy": "2.4.6"}, "device": {"type": "cpu"}, "commit": "a" * 40}
    store.finish("blind-1", make.outcome(0.3, environment=environment))
    store.finish("updown-1", make.outcome(0.5))
    return store


@given(SCORES)
def test_scores_of_images_survive_to_a_hundredth_of_a_point(scores: dict[int, float]) -> None:
    unpacked = PerImage.pack(scores).unpack()
    assert unpacked.keys() == scores.keys()
    assert all(abs(unpacked[image] - score) <= 0.5001e-4 for image, score in scores.items())


def test_a_run_of_5000_images_takes_less_than_50_kilobytes() -> None:
    random.seed(1)
    scores = {image: random.uniform(0, 3) for image in random.sample(range(580_000), 5000)}
    assert len(PerImage.pack(scores).model_dump_json()) < 50_000


def test_a_file_gives_back_every_bit_of_a_loss(filled: Store, tmp_path: Path) -> None:
    made = baseline_of(finished_with_images(filled), ["CIDEr-D"])
    file = tmp_path / "baseline.json"
    file.write_text(write_out(made), encoding="utf-8")
    again = read_baseline(file)
    assert again == made
    assert again.runs[0].losses == ((0, 1, math.pi), (0, 2, math.pi / 2))
    assert again.metrics == ["CIDEr-D"]


def test_a_run_that_failed_later_replaces_the_finished_one(filled: Store, make: Any) -> None:
    filled.plan([make.spec("blind", key="newer")])
    filled.begin("newer", {})
    filled.fail("newer", "ValueError", "no", "")
    runs = finished_with_images(filled)
    assert [run.model for run in baseline_of(runs, ["CIDEr-D"]).runs] == ["blind", "updown"]
    assert [run.model for run in baseline_of(runs, ["CIDEr-D"], failures(filled)).runs] == ["updown"]


def test_a_run_brings_its_platform_and_its_code(filled: Store) -> None:
    blind, updown = baseline_of(finished_with_images(filled), ["CIDEr-D"]).runs
    assert (blind.platform.torch, blind.platform.device, blind.platform.cpu) == ("2.15.0", "cpu", "unknown")
    assert updown.platform.torch == "unknown"
    assert blind.code == "0.1.0 aaaaaaaaaaaa"
    assert blind.splits["test"].by_image["CIDEr-D"].unpack() == {1: 0.3, 2: 0.6, 30: 0.9}
    assert blind.costs["parameters"].value == 1000
    assert "energy" not in blind.costs, "what was not measured is no expectation"
    assert updown.conditions == {"track": "controlled", "nrefs": "5"}


def test_captions_are_compared_by_their_digest(filled: Store) -> None:
    before = baseline_of(finished_with_images(filled), []).runs[0].splits["test"].captions
    said = SplitResult("test", {1: "a ball", 2: "a cube", 30: "a cone"}, {"overall": {"CIDEr-D": Quantity(0.3)}}, {})
    filled.finish("blind-1", Outcome((said,), {}, {}))
    assert baseline_of(finished_with_images(filled), []).runs[0].splits["test"].captions != before


def test_of_runs_that_only_releases_tell_apart_the_newest_counts(filled: Store, make: Any) -> None:
    newer = {"signature": {"nrefs": "5", "v": "0.2.0"}, "code_version": "0.2.0"}
    make.run(filled, make.outcome(0.7), "updown", variant="-new", **newer)
    runs = baseline_of(finished_with_images(filled), ["CIDEr-D"]).runs
    assert [run.code for run in runs if run.model == "updown"] == ["0.2.0"]


def test_an_update_names_added_dropped_and_changed_runs(filled: Store) -> None:
    old = baseline_of(finished_with_images(filled), [])
    blind, updown = old.runs
    other = updown.model_copy(update={"signature": {**updown.signature, "beam": "5"}})
    new = Baseline(format=old.format, runs=(other, blind.model_copy(update={"seed": 2})))
    added, dropped, changed = compare_baselines(old, new)
    assert [run.name for run in added] == ["blind seed 2"]
    assert [run.name for run in dropped] == ["blind seed 1"]
    assert [(run.name, fields) for run, fields in changed] == [("updown seed 1", ["beam none → 5"])]


def test_nothing_finished_is_no_baseline() -> None:
    assert baseline_of([], ["CIDEr-D"]) is None


def changed(content: Any, path: str, value: Any) -> Any:
    """The JSON with one value set."""
    node = content
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    for part in parents:
        node = node[part]
    node[last] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", "captionbench-baseline-2", "format: Input should be 'captionbench-baseline-1'"),
        ("note", "hello", "note: Extra inputs are not permitted"),
        ("runs", [], "runs: Tuple should have at least 1 item"),
        ("runs/0/seed", "0", r"runs\.0\.seed: Input should be a valid integer"),
        ("runs/0/losses/0/2", math.nan, "Invalid JSON|finite"),
        ("runs/0/splits/test/captions", "abc", "String should match pattern"),
        ("runs/0/splits/test/by_image/CIDEr-D/ids", "1 1", "ids and scores must be of the same number"),
        ("runs/0/splits/test/by_image/CIDEr-D/ids", "1 0 5", "no id twice"),
        ("runs/0/splits/test/by_image/CIDEr-D/ids", "1 00 5", "no id twice"),
        ("runs/0/splits/test/by_image/CIDEr-D/ids", "9" * 5_000, "should match pattern"),
        ("runs/0/splits/test/by_image/CIDEr-D/scores", "9" * 400, "should match pattern"),
        ("runs/0/splits/test/by_image/CIDEr-D/scores", "1 two 3", "String should match pattern"),
    ],
)
def test_what_is_no_baseline_is_refused_with_its_first_fault(
    filled: Store, tmp_path: Path, path: str, value: Any, message: str
) -> None:
    content = json.loads(write_out(baseline_of(finished_with_images(filled), ["CIDEr-D"])))
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps(changed(content, path, value)), encoding="utf-8")
    with pytest.raises(StoreError, match=message) as caught:
        read_baseline(file)
    assert str(file) in str(caught.value)
    assert "bench regress --update" in str(caught.value.hint)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1, 2", b"null"])
def test_what_is_no_json_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"b\.json"):
        read_baseline(tmp_path / "b.json")


def test_neither_a_run_nor_a_key_may_be_there_twice(filled: Store, tmp_path: Path) -> None:
    text = write_out(baseline_of(finished_with_images(filled), []))
    content = json.loads(text)
    content["runs"].append(content["runs"][0] | {"code": "another"})
    twice = {"a run is there": json.dumps(content), "the key 'runs'": text.replace("{", '{"runs": [],', 1)}
    for what, written in twice.items():
        (tmp_path / "b.json").write_text(written, encoding="utf-8")
        with pytest.raises(StoreError, match=f"{what} twice"):
            read_baseline(tmp_path / "b.json")
