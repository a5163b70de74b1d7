"""Every block of the documentation runs, at tiny sizes, on files that stand in for those that it names."""

import ast
import shutil
import sys
from pathlib import Path

import pytest

from tests.documentation.pages import PAGES, Block, blocks_of
from tests.documentation.stand_ins import write_stand_ins
from tests.documentation.tiny import run_commands
from tests.harness.conftest import FORK, DrawScenes, bench, own_registry

RUN = run_commands()
PYTHON = [
    pytest.param(block, id=f"{page}-{number}")
    for page in PAGES
    if page not in ("docs/api.md", "docs/notebook.md")  # tests of their own run these
    for number, block in enumerate(blocks_of(page, ["python"]))
    if "results.open" not in block.code  # nor those that read results: tests/results/frames/test_notebook.py
    if "captionbench.load" not in block.code  # nor those that read runs: tests/documentation/test_sub_transformers.py
]


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory, draw_scenes: DrawScenes) -> Path:
    """A folder to copy, whose workspace is one for all pages: what one has trained, the next uses again."""
    folder = tmp_path_factory.mktemp("stand_ins")
    write_stand_ins(folder, draw_scenes)
    (folder / "workspace").symlink_to(tmp_path_factory.mktemp("workspace"))
    return folder


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path, stand_ins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shutil.copytree(stand_ins, tmp_path / "here", symlinks=True))
    for block, words in RUN[page]:
        run(block, words)


def run(block: Block, words: list[str]) -> None:
    """Run one command in this folder, and fail where it does."""
    if words[0] == "bench":
        with own_registry():
            result = bench(*words[1:])
        code, said = result.exit_code, result.stdout + (f"{result.exception!r}" if result.exception else "")
    else:
        assert words[0] == "pytest"
        copy = FORK.Process(target=lambda: sys.exit(pytest.main([*words[1:], "-n", "0"])))
        copy.start()
        copy.join()
        code, said = copy.exitcode, "what pytest said is above"
    assert code == 0, f"{block}\n{' '.join(words)}\n{said[-3000:]}"


@pytest.mark.parametrize("block", PYTHON)
def test_the_python_of_a_page_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, in an empty folder; what reads others' weights by its imports."""
    monkeypatch.chdir(tmp_path)
    tree = ast.parse(block.code)
    if "read_checkpoint" in block.code or ".pth" in block.code:  # tests/zoo/test_weights.py reads checkpoints
        tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    captions = [[[4, 5, 6], [4, 6]], [[7, 8], [7, 9]]]
    given = {"training_references": captions, "references": captions, "samples": [[[4, 5]], [[7]]]}
    exec(compile(tree, block.page, "exec"), {**given, "path": tmp_path / "frequencies.npz"})  # noqa: S102
