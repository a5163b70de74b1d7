"""`bench regress`: wrong options, and `--against`: which code is trained, what is compared, and every format."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from harness.cli import regress_against
from harness.cli.output import MANIFEST
from harness.cli.regress_against import Side, train
from harness.utils.errors import BenchError
from results import StoreError
from tests.harness.cli.conftest import Fill
from tests.harness.conftest import ROOT, bench, bench_or_raise

PRINT_CODE = """\
import sys
from pathlib import Path

workspace = Path(sys.argv[-1])
workspace.mkdir()
(workspace / "bench.sqlite").write_text("{version} " + Path.cwd().name)
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a repository of one commit, whose identity is no user's."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")
    git("init", "--quiet")
    commit("mine.py", "# registers nothing")
    return folder


def git(*words: str) -> None:
    subprocess.run(["git", *words], check=True)


def commit(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
    git("add", path)
    git("commit", "--quiet", "--message", path)


@pytest.fixture
def trained(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """What training would leave: set `after` to another workspace of `fill` than the usual one."""
    workspaces = {"before": fill("usual", {"updown": 0}, seeds=3)}

    def stand_in(side: Side, *_: object) -> None:
        side.workspace.symlink_to(workspaces.get(side.workspace.name, workspaces["before"]))

    monkeypatch.setattr(regress_against, "train", stand_in)
    return workspaces


AGAINST = ("regress", "--against", "HEAD", "--models", "updown")


@pytest.mark.usefixtures("repository", "trained")
def test_identical_scores_pass() -> None:
    code, said = bench_or_raise(*AGAINST)
    assert (code, "bench regress: Passed: every score is identical." in said) == (0, True)
    assert re.search(r"updown +test +\S+ +\S+ +\+0\.00 +identical +— +\d+\.\d\d", said)


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(("points", "exit_code"), [(-60, 1), (60, 0), (-3, 0)])
def test_a_significant_fall_fails_in_every_format(
    fill: Fill, trained: dict[str, Path], tmp_path: Path, points: float, exit_code: int
) -> None:
    trained["after"] = fill("changed", {"updown": points}, seeds=3)
    result = bench(*AGAINST, "--findings", tmp_path / "found")
    printed = result.stdout  # standard error says what takes more than a second
    written = {path.suffix: path.read_text(encoding="utf-8") for path in (tmp_path / "found").iterdir()}
    assert (result.exit_code, printed) == (exit_code, written[".txt"])
    assert max(map(len, printed.splitlines())) <= 80
    content = json.loads(written[".json"])
    [change] = content["against"]["changes"]
    assert content["exit_code"] == exit_code
    assert 100 * change["change"] == pytest.approx(points, abs=1)
    assert (change["p"] < 0.05) == (points != -3)
    assert change["smallest"] > 0
    assert written[".md"].startswith("### ❌ Failed: " if exit_code else "### ✅ Passed: ")


@pytest.mark.usefixtures("repository")
def test_a_run_that_no_longer_finishes_fails(fill: Fill, trained: dict[str, Path]) -> None:
    trained["after"] = fill("broken", {"updown": 0}, seeds=3, failed=("updown",))
    code, said = bench_or_raise(*AGAINST)
    assert (code, "updown seed 0 no longer finishes: failed: RuntimeError" in " ".join(said.split())) == (1, True)


@pytest.mark.usefixtures("repository")
def test_a_commit_without_finished_runs_is_refused(fill: Fill, trained: dict[str, Path]) -> None:
    trained["before"] = fill("broken", {"updown": 0}, failed=("updown",))
    trained["after"] = fill("whole", {"updown": 0})
    with pytest.raises(BenchError, match="nothing to compare with: out of luck"):
        bench_or_raise(*AGAINST)


def test_each_side_is_trained_by_its_own_code(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a repository that has the package itself, and in a folder below its top."""
    commit("harness/__init__.py", "")
    commit("harness/cli/__init__.py", "")
    commit("harness/cli/__main__.py", PRINT_CODE.format(version="old"))
    commit("models/mine.py", "")
    git("worktree", "add", "--quiet", "--detach", "../tree", "HEAD")
    Path("harness/cli/__main__.py").write_text(PRINT_CODE.format(version="new"), encoding="utf-8")
    monkeypatch.chdir("models")
    sides = [
        Side(name, root, repository.parent / name)
        for name, root in (("a", repository.parent / "tree"), ("b", repository))
    ]
    for side in sides:
        train(side, repository, ["run"])
    assert [(side.workspace / "bench.sqlite").read_text() for side in sides] == ["old models", "new models"]


def test_a_package_that_is_imported_from_the_repository_is_of_the_commit(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is installed from its folder src, in place."""
    commit("src/mine_of_commits.py", "raise SystemExit('old')")
    git("worktree", "add", "--quiet", "--detach", "../tree", "HEAD")
    Path("src/mine_of_commits.py").write_text("raise SystemExit('new')", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path, str(repository / "src")])
    for name, root in (("old", repository.parent / "tree"), ("new", repository)):
        with pytest.raises(BenchError, match=rf"sys\.exit\('{name}'\)"):
            train(
                Side(name, root, repository.parent / name),
                repository,
                ["run", "--models", "blind", "--plugin", "mine_of_commits"],
            )


@pytest.mark.usefixtures("repository", "trained")
@pytest.mark.parametrize(
    ("changelog", "refused"),
    [("## [1.0.0] - 2026-11-26\n", True), ("## [2.0.0] - unreleased\n\n## [1.0.0]\n", False), ("none", True)],
)
def test_commits_before_2_0_are_refused(changelog: str, refused: bool) -> None:
    commit("CHANGELOG.md", changelog)
    assert bench_or_raise(*AGAINST)[0] == 0, "another project's changelog says nothing"
    commit("pyproject.toml", '[project]\nname = "captionbench"\n')
    if refused:
        with pytest.raises(BenchError, match=r"HEAD .* before captionbench 2\.0"):
            bench_or_raise(*AGAINST)
    else:
        assert bench_or_raise(*AGAINST)[0] == 0


@pytest.mark.usefixtures("repository", "trained")
def test_no_work_tree_is_left_behind(repository: Path) -> None:
    bench_or_raise(*AGAINST)
    listed = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert listed.splitlines()[1:] == []
    assert sorted(path.name for path in repository.iterdir()) == [".git", "mine.py"]


@pytest.mark.usefixtures("repository", "trained")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--against", "nowhere", "--models", "blind"], "--against nowhere: there is no such commit in .*repository"),
        (["--against", "HEAD"], "no models are named"),
        (["--against", "HEAD", "--models", "blind", "--metrics", "CIDER"], "--metrics CIDER: there is no such metric"),
        (["--against", "HEAD", "--update"], "--against needs none"),
        (["--models", "updown"], "define a new baseline"),
        (["--baseline", "nowhere"], "cannot read the recording nowhere/recording.json"),
        ([*AGAINST[1:], "--findings", "/proc/nowhere"], "cannot write --findings"),
    ],
)
def test_a_wrong_option_ends_in_one_sentence(words: list[str], message: str) -> None:
    with pytest.raises((BenchError, StoreError), match=message) as caught:
        bench_or_raise("regress", *words)
    assert caught.value.hint


