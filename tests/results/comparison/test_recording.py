"""Recordings of what code computes: tolerances, findings, and how they are written."""

import json
from pathlib import Path
from typing import Any

import pytest

from results.comparison.recording import HEADROOM, Recording, Request, Series, judge_recording, series


def steps(values: list[float], what: str = "xe: loss", **given: Any) -> Series:
    found = {str(number): value for number, value in enumerate(values, 1)}
    return series("first_steps", "updown", what, "step", found, ["zoo/"], **given)


def recording(*of: Series) -> Recording:
    request = Request(models=("updown",), preset="first-steps")
    return Recording(request=request, code="1", platform={"torch": "2"}, series=of)


def test_a_tolerance_is_what_other_roundings_changed_and_grows_with_the_steps() -> None:
    base = steps([1.0] * 8, rounding=1e-6)
    others = [steps([1.0] * 6 + [1.0 + 1e-3, 1.0]), steps([1.0] * 6 + [1.0 + 2e-3, 1.0])]
    allowed = base.with_tolerance(others).tolerance
    assert allowed == pytest.approx([1e-6] * 2 + [HEADROOM * 1e-3] * 6), "of two replicas the smaller, four steps ahead"
    assert base.with_tolerance(others[:1]).tolerance == (1e-6,), "one replica alone may have drawn another word"


@pytest.mark.parametrize(("now", "found"), [(1.0 + 9e-4, 0), (1.0 + 2e-3, 1)])
def test_numbers_may_differ_within_their_tolerance(now: float, found: int) -> None:
    base = steps([1.0, 1.0], rounding=1e-3)
    judged = judge_recording(recording(base), recording(steps([1.0, now])), 0.0)
    assert len(judged.findings) == found
    assert all(
        (each.position, each.differing_count, each.size) == ("2", 1, pytest.approx(2.0)) for each in judged.findings
    )


def test_texts_must_be_equal_but_for_ties() -> None:
    captions = {"1": "a cat", "2": "a dog"}
    base = series("inference", "updown", "captions", "image", captions, ["zoo/decoding.py"])
    tied = base.with_tolerance([series("inference", "updown", "captions", "image", captions | {"2": "a cow"}, [])])
    now = series("inference", "updown", "captions", "image", captions | {"2": "a cow"}, [])
    assert judge_recording(recording(tied), recording(now), 0.0).ties
    assert judge_recording(recording(tied), recording(now), 0.0).findings == ()
    [finding] = judge_recording(recording(base), recording(now), 0.0).findings
    assert (finding.position, finding.before, finding.after, finding.size) == ("2", "a dog", "a cow", None)


def test_the_first_cause_comes_first_and_says_where_to_look() -> None:
    setting = series("settings", "", "settings", "setting", {"beam": "2"}, ["harness/config/"])
    base = [setting, steps([1.0, 1.0]), steps([2.0, 2.0], "xe: weights of input")]
    now = [setting, steps([1.0, 3.0]), steps([3.0, 3.0], "xe: weights of input")]
    first, second = judge_recording(recording(*base), recording(*now), 0.0).findings
    assert (first.quantity, first.position, second.position) == ("xe: weights of input", "1", "2")
    assert first.likely == ("zoo/",)


def test_a_changed_setting_and_what_is_gone_are_findings() -> None:
    base = series("settings", "", "settings", "setting", {"beam": "2", "gone": "1"}, [])
    now = series("settings", "", "settings", "setting", {"beam": "1", "new": "1"}, [])
    [finding] = judge_recording(recording(base, steps([1.0])), recording(now, steps([1.0])), 0.0).findings
    assert (finding.position, finding.before, finding.after, finding.differing_count) == ("beam", "2", "1", 3)
    [missing] = judge_recording(recording(base, steps([1.0])), recording(base), 0.0).findings
    assert (missing.quantity, missing.after) == ("xe: loss", "none")


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    whole = recording(steps([1.0, 0.123456789], rounding=1e-6))
    (tmp_path / "recording.json").write_text(whole.text(), encoding="utf-8")
    assert Recording.read(tmp_path) == whole


def test_a_recording_of_the_first_release_is_read_and_written_without_its_digests(tmp_path: Path) -> None:
    whole = recording(steps([1.0, 2.0]))
    older = {**json.loads(whole.text()), "files": {"zoo/models/updown.py": "0a1b2c3d"}}
    (tmp_path / "recording.json").write_text(json.dumps(older), encoding="utf-8")
    read = Recording.read(tmp_path)
    assert judge_recording(read, whole, 0.0).findings == ()
    assert read.text() == whole.text()
