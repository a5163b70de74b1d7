"""Each page begins with a command or a few lines of Python and their real output; so are further shown outputs."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.documentation.pages import PAGES, ROOT, SHELL, Block, blocks_of, lines_of, numbers_in, text_of
from tests.documentation.stand_ins import write_stand_ins
from tests.harness.conftest import DrawScenes, bench, bench_command, own_registry
from tests.results.frames.test_notebook import run as run_python

DOCS = [page for page in PAGES if page.startswith("docs/")]
FIRST_LINES = 12

# Pages whose example reads files of the reader's, with the stand-ins that are read here instead.
ON_STAND_INS = {"docs/own_data.md"}
# Pages whose example reads a workspace of an older release, with its database.
WITH_WORKSPACE = {"docs/migration.md": "tests/results/assets/v1_0_0.sqlite"}
# Pages whose example is not run here, with the reason.
NOT_RUN = {
    "docs/tour.md": "trains for minutes; test_blocks.py runs it at a tiny size",
    "docs/recipes.md": "Flickr8k, whose licence forbids a copy; test_blocks.py converts a stand-in",
    "docs/regression.md": "a minute; tests/harness/benchmark/test_gate.py runs it at a tiny size",
}


def first_example(page: str) -> tuple[Block, Block]:
    """The first block of a page, and the output below it."""
    code, output, *_ = blocks_of(page)
    return code, output


def examples_to_run() -> Iterator[tuple[str, str, str]]:
    """Page, code and output: the first example of a page, and each further one that reads a committed database."""
    for page in DOCS:
        for index, (code, output) in enumerate(pairwise(blocks_of(page))):
            adjacent = f"```{code.language}\n{code.code}```\n\n```text\n{output.code}```" in text_of(page)
            if code.language not in (*SHELL, "python") or not adjacent:
                continue
            if (index == 0 and page not in NOT_RUN) or (code.language in SHELL and "baselines/" in code.code):
                yield page, code.code, output.code


EXAMPLES = [pytest.param(*example, id=f"{example[0]}-{number}") for number, example in enumerate(examples_to_run())]


def is_row(line: str) -> bool:
    """Whether a line is one of a table, in a terminal or in Markdown."""
    return line.startswith("|") or re.search(r"\S {2,}\S", line) is not None


def row_of(line: str) -> tuple[str, list[str]]:
    """The first word of a table's row, and its numbers."""
    return line.strip("| ").split()[0], numbers_in(line)


def missing_lines(shown_output: str, real_output: str) -> list[str]:
    """Lines of the shown output whose numbers are not in the real one. Times and words of sentences may differ."""
    rows = [row_of(line) for line in real_output.splitlines() if is_row(line)]
    numbers = set(numbers_in(real_output))
    missing = []
    for line in shown_output.splitlines():
        shown_numbers = numbers_in(line)
        if is_row(line):
            if shown_numbers and row_of(line) not in rows:
                missing.append(line)
        elif not numbers.issuperset(shown_numbers):
            missing.append(line)
    return missing


def outputs_of(code: str) -> Iterator[str]:
    """What each line of a shell block prints, run in this folder."""
    exit_code = 0
    for line in lines_of(code):
        words = shlex.split(line.removeprefix("uv run "))
        if words[0] == "bench":
            with own_registry():
                result = bench(*words[1:], env={"COLUMNS": "80"})
            exit_code, output = result.exit_code, result.output
            if result.exception and not isinstance(result.exception, SystemExit):  # what `main` turns into a message
                done = subprocess.run(bench_command(*words[1:]), capture_output=True, text=True)
                exit_code, output = done.returncode, done.stdout + done.stderr
            yield output
        elif words == ["echo", "$?"]:
            yield str(exit_code)
        else:
            yield output_of(line)


def output_of(line: str) -> str:
    command, _, target = line.partition(" > ")
    words = shlex.split(command)
    if words[0] == "echo":
        Path(target).write_text(words[1] + "\n", encoding="utf-8")
        return ""
    if words[0] == "cat":
        return Path(words[1]).read_text(encoding="utf-8")
    assert words[0] == "pytest"
    done = subprocess.run([sys.executable, "-m", *words, "-q", "-n", "0"], capture_output=True, text=True)
    return done.stdout


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory, draw_scenes: DrawScenes) -> Path:
    folder = tmp_path_factory.mktemp("stand_ins")
    write_stand_ins(folder, draw_scenes)
    return folder


@pytest.mark.parametrize("page", DOCS)
def test_a_page_begins_with_an_example_and_its_output(page: str) -> None:
    code, output = first_example(page)
    assert code.language in (*SHELL, "python")
    assert output.language == "text"
    before, _, after = text_of(page).partition(f"```{code.language}\n{code.code}```\n")
    assert len(before.splitlines()) <= FIRST_LINES
    assert "\n## " not in before
    assert "\n## " not in after.partition("```text\n")[0]


@pytest.mark.parametrize(("page", "code", "shown_output"), EXAMPLES)
def test_the_output_is_real(
    page: str,
    code: str,
    shown_output: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = tmp_path / "here"
    if page in ON_STAND_INS:
        shutil.copytree(request.getfixturevalue("stand_ins"), here)
    else:
        here.mkdir()
        (here / "baselines").symlink_to(ROOT / "baselines")
    if database := WITH_WORKSPACE.get(page):
        (here / "workspace").mkdir()
        shutil.copy(ROOT / database, here / "workspace" / "bench.sqlite")
    monkeypatch.chdir(here)
    if code.startswith(("import ", "from ")):
        names: dict[str, Any] = {}
        real_output = run_python(code, names) + capsys.readouterr().out
    else:
        real_output = "\n".join(outputs_of(code))
    assert not missing_lines(shown_output, real_output), real_output
