"""`bench regress --against COMMIT`: train a commit and the files as they are, and compare the scores."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.cli.findings import Findings
from harness.cli.inputs import doing, progress_aside
from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from results.comparison.commits import CommitComparison
    from results.comparison.recording import Request

_FIRST_MAJOR: Final = 2
_LAST_LINES: Final = 3


def compare_with_commit(commit: str, request: Request, seeds: int, metrics: Sequence[str]) -> Findings:
    """Train the models of a request by `commit` and by the files as they are, and compare these metrics."""
    from reports.text import commits
    from results.metrics import metric_names

    if unknown := [metric for metric in metrics if metric not in metric_names()]:
        raise BenchError(f"--metrics {unknown[0]}: there is no such metric", f"these are: {', '.join(metric_names())}")
    if fixed := next((name for name in request.plugins if Path(name).is_absolute()), None):
        raise BenchError(f"--plugin {fixed} is the same file for every commit", "write its path in the repository")
    repository = Path(git("rev-parse", "--show-toplevel")).resolve()
    try:
        revision = git("rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}")
    except BenchError as error:
        hint = "name one, and fetch it: in GitHub's checkout, fetch-depth: 0"
        raise BenchError(f"--against {commit}: there is no such commit in {repository}", hint) from error
    refuse_before_2_0(repository, commit, revision)
    words = ["run", "--preset", request.preset, "--seeds", str(seeds), "--models", ",".join(request.models)]
    for change in request.changes:
        words += ["--set", change]
    for plugin in request.plugins:
        words += ["--plugin", plugin]
    with tempfile.TemporaryDirectory() as scratch:
        before = Side(f"{commit} ({revision[:10]})", Path(scratch) / "tree", Path(scratch) / "before")
        after = Side("these files", repository, Path(scratch) / "after")
        git("worktree", "add", "--detach", str(before.root), revision)
        try:
            train(before, repository, words)
            train(after, repository, words)
            with doing("Comparing"):
                result = compare_sides(before, after, metrics)
        finally:
            with suppress(BenchError):
                git("worktree", "remove", "--force", str(before.root))
    content = {"conclusion": commits.conclusion(result), "against": commits.content(result)}
    return Findings(result.exit_code, partial(commits.print_findings, result), commits.markdown(result), content)


@dataclass(frozen=True)
class Side:
    """One of the two states of the code: the top folder of its files, and the workspace that it trains in."""

    name: str
    root: Path
    workspace: Path


def train(side: Side, repository: Path, words: Sequence[str]) -> None:
    """Run `bench` with these words in a side's copy of the current folder, with the code of that side."""
    # Every folder of the repository that Python imports from is taken from the side instead.
    within = [Path(entry).resolve() for entry in sys.path if Path(entry).resolve().is_relative_to(repository)]
    imported = [side.root, *(side.root / path.relative_to(repository) for path in within)]
    variables = {name: value for name, value in os.environ.items() if name != "BENCH_DB"}
    variables["PYTHONPATH"] = os.pathsep.join(map(str, imported))
    current = Path.cwd().resolve().relative_to(repository)
    folder = side.root / current
    if not folder.is_dir():
        raise BenchError(f"{side.name} has no folder {current}", "go to a folder that both commits have")
    command = [sys.executable, "-m", "harness.cli", *words, "--workspace", str(side.workspace)]
    lines: list[str] = []
    with progress_aside() as reporter:
        reporter.note(f"{side.name}: bench {shlex.join(words)}")
        with subprocess.Popen(
            command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    lines.append(line.strip())
                    if line.startswith("["):  # a run begins, as "[1/3] updown seed 0"
                        reporter.note(f"{side.name}: {line.strip()}")
            except BaseException:
                process.terminate()
                raise
    if not (side.workspace / "bench.sqlite").is_file():
        last = " ".join(lines[-_LAST_LINES:])
        raise BenchError(f"{side.name}: bench run ended with {process.returncode}: {last}")


def compare_sides(before: Side, after: Side, metrics: Sequence[str]) -> CommitComparison:
    """Compare the workspaces of both sides; BenchError if there is nothing to compare."""
    from results.comparison.commits import compare_commits
    from results.runs.reading import evaluated_images, failures, stored_runs
    from results.store.store import Store

    # Opened for writing, so that a database of an older schema is upgraded.
    with Store(before.workspace / "bench.sqlite") as first, Store(after.workspace / "bench.sqlite") as second:
        sides = stored_runs(first), stored_runs(second)
        unfinished = failures(second)
        if not sides[0].runs:
            reason = next((run.reason or run.status for run in failures(first)), "no run")
            raise BenchError(f"{before.name} has nothing to compare with: {reason}", "name a commit whose runs finish")
        result = compare_commits(
            before.name, *sides, unfinished=unfinished, images=evaluated_images(first), metrics=metrics
        )
    if not result.changes and not result.lost:
        raise BenchError(f"{before.name} and {after.name} have no score in common")
    return result


def refuse_before_2_0(repository: Path, commit: str, revision: str) -> None:
    """BenchError for a commit of captionbench's own repository before 2.0, by the changelog's first heading."""
    project = repository / "pyproject.toml"
    if not project.is_file():
        return
    if tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("name") != "captionbench":
        return
    try:
        changelog = git("show", f"{revision}:CHANGELOG.md")
    except BenchError:  # the first commits have none
        changelog = ""
    heading = re.search(r"^## \[(\d+)\.[^]]*\]", changelog, re.MULTILINE)
    if heading is None or int(heading[1]) < _FIRST_MAJOR:
        raise BenchError(
            f"{commit} ({revision[:10]}) is a commit before captionbench {_FIRST_MAJOR}.0, which cannot be compared",
            f"name a commit since {_FIRST_MAJOR}.0",
        )


def git(*words: str) -> str:
    """What git prints; BenchError if it fails."""
    try:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()
    except OSError as error:
        raise BenchError(f"git cannot be started: {error.strerror}", "install git") from error
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["it failed"])[-1]
        raise BenchError(f"git {shlex.join(words)}: {reason}", "type it in a folder of the repository") from error
