"""`bench compare`: two workspaces, databases or runs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.benchmark.compare_results import compare_results
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results import StoreError
from results.comparison.limits import exceeded_limits
from tests.harness.cli.conftest import Fill
from tests.harness.conftest import bench, bench_ok, bench_process


def compare(*words: str | Path) -> str:
    """What was printed; expected errors are raised."""
    return bench_ok("compare", *words).stdout


BESIDE = {"old": {"updown": 0, "blind": 0, "gone": 0}, "new": {"blind": 0, "updown": 3, "fresh": 0}}
ALONE = {"old": {"updown": 0}, "new": {"updown": 3}}


@pytest.mark.parametrize(
    ("models", "changes", "shown", "absent"),
    [
        (
            BESIDE,
            {},
            [
                r"updown seed 0 +test +\S+ +\S+ +\+3\.\d\d +\+2\.\d\d…\+3\.\d\d +<0\.001",
                r"blind seed 0 +test +\S+ +\S+ +\+0\.00 +\+0\.00…\+0\.00 +1\.000",
                "updown seed 0, test: 60 of 60 captions differ; 60 score better, 0 worse",
                "these weights, over images",
                "Only in A: gone seed 0",
                "Only in B: fresh seed 0",
            ],
            "Conditions differ",
        ),
        (
            ALONE,
            {"seconds": 25},
            [
                r"BLEU-4 +test +25\.00 +28\.00 +\+3\.00 +— +<0\.001",  # an interval of means is not BLEU's
                r"Training time +10\.0 s → 25\.0 s +2\.50×",
                r"Parameters +1\.00 M → 1\.00 M +1\.00×",
            ],
            r"SPICE +test",  # what neither side measured is left out
        ),
        (ALONE, {"beam": "5"}, [r"Conditions differ, .*\n  beam 3 → 5"], "Only in"),
        (ALONE, {"spice": 0.2}, ["Not tested, no Java found: SPICE on test"], "Only in"),
    ],
)
def test_two_workspaces_side_by_side(
    fill: Fill, models: dict[str, dict[str, int]], changes: dict[str, object], shown: list[str], absent: str
) -> None:
    said = compare(fill("old", models["old"]) / "bench.sqlite", fill("new", models["new"], **changes))
    assert [part for part in shown if not re.search(part, said)] == []
    assert not re.search(absent, said)
    assert max(map(len, said.splitlines())) <= 80


def test_captions_that_changed_most_come_with_their_references(fill: Fill, tmp_path: Path) -> None:
    said = compare(fill("old", {"updown": 0}), fill("new", {"updown": -3}), "--captions", "1")
    assert re.search(r"\ntest image (\d+) \1\.png: CIDEr-D \d+\.\d\d → \d+\.\d\d \(-\d\.\d\d\)", said)
    assert "A:  a ball +0.0" in said
    assert "B:  a ball -3.0" in said
    assert "one ball" in said
    assert "test image" not in compare(tmp_path / "old", tmp_path / "new", "--captions", "0")


def test_two_runs_of_a_workspace_may_be_of_different_models(fill: Fill) -> None:
    place = fill("both", {"updown": 0, "blind": -3})
    said = compare("updown-s0", "blind-s0", "-w", place)
    assert said.startswith("A  updown seed 0, captionbench 0.1.0, updown-s0\nB  blind seed 0")
    assert re.search(r"CIDEr-D +test .* -\d\.\d\d", said)
    assert compare("updown", "blind", "-w", place) == said
    assert "Noisy latency" not in said
    assert re.search(r"Noisy latency +yes → yes +—", compare("updown", "blind", "-w", place, "--all-costs"))
    assert compare("updown-s0", "updown-s0", "--db", str(place / "bench.sqlite"))


def test_models_are_compared_over_their_seeds(fill: Fill) -> None:
    place = fill("both", {"updown": 0, "blind": -3}, seeds=3)
    said = compare("updown", "blind", "-w", place)
    assert said.startswith(
        "A  updown seed 0,1,2, captionbench 0.1.0, updown-s0 updown-s1 updown-s2\nB  blind seed 0,1,2"
    )
    assert "over seeds and images" in said
    assert "these weights, over images" in compare("updown-s1", "blind-s2", "-w", place)


def test_markdown_and_json_hold_everything(fill: Fill, tmp_path: Path) -> None:
    sides = fill("old", {"updown": 0, "blind": 0}), fill("new", {"updown": 3, "blind": 0})
    out = tmp_path / "changes.md"
    assert compare(*sides, "--format", "markdown", "--out", out) == f"{out}\n"
    text = out.read_text(encoding="utf-8")
    assert "## updown seed 0" in text
    assert "| BLEU-4 | test | 25.00 | 28.00 | +3.00 | — | \\<0.001 |" in text
    assert "| Training time | 10.0\u202fs → 10.0\u202fs | 1.00× |" in text
    content = json.loads(compare(*sides, "--format", "json"))
    updown = next(pair for pair in content["pairs"] if pair["before"]["model"] == "updown")
    scores = {score["metric"]: score for score in updown["scores"]}
    assert scores["SPICE"]["reason"] == "no Java found"
    assert scores["CIDEr-D"]["test"]["images"] == 60
    assert content["tests"] == 4
    assert (scores["CIDEr-D"]["over"], scores["SPICE"]["over"]) == ("these weights, over images", None)
    assert updown["captions"][0]["image"]["references"][1] == "one ball"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["updown-s0", "nothing-s0"], "no model and no run is named nothing-s0"),
        (["updown-s0", "failed-s0"], "run failed-s0 has not finished: it is failed"),
        (["updown-s0", "here"], "here is a workspace or database, but updown-s0 is not"),
        (["here", "stranger"], "they share no model"),
        (["here", "empty"], "no run has finished in empty"),
        (["here", "bare"], "no results in the workspace bare"),
        (["here", "text"], "is not a SQLite database"),
        (["updown-s0", "updown-s0", "-w", "nowhere"], "no results in the workspace nowhere"),
        (["here", "here", "--out", "."], "is a folder"),
    ],
)
def test_what_cannot_be_compared_ends_in_one_sentence(
    fill: Fill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    fill("here", {"updown": 0, "failed": 0}, failed=("failed",)).rename("workspace")
    fill("here", {"updown": 0})
    fill("stranger", {"blind": 0})
    fill("empty", {})
    (tmp_path / "bare").mkdir()
    (tmp_path / "text").write_text("hello")
    with pytest.raises((BenchError, StoreError), match=message) as caught:
        compare(*words)
    assert caught.value.hint


@pytest.mark.parametrize("models", [["updown"], ["updown", "blind"]])
def test_a_change_without_an_interval_says_why(fill: Fill, models: list[str]) -> None:
    sides = fill("old", dict.fromkeys(models, 0)), fill("new", dict.fromkeys(models, 3))
    said = compare(*sides, "--format", "markdown")
    [line] = [line for line in said.splitlines() if "No 95 % interval" in line]
    assert all(name in line for name in models if len(models) > 1)
    assert "BLEU-4" in line
    assert "CIDEr-D" not in line
    score = next(
        each for each in json.loads(compare(*sides, "--format", "json"))["pairs"][0]["scores"] if each["no_interval"]
    )
    assert score["metric"] == "BLEU-4"


def test_influences_give_bleu_an_interval_of_its_change(fill: Fill) -> None:
    sides = (fill(name, {"updown": points}, influences=True) for name, points in (("old", 0), ("new", 3)))
    said = compare(*sides)
    assert re.search(r"BLEU-4 +test +25\.00 +28\.00 +\+3\.00 +\+2\.9\d…\+3\.0\d +<0\.001", said)
    assert "No 95 % interval" not in said


def test_an_output_of_another_encoding_is_no_failure(fill: Fill) -> None:
    sides = str(fill("old", {"updown": 0})), str(fill("new", {"updown": 3}))
    done = bench_process("compare", *sides, "--format", "markdown", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr.replace("Comparing ...\n", "")) == (0, "")
    assert "| BLEU-4 | test | 25.00 | 28.00 | +3.00 | ? | \\<0.001 |" in done.stdout


@pytest.mark.parametrize(
    ("points", "limit", "exit_code"),
    [(-3, "CIDEr-D=2.5", 1), (-3, "CIDEr-D=3.5", 0), (3, "CIDEr-D=0", 0), (-3, "BLEU-4=2", 1), (0, "SPICE=1", 1)],
)
def test_a_fall_beyond_its_limit_ends_with_1(fill: Fill, points: float, limit: str, exit_code: int) -> None:
    sides = fill("old", {"updown": 0}), fill("new", {"updown": points})
    for formatted in ("text", "json"):
        result = bench("compare", *sides, "--max-drop", limit, "--format", formatted)
        assert result.exit_code == exit_code
        assert ("--max-drop: updown: " in result.stderr) == bool(exit_code)
    json.loads(result.stdout)


def test_a_model_that_is_missing_is_beyond_every_limit(fill: Fill) -> None:
    sides = fill("old", {"updown": 0, "gone": 0}), fill("new", {"updown": 0, "fresh": 0})
    result = bench("compare", *sides, "--max-drop", "CIDEr-D=50")
    assert (result.exit_code, "gone seed 0 is only in A" in result.stderr) == (1, True)
    assert bench("compare", *sides[::-1], "--max-drop", "CIDEr-D=50").exit_code == 1
    assert bench("compare", *sides).exit_code == 0


@pytest.mark.parametrize("limit", ["0.5", "CIDEr-D=nan", "CIDEr-D=-1", "CIDEr-D=", "CIDER=1"])
def test_a_limit_is_a_metric_and_points(fill: Fill, limit: str) -> None:
    side = fill("old", {"updown": 0})
    with pytest.raises(BenchError, match="--max-drop"):
        compare(side, side, "--max-drop", limit)


def test_metrics_that_are_named_are_tested_alone(fill: Fill) -> None:
    old, new = fill("old", {"updown": 0}), fill("new", {"updown": 3})
    whole = json.loads(compare(old, new, "--format", "json"))
    alone = json.loads(compare(old, new, "--metrics", "CIDEr-D", "--format", "json"))
    [score] = alone["pairs"][0]["scores"]
    assert (score["metric"], alone["tests"]) == ("CIDEr-D", 1)
    assert score["test"]["adjusted"] == score["test"]["p"]  # one test needs no correction
    assert whole["tests"] > 1
    for wrong in (("--metrics", "CIDER"), ("--metrics", "CIDEr-D", "--max-drop", "METEOR=1")):
        with pytest.raises(BenchError, match="--m"):
            compare(old, new, *wrong)


def test_a_metric_that_is_named_is_shown_of_several_models(fill: Fill) -> None:
    old, new = (fill(name, {"updown": 0, "blind": 0}) for name in ("old", "new"))
    printed = compare(old, new, "--metrics", "BLEU-4")
    assert re.search(r"^BLEU-4 +Split ", printed, re.MULTILINE)
    assert re.search(r"^updown seed 0 +test +25\.00 ", printed, re.MULTILINE)


def test_a_gate_fails_where_a_second_run_of_a_model_was_not_compared(fill: Fill) -> None:
    """A run of B that equals A's conditions is paired; a newer one, of other conditions, must not pass unseen."""
    accepted, now = fill("accepted", {"updown": 0}), fill("now", {"updown": 0, "blind": 0})
    compared = compare_results(str(accepted), str(now), Workspace(accepted), 0)
    assert exceeded_limits(compared, {"CIDEr-D": 0.5}) == []  # blind is another model
    second = replace(compared, only_after=("updown seed 0 (beam: 5)",))
    assert len(exceeded_limits(second, {"CIDEr-D": 0.5})) == 1


def test_runs_that_are_compared_are_those_of_a_budget(fill: Fill) -> None:
    folder = fill("folder", {"updown": 0, "blind": 0})
    assert "updown seed 0" in compare("updown", "blind", "--workspace", folder, "--budget", "1")
    with pytest.raises(BenchError, match="--budget 2"):
        compare("updown", "blind", "--workspace", folder, "--budget", "2")
    with pytest.raises(BenchError, match="--budget"):
        compare(folder, folder, "--budget", "1")
