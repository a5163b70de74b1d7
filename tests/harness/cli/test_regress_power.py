"""`bench regress` over seeds: what is undecided, what a fall must be to be seen, and what an update warns of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.utils.errors import BenchError
from tests.harness.conftest import bench_or_raise

Fill = Callable[..., Path]
ELSEWHERE = ("--no-exact",)  # as on another platform, where bits cannot be compared


def regress(*words: str | Path) -> tuple[int, str]:
    """The exit code and what was printed; expected errors are raised."""
    return bench_or_raise("regress", *words)


def several(fill: Fill, name: str, points: float) -> Path:
    """Three seeds of one model that scores so many points more."""
    return fill(name, {"updown": points}, seeds=3)


@pytest.fixture
def of_seeds(fill: Fill, tmp_path: Path) -> Path:
    """A baseline of three seeds."""
    file = tmp_path / "seeds.json"
    assert regress("--update", "--baseline", file, "-w", several(fill, "usual3", 0))[0] == 0
    return file


def test_seeds_that_could_not_see_a_fall_are_undecided(of_seeds: Path, fill: Fill) -> None:
    code, said = regress("--baseline", of_seeds, "-w", several(fill, "worse", -3), *ELSEWHERE)
    assert code == 0
    assert re.search(r"updown ×3 +undecided", said)
    assert re.search(r"updown ×3 +test +over seeds and images +(\d+\.\d\d)", said)
    assert max(map(len, said.splitlines())) <= 80
    said = " ".join(said.split())
    assert re.search(r"CIDEr-D on test: undecided, no fall found, one of up to \d+\.\d points could have gone", said)
    assert re.search(r"Passed: 1 undecided\. UNDECIDED: a fall of up to \d+\.\d\d points could have gone unseen", said)


def test_a_gate_that_requires_power_fails_undecided_rows(of_seeds: Path, fill: Fill) -> None:
    worse = several(fill, "worse", -3)
    words = ("--baseline", of_seeds, "-w", worse, *ELSEWHERE, "--require-power")
    code, said = regress(*words)
    assert (code, "Failed: 1 undecided." in said, "write a new baseline" in said) == (1, True, False)
    assert regress(*words, "--tolerance", "CIDEr-D=40")[0] == 0, "a fall of 40 points is excluded"
    cases = ElementTree.fromstring(regress(*words, "--format", "junit")[1])
    assert [case.get("name") for case in cases.iter("testcase") if case.find("failure") is not None] == [
        "CIDEr-D on test",
    ]


def test_every_format_says_what_a_test_is_over_and_sees(of_seeds: Path, fill: Fill) -> None:
    worse = several(fill, "worse", -3)
    words = ("--baseline", of_seeds, "-w", worse, *ELSEWHERE)
    [row] = json.loads(regress(*words, "--format", "json")[1])["rows"]
    [test] = row["tests"]
    assert (row["status"], test["verdict"], test["over"]) == ("undecided", "undecided", "over seeds and images")
    assert test["architecture"]["seeds"] == [3, 3]
    markdown = regress(*words, "--format", "markdown")[1]
    assert markdown.startswith("### ⚠️ Passed: 1 undecided.")
    assert f"| undecided | over seeds and images | {100 * test['detectable']:.2f} |" in markdown
    cases = ElementTree.fromstring(regress(*words, "--format", "junit")[1])
    skipped = [case for case in cases.iter("testcase") if case.find("skipped") is not None]
    assert "over seeds and images" in (skipped[-1].findtext("system-out") or "")


def test_the_same_seeds_again_are_as_before(of_seeds: Path, fill: Fill) -> None:
    again = several(fill, "again", 0)
    for options in ((), ELSEWHERE, ("--require-power",)):
        code, said = regress("--baseline", of_seeds, "-w", again, *options)
        assert (code, said.rstrip().endswith("Passed: 1 as before.")) == (0, True)
    [row] = json.loads(regress("--baseline", of_seeds, "-w", again, "--format", "json")[1])["rows"]
    [test] = row["tests"]
    assert (row["exact"], test["over"], test["detectable"]) == ("equal", "identical scores of every image", None)


def test_an_update_warns_of_falls_that_it_could_not_see(fill: Fill, tmp_path: Path) -> None:
    file, usual = tmp_path / "b.json", several(fill, "usual", 0)
    words = ("--update", "--baseline", file, "-w", usual)
    code, said = regress(*words)
    assert code == 0
    sees = re.search(r"  updown: CIDEr-D on test: (\d+\.\d) points \(3 seeds, 60 images\)", said)
    assert sees is not None
    assert "WARNING: a fall of 0.5 CIDEr-D points could go unseen in 1 of 1 tests of trained models: tolerate" in said
    enough = re.search(r"also when judging \(--tolerance (CIDEr-D=\d+)\); 1000 seeds would not be enough", said)
    assert enough is not None
    assert re.search(r"with more seeds: bench run --seeds \d+; or tol", regress(*words, "--tolerance", "CIDEr-D=9")[1])
    before = file.read_bytes()
    with pytest.raises(BenchError, match="could go unseen"):
        regress(*words, "--require-power")
    assert file.read_bytes() == before
    assert "WARNING" not in regress(*words, "--require-power", "--tolerance", enough[1])[1]
