"""`bench regress`: what passes, fails, is undecided or refused, in every format, and what an update keeps."""

import json
import re
import stat
from pathlib import Path

import pytest
import yaml

from harness.utils.errors import BenchError
from results import StoreError
from tests.harness.cli.conftest import Fill
from tests.harness.conftest import ROOT, bench, bench_or_raise, heavy_packages_of_each


def regress(*words: str | Path) -> tuple[int, str]:
    """The exit code and what was printed of trained runs; expected errors are raised."""
    return bench_or_raise("regress", "--train", *words)


@pytest.fixture
def baseline(fill: Fill, tmp_path: Path) -> Path:
    """Two models as usual."""
    folder = tmp_path / "baseline"
    code, said = regress("--update", "--baseline", folder, "-w", fill("usual", {"updown": 0, "blind": 0}))
    assert (code, said.splitlines()[:2]) == (0, ["added: updown seed 0", "added: blind seed 0"])
    return folder


@pytest.mark.parametrize(
    ("now", "options", "code", "parts"),
    [
        ({}, [], 0, ["Passed: 2 as before."]),
        (
            {"updown": -3},
            [],
            1,
            [r"updown +REGRESSED +different", r"blind +as before +equal", r"fell by 3\.", "Failed: 1 as before, 1 reg"],
        ),
        ({"updown": -3, "cpu": "Xeon"}, ["--tolerance", "CIDEr-D=4"], 0, []),
        ({"updown": -3}, ["--tolerance", "CIDEr-D=4"], 1, []),  # its bits changed
        ({"updown": 3}, [], 0, ["Passed: 1 as before, 1 improved", "bench regress --update"]),
        ({"seconds": 25}, [], 0, [r"2\.50×"]),
        ({"failed": ("blind",)}, [], 1, ["blind seed 0 was not measured: failed: RuntimeError"]),
        ({"beam": "5"}, [], 1, ["other conditions: beam 3 → 5"]),
    ],
)
def test_runs_are_judged_with_an_exit_code(
    baseline: Path, fill: Fill, now: dict[str, object], options: list[str], code: int, parts: list[str]
) -> None:
    models = {"updown": now.pop("updown", 0), "blind": 0}
    found, said = regress("--baseline", baseline, "-w", fill("now", models, **now), *options)
    assert found == code
    command = f"bench regress --update --baseline {baseline} --train --workspace "
    assert max(len(line) for line in said.splitlines() if not line.startswith(command)) <= 80
    assert [part for part in parts if not re.search(part, " ".join(said.split()))] == []


HOSTILE = "<script>|`x`\x1b[31m\ud800]]>&"


@pytest.mark.parametrize("model", ["updown", HOSTILE.replace("\ud800", "\ufffe")])
def test_every_format_says_the_same(fill: Fill, tmp_path: Path, model: str) -> None:
    file, worse = tmp_path / "b", fill("worse", {model: -3, "blind": 0})
    regress("--update", "--baseline", file, "-w", fill("usual", {model: 0, "blind": 0}))
    code, said = regress("--baseline", file, "-w", worse, "--findings", tmp_path / "found")
    written = {path.suffix: path.read_text(encoding="utf-8") for path in (tmp_path / "found").iterdir()}
    assert not any("\x1b" in text.replace("\\u001b", "") for text in written.values())
    command = f"bench regress --update --baseline {file} --train --workspace {worse}\n"
    assert (code, said) == (1, written[".txt"] + f"If it is meant:\n{command}"), "printing equals writing"
    assert max(map(len, written[".txt"].splitlines())) <= 80

    content = json.loads(written[".json"])
    rows = content["ends"]["rows"]
    assert (content["exit_code"], [row["status"] for row in rows]) == (1, ["regressed", "same"])
    assert rows[0]["model"] == model

    lines = written[".md"].splitlines()
    assert lines[0].startswith("### ❌ Failed: 1 as before, 1 regressed.")
    table = [line for line in lines if line.startswith("|")][:4]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 7 for line in table), "a bar in a name is no column"
    assert "<script>" not in written[".md"]
    with pytest.raises(BenchError):
        regress("--baseline", file, "-w", tmp_path / "nowhere", "--findings", tmp_path / "found")
    assert not list((tmp_path / "found").iterdir()), "an earlier verdict does not stand for this one"
    (tmp_path / "found" / "findings.md").write_text("my notes")
    with pytest.raises(BenchError, match="no earlier version"):
        regress("--baseline", file, "-w", worse, "--findings", tmp_path / "found")
    assert (tmp_path / "found" / "findings.md").read_text() == "my notes"


def test_an_update_does_not_lose_a_model_silently(baseline: Path, fill: Fill) -> None:
    file = baseline / "ends.json"
    before = file.read_bytes()
    only = fill("only", {"updown": 0, "blind": 0}, failed=("blind",))
    with pytest.raises(BenchError, match=r"would lose what it expects: blind seed 0 \(out of luck\)") as caught:
        regress("--update", "--baseline", baseline, "-w", only)
    assert caught.value.hint
    assert file.read_bytes() == before


