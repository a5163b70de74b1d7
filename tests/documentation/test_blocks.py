"""Every block of the documentation runs, at tiny sizes, on files that stand in for those that it names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation.pages import PAGES, SHELL, Block, blocks_of, commands_of, lines_of
from tests.documentation.stand_ins import write_stand_ins
from tests.documentation.tiny import EDITS, ONLY_PARSED, reason_of, run_commands
from tests.harness.conftest import DrawScenes, bench, bench_environment, own_registry

RUN = run_commands()
LINES = [line for page in PAGES for block in blocks_of(page, SHELL) for line in lines_of(block.code)]
PYTHON = [
    pytest.param(block, id=f"{page}-{number}")
    for page in PAGES
    if page != "docs/notebook.md"  # a test of its own runs these
    for number, block in enumerate(blocks_of(page, ["python"]))
    if "results.open" not in block.code  # nor those that read results: tests/results/frames/test_notebook.py
]


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run(
    page: str, tmp_path: Path, draw_scenes: DrawScenes, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stand_ins(tmp_path, draw_scenes)
    monkeypatch.chdir(tmp_path)
    for block, words in RUN[page]:
        run(block, words)


def run(block: Block, words: list[str]) -> None:
    """Run one command in this folder, and fail where it does."""
    if words[0] == "bench":
        with own_registry():
            result = bench(*words[1:])
        code, said = result.exit_code, result.output + (f"{result.exception!r}" if result.exception else "")
    else:
        done = subprocess.run(
            [sys.executable, "-m", *words, *(["-n", "0"] if words[0] == "pytest" else [])],
            env=bench_environment(), capture_output=True, text=True,
        )  # fmt: skip
        code, said = done.returncode, done.stdout + done.stderr
    assert code == 0, f"{block}\n{' '.join(words)}\n{said[-3000:]}"


@pytest.mark.parametrize("block", PYTHON)
def test_the_python_of_a_page_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, in a folder with no more than an empty list of words; what reads authors' checkpoints by its imports."""
    monkeypatch.chdir(tmp_path)
    Path("words.json").write_text("{}")
    tree = ast.parse(block.code)
    if "read_checkpoint" in block.code:  # tests/zoo/test_weights.py does the rest, on checkpoints of few numbers
        tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    captions = [[[4, 5, 6], [4, 6]], [[7, 8], [7, 9]]]
    given = {"training_references": captions, "references": captions, "samples": [[[4, 5]], [[7]]]}
    exec(compile(tree, block.page, "exec"), {**given, "path": tmp_path / "frequencies.npz"})  # noqa: S102


@pytest.mark.parametrize("pattern", ONLY_PARSED)
def test_what_is_only_parsed_is_there(pattern: str) -> None:
    assert any(re.search(pattern, line) for line in LINES)


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in EDITS])
def test_what_is_made_smaller_is_there(pattern: str) -> None:
    commands = [" ".join(words) for line in LINES for words in commands_of(line) if reason_of(line) is None]
    assert any(re.search(pattern, command) for command in commands)
