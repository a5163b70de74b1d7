"""What a person sees of commands with progress: no escape codes as text, nothing of a display left behind."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.cli.terminal import COLUMNS, LINES, TerminalOutput, bench_in_terminal
from tests.harness.conftest import TINY, bench_ok, run_counts, run_words, set_options

pytestmark = pytest.mark.usefixtures("forked_workers")
NO_JAVA = {"BENCH_JAVA": "/no/java"}  # METEOR takes seconds of each process
ESCAPES = re.compile(r"\\x[0-9a-f]{2}|\x1b|\[[0-9;?]+[A-Za-z]")
DISPLAY = re.compile(r"[━╸╺⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]|^Running |Leading so far|\d+ of \d+ runs")
"""Bars, spinners and the panel of runs."""
MODELS = "blind,majority,human"


def check_clean(output: TerminalOutput) -> None:
    """No escape code is text, and nothing of the display stays; the cursor's line is empty."""
    for screen in (*output.screens, output.text):
        assert not ESCAPES.search(screen), screen
    left = [line for line in (*output.scrolled, *output.screen) if DISPLAY.search(line)]
    assert not left, left


@pytest.fixture(scope="module")
def workspace(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With finished runs; only read it, or caption with it."""
    folder = tmp_path_factory.mktemp("terminal") / "workspace"
    bench_ok(*run_words(data, folder, MODELS, TINY), "--backbone", "filterbank", "--jobs", 1, env=NO_JAVA)
    return folder


def tiny_run(data: Path, workspace: Path, models: str, *more: object) -> list[object]:
    return [*run_words(data, workspace, models, TINY), "--backbone", "filterbank", *more]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_ends_with_one_screen(data: Path, tmp_path: Path, jobs: int) -> None:
    words = tiny_run(data, tmp_path / "workspace", "blind,transformer_base,majority,human", "--jobs", jobs)
    output = bench_in_terminal(*words, **NO_JAVA)
    check_clean(output)
    assert output.code == 0
    assert run_counts(output.text).items() >= {"finished": 4, "failed": 0}.items()
    assert not [line for line in output.scrolled if line], "all of it is on one screen"
    lines = [line for line in output.screen if line]
    assert any(line.split()[:1] == ["next"] for line in lines)
    assert any(line.split()[:1] == ["report"] for line in lines)
    assert any(DISPLAY.search(screen) for screen in output.screens)
    assert any(re.search(r"^blind seed 0 ", screen, re.MULTILINE) for screen in output.screens)
    assert any("of 4 runs" in screen for screen in output.screens)


def test_a_failed_run_is_on_the_last_screen(data: Path, tmp_path: Path) -> None:
    plugin = Path(__file__).parents[1] / "plugins" / "broken_models.py"
    words = tiny_run(data, tmp_path / "workspace", "blind,broken_raises", "--jobs", 1, "--plugin", plugin)
    output = bench_in_terminal(*words, **NO_JAVA)
    check_clean(output)
    assert output.code == 1
    assert run_counts(output.text).items() >= {"finished": 1, "failed": 1}.items()
    assert [line for line in output.screen if line.startswith("failed  broken_raises seed 0")]


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_leaves_a_clean_screen(data: Path, tmp_path: Path, jobs: int) -> None:
    more = {**TINY, "schedule.stages.0.epochs": 500}
    words = [*run_words(data, tmp_path, "blind,transformer_base", more), "--backbone", "filterbank", "--jobs", jobs]
    output = bench_in_terminal(
        *words, interrupt_when=lambda screen: re.search(r"seed 0 +(xe|validating)", screen) is not None, **NO_JAVA
    )
    check_clean(output)
    assert output.code == 130
    assert any("interrupted" in line for line in output.screen)


def test_a_pipe_gets_a_line_an_epoch_and_the_same_last_screen(data: Path, tmp_path: Path) -> None:
    settings = {**TINY, "schedule.stages.0.epochs": 3}
    words = [*run_words(data, tmp_path / "workspace", "blind,majority", settings), "--backbone", "filterbank"]
    for jobs in (1, 2):
        text = bench_ok(*words, "--jobs", jobs, "--reuse", "none", env=NO_JAVA).stdout
        assert len(re.findall(r"xe epoch [123]: loss \d", text)) == 3, text
        assert not ESCAPES.search(text)
        lines = text.splitlines()
        last = lines[lines.index(next(line for line in lines if re.search("test after 6 updates", line))) :]
        assert len(last) < LINES
        assert max(len(line) for line in last if not line.startswith("report ")) <= COLUMNS, "but for a long path"
        assert run_counts(text)["finished"] == 2


def evaluate(data: Path, _: Path, folder: Path) -> list[object]:
    dataset = json.loads((data / "dataset_scenes.json").read_text())
    test = [image for image in dataset["images"] if image["split"] == "test"]
    captions = [{"image_id": image["imgid"], "caption": image["sentences"][0]["raw"]} for image in test]
    (folder / "captions.json").write_text(json.dumps(captions))
    return ["evaluate", folder / "captions.json", "--references", data / "dataset_scenes.json"]


def report(_: Path, workspace: Path, folder: Path) -> list[object]:
    return ["report", "--workspace", workspace, "--out", folder / "report"]


def features(data: Path, _: Path, folder: Path) -> list[object]:
    return ["data", "features", data, "--workspace", folder, "--backbone", "filterbank"]


def tune(data: Path, _: Path, folder: Path) -> list[object]:
    where = ("--models", "blind", "--data", data, "--workspace", folder, "--device", "cpu", "--backbone", "filterbank")
    return ["tune", *where, *set_options(TINY), "--trials", 2, "--jobs", 1]


def work(data: Path, _: Path, folder: Path) -> list[object]:
    words = tiny_run(data, folder, "blind,majority")
    bench_ok("data", "features", data, "--workspace", folder, "--backbone", "filterbank")
    bench_ok("plan", *words[1:], "--store")
    return ["work", "--workspace", folder]


def measure(_: Path, __: Path, folder: Path) -> list[object]:  # noqa: ARG001
    sizes = ("--regions", 4, "--visual-dim", 8, "--vocab-size", 20, "--caption-length", 3, "--repeats", 2)
    return ["cost", "measure", "--models", "blind", "--batch", 1, "--beam", 1, "--device", "cpu", *sizes]


def caption(data: Path, workspace: Path, _: Path) -> list[object]:
    return ["caption", data / "images" / "000000.png", "--run", "blind", "--workspace", workspace]


def flops(_: Path, __: Path, ___: Path) -> list[object]:
    return ["flops", "--models", "blind", "--regions", 4, "--caption-length", 3]


@pytest.mark.parametrize(
    "words", [evaluate, report, features, tune, work, measure, caption, flops], ids=lambda words: words.__name__
)
def test_a_command_shows_its_progress_and_leaves_its_answer(
    words: Callable[[Path, Path, Path], list[object]], data: Path, workspace: Path, tmp_path: Path
) -> None:
    output = bench_in_terminal(*words(data, workspace, tmp_path), **NO_JAVA)
    check_clean(output)
    assert output.code in {0, 1}, output.text  # 1: evaluate without METEOR
    assert any(DISPLAY.search(screen) for screen in output.screens), "something was shown while it worked"
    assert output.text.strip(), "and the answer stays"