def test_an_absolute_plugin_is_the_same_for_every_commit(repository: Path) -> None:
    with pytest.raises(BenchError, match="is the same file for every commit"):
        bench_or_raise(*AGAINST, "--plugin", repository / "mine.py")


@pytest.mark.usefixtures("repository")
def test_an_earlier_verdict_does_not_stand_for_this_one(tmp_path: Path) -> None:
    found = tmp_path / "found"
    found.mkdir()
    (found / "findings.json").write_text('{"exit_code": 0}', encoding="utf-8")
    (found / MANIFEST).write_text("findings.json\n", encoding="utf-8")
    with pytest.raises(StoreError):
        bench_or_raise("regress", "--baseline", "nowhere", "--findings", found)
    assert not (found / "findings.json").exists()
    (found / "findings.md").write_text("my notes", encoding="utf-8")
    with pytest.raises(BenchError, match=r"findings\.md exists"):
        bench_or_raise("regress", "--baseline", "nowhere", "--findings", found)
    assert (found / "findings.md").read_text(encoding="utf-8") == "my notes"


def test_the_action_uses_options_that_exist() -> None:
    action = yaml.safe_load((ROOT / ".github" / "actions" / "bench-regress" / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    script = "\n".join(step.get("run", "") for step in action["runs"]["steps"])
    known = set(re.findall(r"--[a-z-]+", bench("regress", "--help").output))
    used = set(re.findall(r"--[a-z-]+", "\n".join(re.findall(r" regress --.*|judge --.*", script))))
    assert {"--baseline", "--findings"} <= used <= known
    assert "${{" not in script, "inputs reach the shell as environment alone"


@pytest.mark.parametrize("text", ["{}", '{"format": "captionbench-recording-1", "format": 1}', "\xff", "NaN"])
def test_a_damaged_recording_is_refused_with_what_to_type(text: str, tmp_path: Path) -> None:
    (tmp_path / "recording.json").write_text(text, encoding="latin-1")
    with pytest.raises(StoreError, match="is not a recording") as caught:
        bench_or_raise("regress", "--baseline", tmp_path)
    assert (caught.value.hint or "").startswith(f"make one: bench regress --update --baseline {tmp_path};")
