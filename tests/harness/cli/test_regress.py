"""`bench regress` from the first baseline to a broken, a slower, a missing and an improved model."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from harness.utils.errors import BenchError
from results import StoreError
from tests.harness.conftest import ROOT, bench, bench_or_raise, heavy_packages_of

Fill = Callable[..., Path]


def regress(*words: str | Path) -> tuple[int, str]:
    """The exit code and what was printed; expected errors are raised."""
    return bench_or_raise("regress", *words)


@pytest.fixture
def baseline(fill: Fill, tmp_path: Path) -> Path:
    """Two models as usual."""
    file = tmp_path / "baseline.json"
    code, said = regress("--update", "--baseline", file, "-w", fill("usual", {"updown": 0, "blind": 0}))
    assert (code, said.splitlines()[:2]) == (0, ["added: updown seed 0", "added: blind seed 0"])
    assert "updown: CIDEr-D on test: how much training varies is not known (1 seed, 60 images)" in said
    assert "WARNING: a fall of 0.5 CIDEr-D points could go unseen in 2 of 2 tests" in said
    return file


def test_the_same_again_passes(baseline: Path, fill: Fill) -> None:
    code, said = regress("--baseline", baseline, "-w", fill("again", {"updown": 0, "blind": 0}))
    assert code == 0
    assert said.rstrip().endswith("Passed: 2 as before.")


def test_a_worse_model_fails(baseline: Path, fill: Fill) -> None:
    code, said = regress("--baseline", baseline, "-w", fill("worse", {"updown": -3, "blind": 0}))
    assert code == 1
    assert re.search(r"updown +REGRESSED +different", said)
    assert re.search(r"blind +as before +equal", said)
    assert "updown: CIDEr-D on test fell by 3." in said
    assert "losses differ from stage 1, epoch 1 on: 2.5 → 2.53" in said
    assert "Failed: 1 as before, 1 regressed." in said
    *lines, command = said.splitlines()
    assert max(map(len, lines)) <= 80
    assert command.startswith(f"bench regress --update --baseline {baseline} --workspace ")


def test_a_loss_within_the_tolerance_passes(baseline: Path, fill: Fill) -> None:
    worse = fill("worse", {"updown": -3, "blind": 0})
    options = ("--no-exact", "--tolerance", "CIDEr-D=4")
    assert regress("--baseline", baseline, "-w", worse, *options)[0] == 0
    assert regress("--baseline", baseline, "-w", worse, "--tolerance", "CIDEr-D=4")[0] == 1, "its bits changed"


def test_an_improved_model_passes_and_may_raise_the_baseline(baseline: Path, fill: Fill) -> None:
    code, said = regress("--baseline", baseline, "-w", fill("better", {"updown": 3, "blind": 0}))
    assert code == 0
    assert "Passed: 1 as before, 1 improved." in said
    assert "bench regress --update" in said


def test_a_slower_model_fails_only_where_times_are_asked_for(baseline: Path, fill: Fill) -> None:
    slower = fill("slower", {"updown": 0, "blind": 0}, seconds=25)
    code, said = regress("--baseline", baseline, "-w", slower)
    assert (code, "2.50×" in said) == (0, True)
    code, said = regress("--baseline", baseline, "-w", slower, "--strict-timing", "2")
    assert code == 1
    assert "updown: train_seconds is 2.50 times as slow" in said


def test_a_missing_model_fails_with_the_reason(baseline: Path, fill: Fill) -> None:
    code, said = regress("--baseline", baseline, "-w", fill("missing", {"updown": 0, "blind": 0}, failed=("blind",)))
    assert code == 1
    assert "blind seed 0 was not measured: failed: RuntimeError: out of luck" in " ".join(said.split())


def test_other_conditions_could_not_be_judged(baseline: Path, fill: Fill) -> None:
    code, said = regress("--baseline", baseline, "-w", fill("wide", {"updown": 0, "blind": 0}, beam="5"))
    assert code == 2
    assert "updown seed 0 was measured under other conditions: beam 3 → 5" in said


def test_an_empty_workspace_lacks_everything(baseline: Path, fill: Fill) -> None:
    assert regress("--baseline", baseline, "-w", fill("empty", {}))[0] == 1


HOSTILE = "<script>|`x`\x1b[31m\ud800]]>&"


@pytest.mark.parametrize("model", ["updown", HOSTILE.replace("\ud800", "\ufffe")])
def test_every_format_says_the_same(fill: Fill, tmp_path: Path, model: str) -> None:
    file, worse = tmp_path / "b.json", fill("worse", {model: -3, "blind": 0})
    regress("--update", "--baseline", file, "-w", fill("usual", {model: 0, "blind": 0}))
    written = {}
    for name in ("text", "markdown", "junit", "json"):
        out = tmp_path / f"out.{name}"
        code, said = regress("--baseline", file, "-w", worse, "--format", name, "--out", out)
        assert (code, said.startswith("Failed: 1 as before, 1 regressed.")) == (1, True)
        written[name] = out.read_text(encoding="utf-8")
        assert "\x1b" not in written[name].replace("\\u001b", "")
        printed = regress("--baseline", file, "-w", worse, "--format", name)[1]
        command = f"bench regress --update --baseline {file} --workspace {worse}\n"
        assert said.endswith(f"\n{command}")
        assert printed == written[name] + command * (name == "text"), "printing and writing give the same"
    assert max(map(len, written["text"].splitlines())) <= 80

    cases = ElementTree.fromstring(written["junit"]).findall(".//testcase")
    failed = [(case.get("classname"), case.get("name")) for case in cases if case.find("failure") is not None]
    shown = model.replace("\x1b", "\ufffd").replace("\ufffe", "\ufffd")
    assert failed == [(f"{shown} seed 0", "CIDEr-D on test")], "once"

    content = json.loads(written["json"])
    assert (content["exit_code"], [row["status"] for row in content["rows"]]) == (1, ["regressed", "same"])
    assert content["rows"][0]["model"] == model

    lines = written["markdown"].splitlines()
    assert lines[0].startswith("### ❌ Failed: 1 as before, 1 regressed.")
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 7 for line in lines[2:6]), "a bar in a name is no column"
    assert "<script>" not in written["markdown"]


def test_an_update_does_not_lose_a_model_silently(baseline: Path, fill: Fill) -> None:
    before = baseline.read_bytes()
    only = fill("only", {"updown": 0, "blind": 0}, failed=("blind",))
    with pytest.raises(BenchError, match=r"would lose what it expects: blind seed 0 \(out of luck\)") as caught:
        regress("--update", "--baseline", baseline, "-w", only)
    assert str(caught.value.hint) == "measure it, or add --drop blind"
    assert baseline.read_bytes() == before

    code, said = regress("--update", "--baseline", baseline, "-w", only, "--drop", "blind")
    assert (code, said.splitlines()[:2]) == (0, ["dropped: blind seed 0", "not in it: blind seed 0: failed"])
    assert [run["model"] for run in json.loads(baseline.read_text())["runs"]] == ["updown"]


def test_an_update_says_which_conditions_changed(baseline: Path, fill: Fill) -> None:
    code, said = regress("--update", "--baseline", baseline, "-w", fill("wide", {"updown": 0, "blind": 0}, beam="5"))
    assert code == 0
    assert "other conditions: updown seed 0: beam 3 → 5" in said
    assert stat.S_ISREG(baseline.stat().st_mode)
    assert [path.name for path in baseline.parent.glob(".*")] == [], "nothing half-written is left behind"


def test_a_damaged_baseline_is_not_overwritten(baseline: Path, fill: Fill) -> None:
    baseline.write_text("{}")
    with pytest.raises(StoreError, match="is not a baseline"):
        regress("--update", "--baseline", baseline, "-w", fill("again", {"updown": 0}))
    assert baseline.read_text() == "{}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tolerance", "0.5"], "is not METRIC=POINTS"),
        (["--tolerance", "CIDEr-D=nan"], "is not METRIC=POINTS"),
        (["--tolerance", "CIDEr-D=-1"], "is not METRIC=POINTS"),
        (["--tolerance", "METEOR=1"], "the baseline has no per-image scores of this metric"),
        (["--strict-timing", "1"], "must be above 1"),
        (["--strict-timing", "nan"], "must be above 1"),
        (["--drop", "blind"], "define a new baseline"),
        (["--metric", "CIDEr-D"], "define a new baseline"),
        (["--out", "."], "is a folder"),
        (["--out", "/proc/nowhere/regress.txt"], "cannot write --out"),
        (["--update", "--tolerance", "METEOR=1"], "the baseline has no per-image scores of this metric"),
        (["--update", "--out", "findings.txt"], "--update writes a baseline and does not judge"),
        (["--update", "--format", "json"], "--update writes a baseline and does not judge"),
        (["--out", "baseline.json"], "--baseline"),
        (["--update", "--metric", "BLEU-4"], "means over images, which BLEU-4 is not"),
        (["--update", "--metric", "SPICE"], "no run here has a score of it"),
        (["--update", "--drop", "updown"], "the new baseline still has it"),
        (["--update", "--require-power"], "a fall of 0.5 CIDEr-D points could go unseen in 2 of 2 tests"),
        (["--workspace", "nowhere"], "no results in the workspace nowhere"),
        (["--baseline", "nowhere.json"], "cannot read the baseline nowhere.json"),
    ],
)
def test_a_wrong_option_ends_in_one_sentence(
    baseline: Path, fill: Fill, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(baseline.parent)
    again = fill("again", {"updown": 0, "blind": 0})
    with pytest.raises((BenchError, StoreError), match=message) as caught:
        regress("--baseline", baseline, "-w", again, *options)
    assert caught.value.hint


def test_an_update_of_nothing_is_refused(baseline: Path, fill: Fill) -> None:
    with pytest.raises(BenchError, match="no run has finished here"):
        regress("--update", "--baseline", baseline, "-w", fill("empty", {}))


def test_the_committed_baseline_can_be_read_and_is_small() -> None:
    from results.comparison.baseline import read_baseline

    file = ROOT / "baselines" / "gate.json"
    expected = read_baseline(file)
    assert {run.model for run in expected.runs} == {"transformer_base", "expansionnet_v2", "human"}
    assert all(run.losses for run in expected.runs if run.role == "model")
    assert file.stat().st_size < 200_000


def test_judging_loads_no_torch(baseline: Path, fill: Fill) -> None:
    again = fill("again", {"updown": 0, "blind": 0})
    words = ("regress", "--baseline", baseline, "-w", again)
    assert heavy_packages_of(words, ["torch"], baseline.parent) == (0, set())


def test_the_action_uses_options_that_exist() -> None:
    action = yaml.safe_load((ROOT / ".github" / "actions" / "bench-regress" / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    script = "\n".join(step.get("run", "") for step in action["runs"]["steps"])
    known = set(re.findall(r"--[a-z-]+", bench("regress", "--help").output))
    used = set(re.findall(r"--[a-z-]+", "\n".join(re.findall(r" regress --.*|judge --.*", script))))
    assert {"--baseline", "--workspace", "--format", "--out"} <= used <= known
    assert "${{" not in script, "inputs reach the shell as environment alone"
