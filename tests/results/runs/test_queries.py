"""What reports read besides the ranking: failures, costs, runs, data sets and the gallery."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from results import AttentionRecord, ImageRecord, Store, StoreError, frames
from results.runs import reading
from results.runs.gallery import gallery
from results.runs.leaderboard import leaderboard
from tests.results.conftest import url

__all__ = ["url"]  # queries run on both databases
Add = Callable[..., str]


def test_no_failed_or_skipped_run_is_lost(store: Store, add: Add, make: Any) -> None:
    store.plan([make.spec(name) for name in ("crash", "left-out", "killed", "waiting")])
    add("fine")
    store.begin("crash-1", {})
    store.fail("crash-1", "RuntimeError", "shapes <b>differ</b>", "line 1\nline 2")
    store.skip("left-out-1", "needs pixels")
    store.begin("killed-1", {})
    failures = {failure.key: failure for failure in reading.failures(store)}
    assert list(failures) == ["crash-1", "left-out-1", "killed-1", "waiting-1"]
    crash = failures["crash-1"]
    told = crash.model, crash.role, crash.seed, crash.track, crash.dataset
    assert told == ("crash", "model", 1, "controlled", "scenes")
    assert (crash.status, crash.error_class, crash.reason) == ("failed", "RuntimeError", "shapes <b>differ</b>")
    assert (crash.log_tail, crash.attempts) == ("line 1\nline 2", 1)
    assert crash.finished_at is not None
    assert (failures["left-out-1"].status, failures["left-out-1"].reason) == ("skipped", "needs pixels")
    assert (failures["killed-1"].status, failures["killed-1"].reason) == ("running", None)
    assert (failures["waiting-1"].status, failures["waiting-1"].attempts) == ("planned", 0)


def test_a_run_that_begins_again_meanwhile_stays_in_the_table(
    store: Store, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(*words: Any, **named: Any) -> Any:
        store.begin("fine-1", {})
        return leaderboard(*words, **named)

    add("fine")
    monkeypatch.setattr(frames, "leaderboard", begun)
    assert list(frames.Results(store).leaderboard()["model"]) == ["fine"]


def test_an_unknown_run(store: Store) -> None:
    with pytest.raises(StoreError, match="no run ghost"):
        reading.one_run(store, "ghost")


def test_data_sets_of_one_name(store: Store, make: Any) -> None:
    store.record_dataset(make.dataset("e" * 16, root="/elsewhere"))
    assert [info.root for info in reading.datasets(store)] == ["/pictures", "/elsewhere"]
    assert len(gallery(store, "e" * 16, "test", reading.finished(store))) == 3


def test_the_gallery_shows_the_hardest_image_first(store: Store, add: Add) -> None:
    add("low", 1, 0.25)
    add("high", 2, 0.5)
    add("high", 1, 0.75)
    add("unscored", 1, None)
    add("human", 0, 100.0, role="reference", signature={"nrefs": "4"})
    items = gallery(store, "f" * 16, "test", reading.finished(store))
    assert [item.image_id for item in items] == [1, 2, 30]
    assert [item.mean_cider for item in items] == [0.5, 1.0, 1.5], "over models alone, the lowest seed of each"
    first, last = items[0], items[-1]
    assert (first.file, first.domain, first.references) == ("test/1.png", "in-domain", ("a red ball", "one ball"))
    assert last.references == ("<b>two</b> cones",)
    shown = [(caption.model, caption.key, caption.cider) for caption in first.captions]
    assert shown == [
        ("high", "high-1", 0.75),
        ("low", "low-1", 0.25),
        ("unscored", "unscored-1", None),
        ("human", "human-0", 100.0),
    ]
    assert [caption.caption for caption in last.captions] == ["cones"] * 4
    assert [[caption.key for caption in item.captions] for item in items].count([key for _, key, _ in shown]) == 3


def test_gallery_images_that_tie_or_lack_scores(store: Store, make: Any) -> None:
    images = tuple(ImageRecord(number, f"{number}.png", "test", ("a",)) for number in (7, 5, 6))
    store.record_dataset(make.dataset("e" * 16, name="more", images=images))
    result = make.outcome().splits[0]
    captions, scores = {7: "x", 5: "y", 6: "z"}, {"CIDEr-D": {7: 0.5, 6: 0.5}}
    make.run(store, make.outcome(splits=(replace(result, captions=captions, per_image=scores),)), dataset="e" * 16)
    found = [(item.image_id, item.mean_cider) for item in gallery(store, "e" * 16, "test", reading.finished(store))]
    assert found == [(6, 0.5), (7, 0.5), (5, None)]


def test_several_runs_are_read_as_each_alone(store: Store, add: Add, make: Any) -> None:
    store.plan([make.spec("waiting")])
    keys = [add("blind", 1), add("blind", 2), "waiting-1"]
    store.record_epoch("waiting-1", make.epoch(1))
    assert [*reading.finished(store), *reading.failures(store)] == [reading.one_run(store, key) for key in keys]


def test_speed_of_a_stage(store: Store, add: Add, make: Any) -> None:
    key = add("updown")
    of = [(0, "xe", 1, None, 10.0, 100.0), (0, "xe", 2, 0.9, 30.0, 60.0), (1, "scst", 1, 0.8, 20.0, 5.0)]
    for stage, name, epoch, cider, seconds, speed in of:
        told = {"stage_name": name, "val_cider": cider, "seconds": seconds, "images_per_second": speed}
        store.record_epoch(key, make.epoch(epoch, stage=stage, **told))
    assert reading.one_run(store, key).stage_speeds() == {"xe": pytest.approx(70.0), "scst": pytest.approx(5.0)}


BOXES = ((0.0, 0.25, 0.5, 1.0), (0.0, 0.0, 1.0, 1.0), (0.5, 0.5, 0.75, 0.75))


def test_grids_and_boxes_come_back(store: Store, add: Callable[..., str], make: Any) -> None:
    key = add("blind")
    grid, boxes = make.attention(30), make.attention(1, grid=None, boxes=BOXES)
    store.finish(key, make.outcome(attention=(grid, boxes)))
    assert reading.attention_maps(store, key, "test") == {1: boxes, 30: grid}
    assert reading.attention_maps(store, key, "val") == {}


def test_weights_keep_three_digits(store: Store, add: Callable[..., str], make: Any) -> None:
    key = add("blind")
    weights = tuple(tuple((word + place) / 40.7 for place in range(20)) for word in range(20))
    store.finish(key, make.outcome(attention=(AttentionRecord(2, ("w",) * 20, weights, (4, 5)),)))
    found = reading.attention_maps(store, key, "test")[2]
    for row, expected in zip(found.weights, weights, strict=True):
        assert row == pytest.approx(expected, rel=1e-3)
    with store.reading() as connection:
        assert connection.scalar(text("SELECT length(weights) FROM attention_maps")) == 8 + 2 * 400
