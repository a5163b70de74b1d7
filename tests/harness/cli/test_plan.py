"""`bench plan`: the options of `bench run`, runs that would be re-used, printed times, and a table for 80 columns."""

from pathlib import Path
from typing import Any

import pytest
import typer

from harness.utils.errors import BenchError
from results import Store
from tests.harness.conftest import TINY, DrawScenes, bench, bench_or_raise, command_line, run_words

pytestmark = pytest.mark.usefixtures("quick_runs")
FEATURES = ("--backbone", "filterbank", "--backbone-option", "grid=2")


def options(command: str) -> dict[str, Any]:
    """The options of a command, by name, with all that decides what they take."""
    found = typer.main.get_command(command_line()).commands[command].params  # type: ignore[attr-defined]
    seen = ("opts", "secondary_opts", "default", "required", "multiple", "is_flag", "min", "max", "envvar", "metavar")
    return {parameter.name: [getattr(parameter, each, None) for each in seen] for parameter in found if parameter.name}


def test_every_option_of_run_is_one_of_plan() -> None:
    planned, run = options("plan"), options("run")
    assert len(run) > 30
    assert {name: planned[name] for name in run} == run
    assert {"cells", "channels", "store", "detect"} <= planned.keys() - run.keys()


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """The files of a workspace, with times and sizes, but those that SQLite keeps while a database is read."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-shm", "-wal"))]
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in found}


def test_finished_runs_are_shown_as_re_used(draw_scenes: DrawScenes, tmp_path: Path) -> None:
    data, workspace = draw_scenes(train=24, val=4, test=6), tmp_path / "workspace"
    words = [*run_words(data, workspace, "blind,human", TINY), *FEATURES]
    before = bench_or_raise("plan", *words[1:])[1]
    assert not workspace.exists()
    assert "first: 34 images checked" in before
    assert row(before, "blind")[:2] == ["1", "0"]
    assert bench_or_raise(*words)[0] == 0
    left, told = files(workspace), bench_or_raise("plan", *words[1:])[1]
    assert row(told, "blind")[:2] == row(told, "human")[:2] == ["0", "1"]
    assert "2 finished before and re-used, 0 to do" in told
    assert "first:" not in told
    assert "an ESTIMATE" not in told, "nothing is left to train"
    assert files(workspace) == left

    words[words.index("blind,human")] = "blind,show_tell"
    more = bench_or_raise("plan", *words[1:], "--seeds", "2")[1]
    assert row(more, "blind")[:2] == ["1", "1"]
    assert row(more, "show_tell")[:2] == ["2", "0"]
    assert "first: features of 34 images (filterbank)" in " ".join(more.split())
    assert row(bench_or_raise("plan", *words[1:], "--reuse", "none")[1], "blind")[:2] == ["1", "0"], "repeated"
    assert files(workspace) == left


def row(told: str, model: str) -> list[str]:
    """The cells of a model's line."""
    [line] = [line for line in told.splitlines() if line.split()[:1] == [model]]
    return line.split()[1:]


def test_a_model_has_one_line_of_80_columns() -> None:
    name = "expansionnet_v2/static-8-to-256-dynamic-16"  # too long for a terminal of this width
    told = bench_or_raise("plan", "--models", name, "--data", "coco", env={"COLUMNS": "80"})[1]
    lines = told.splitlines()
    assert max(map(len, lines)) <= 80
    [line] = [line for line in lines if "…" in line]
    assert line.split()[1:3] == ["3", "?"]
    assert "re-used: not known, coco is known by its sizes alone" in told


def test_planned_runs_are_stored_and_worked_off(draw_scenes: DrawScenes, tmp_path: Path) -> None:
    """All of them together are what one `bench run` does."""
    data, workspace = draw_scenes(train=24, val=4, test=6), tmp_path / "workspace"
    words = [*run_words(data, workspace, "blind,human", TINY)[1:], *FEATURES]
    for _ in range(2):
        assert bench_or_raise("plan", *words, "--store")[0] == 0
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        first, second = store.keys({"planned"})
    assert bench_or_raise("work", first, "--workspace", workspace)[0] == 0
    code, said = bench_or_raise("work", "--workspace", workspace)
    assert (code, "1 finished" in said) == (0, True), "whatever is left"
    assert bench_or_raise("work", second, "--workspace", workspace)[1].endswith(" re-used, 0 failed\n")
    assert "0 finished, 2 re-used" in bench_or_raise("run", *words)[1]
    with pytest.raises(BenchError, match="--store"):
        bench_or_raise("plan", *words, "--store")
    with pytest.raises(BenchError, match="nothing-of-this-name"):
        bench_or_raise("work", "nothing-of-this-name", "--workspace", workspace)


@pytest.mark.parametrize(
    ("words", "said"), [("--data coco", "--store"), ("--detect 1.0", "--store: not used by --detect")]
)
def test_what_is_not_stored_is_refused(words: str, said: str) -> None:
    error = bench("plan", "--store", *words.split()).exception
    assert isinstance(error, BenchError)
    assert said in str(error)