def test_an_update_says_which_conditions_changed(baseline: Path, fill: Fill) -> None:
    code, said = regress("--update", "--baseline", baseline, "-w", fill("wide", {"updown": 0, "blind": 0}, beam="5"))
    assert code == 0
    assert "other conditions: updown seed 0: beam 3 → 5" in said
    assert stat.S_ISREG((baseline / "ends.json").stat().st_mode)
    assert [path.name for path in baseline.glob(".*")] == [], "nothing half-written is left behind"


def test_a_damaged_baseline_is_not_overwritten(baseline: Path, fill: Fill) -> None:
    (baseline / "ends.json").write_text("{}")
    with pytest.raises(StoreError, match="is not a baseline"):
        regress("--update", "--baseline", baseline, "-w", fill("again", {"updown": 0}))
    assert (baseline / "ends.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tolerance", "0.5"], "is not METRIC=POINTS"),
        (["--tolerance", "CIDEr-D=nan"], "is not METRIC=POINTS"),
        (["--tolerance", "CIDEr-D=-1"], "is not METRIC=POINTS"),
        (["--tolerance", "METEOR=1"], "the baseline has no per-image scores of this metric"),
        (["--models", "updown"], "define a new baseline"),
        (["--against", "main"], "needs no baseline"),
        (["--findings", "/proc/nowhere"], "cannot write --findings"),
        (["--update", "--tolerance", "METEOR=1"], "--update writes a baseline and does not judge"),
        (["--update", "--findings", "found"], "--update writes a baseline and does not judge"),
        (["--workspace", "nowhere"], "no results in the workspace nowhere"),
        (["--baseline", "nowhere"], "cannot read the baseline nowhere/ends.json"),
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

    file = ROOT / "baselines" / "gate" / "ends.json"
    expected = read_baseline(file)
    assert {run.model for run in expected.runs} == {"transformer_base", "expansionnet_v2", "human"}
    assert all(run.losses for run in expected.runs if run.role == "model")
    assert file.stat().st_size < 200_000


def test_judging_loads_no_torch(baseline: Path, fill: Fill) -> None:
    again = fill("again", {"updown": 0, "blind": 0})
    words = ("regress", "--train", "--baseline", baseline, "-w", again)
    assert heavy_packages_of_each([words], ["torch"], baseline.parent) == [(0, set())]


def test_the_action_uses_options_that_exist() -> None:
    action = yaml.safe_load((ROOT / ".github" / "actions" / "bench-regress" / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    script = "\n".join(step.get("run", "") for step in action["runs"]["steps"])
    known = set(re.findall(r"--[a-z-]+", bench("regress", "--help").output))
    used = set(re.findall(r"--[a-z-]+", "\n".join(re.findall(r" regress --.*|judge --.*", script))))
    assert {"--baseline", "--findings"} <= used <= known
    assert "${{" not in script, "inputs reach the shell as environment alone"


def several(fill: Fill, name: str, points: float) -> Path:
    """Three seeds of one model that scores so many points more, on another processor than `usual3`."""
    return fill(name, {"updown": points}, seeds=3, cpu="EPYC" if name == "usual3" else "Xeon")


@pytest.fixture
def of_seeds(fill: Fill, tmp_path: Path) -> Path:
    """A baseline of three seeds."""
    file = tmp_path / "seeds"
    assert regress("--update", "--baseline", file, "-w", several(fill, "usual3", 0))[0] == 0
    return file


def test_seeds_that_could_not_see_a_fall_are_undecided(of_seeds: Path, fill: Fill) -> None:
    code, said = regress("--baseline", of_seeds, "-w", several(fill, "worse", -3))
    assert code == 0
    assert re.search(r"updown ×3 +undecided", said)
    assert re.search(r"updown ×3 +test +over seeds and images +(\d+\.\d\d)", said)
    assert max(map(len, said.splitlines())) <= 80
    assert re.search(r"UNDECIDED: a fall of up to \d+\.\d\d points", " ".join(said.split()))


def test_the_same_seeds_again_are_as_before(of_seeds: Path, fill: Fill) -> None:
    again = fill("again", {"updown": 0}, seeds=3)
    code, said = regress("--baseline", of_seeds, "-w", again, "--findings", again / "found")
    assert (code, "Passed: 1 as before." in said.splitlines()) == (0, True)
    [row] = json.loads((again / "found" / "findings.json").read_text())["ends"]["rows"]
    [test] = row["tests"]
    assert (row["exact"], test["over"], test["detectable"]) == ("equal", "identical scores of every image", None)


def test_a_commit_that_is_not_there_is_told() -> None:
    with pytest.raises(BenchError, match=r"git worktree: .*nowhere"):
        bench_or_raise("regress", "--against", "nowhere", "--models", "blind")


@pytest.mark.parametrize("text", ["{}", '{"format": "captionbench-recording-1", "format": 1}', "\xff", "NaN"])
def test_a_damaged_recording_is_refused_with_what_to_type(text: str, tmp_path: Path) -> None:
    (tmp_path / "recording.json").write_text(text, encoding="latin-1")
    with pytest.raises(StoreError, match="is not a recording") as caught:
        bench_or_raise("regress", "--baseline", tmp_path)
    assert (caught.value.hint or "").startswith(f"make one: bench regress --update --baseline {tmp_path};")
