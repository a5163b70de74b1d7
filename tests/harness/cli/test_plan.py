"""`bench plan`: the options of `bench run`, runs that would be re-used, printed times, and a table for 80 columns."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from harness.cli.plan_published import show_published_times
from harness.cli.plan_table import shortened_to
from harness.config.load import load_preset
from tests.harness.conftest import TINY, DrawScenes, bench_or_raise, command_line, run_words

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
    assert {"cells", "channels", "throughput", "measure", "slurm", "detect"} <= planned.keys() - run.keys()


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """The files of a workspace, with times and sizes, but those that SQLite keeps while a database is read."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-shm", "-wal"))]
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in found}


def test_finished_runs_are_shown_as_re_used(draw_scenes: DrawScenes, tmp_path: Path) -> None:
    data, workspace = draw_scenes(train=24, val=4, test=6), tmp_path / "workspace"
    words = [*run_words(data, workspace, "blind,human", TINY), *FEATURES]
    before = bench_or_raise("plan", "--throughput", "1", *words[1:])[1]
    assert not workspace.exists()
    assert "first: 34 images checked" in before
    assert row(before, "blind")[:2] == ["1", "0"]
    assert bench_or_raise(*words)[0] == 0
    left, told = files(workspace), bench_or_raise("plan", "--throughput", "1", *words[1:])[1]
    assert row(told, "blind")[:2] == row(told, "human")[:2] == ["0", "1"]
    assert "2 finished before and re-used, 0 to do" in told
    assert "first:" not in told
    assert files(workspace) == left

    words[words.index("blind,human")] = "blind,show_tell"
    more = bench_or_raise("plan", "--throughput", "1", *words[1:], "--seeds", "2")[1]
    assert row(more, "blind")[:2] == ["1", "1"]
    assert row(more, "show_tell")[:2] == ["2", "0"]
    assert "first: features of 34 images (filterbank) (about" in " ".join(more.split())
    assert row(bench_or_raise("plan", "--throughput", "1", *words[1:], "--rerun")[1], "blind")[:2] == ["1", "0"], (
        "repeated"
    )
    assert files(workspace) == left


def row(told: str, model: str) -> list[str]:
    """The cells of a model's line."""
    [line] = [line for line in told.splitlines() if line.split()[:1] == [model]]
    return line.split()[1:]


def test_a_model_has_one_line_of_80_columns() -> None:
    name = "expansionnet_v2/static-8-to-256-dynamic-16"
    told = bench_or_raise("plan", "--models", name, "--data", "coco", "--throughput", "60", env={"COLUMNS": "80"})[1]
    lines = told.splitlines()
    assert max(map(len, lines)) <= 80
    [line] = [line for line in lines if line.startswith("expansionnet_v2/")]
    assert line.split()[1:3] == ["3", "?"]
    assert "re-used: not known, coco is known by its sizes alone" in told


@pytest.mark.parametrize(("name", "width", "shown"), [("updown", 6, "updown"), ("abcdefgh", 5, "ab…gh")])
def test_names_are_shortened_in_their_middle(name: str, width: int, shown: str) -> None:
    assert shortened_to(name, width) == shown


@pytest.mark.parametrize(
    ("preset", "parts"),
    [
        (
            "expansionnet-v2-paper",
            ["2.5 days, 60 device-hours: expansionnet_v2", "A100", "Table VII", "15 days"],
        ),
        ("expansionnet-v1-paper", ["210 hours, 840 device-hours: transformer_base, RL"]),
        ("aoanet-paper", ["7 days, 168 device-hours: aoanet"]),
        ("puret-paper", ["none, of the recipe puret-paper"]),
    ],
)
def test_printed_training_times_stand_beside_with_their_source(preset: str, parts: list[str]) -> None:
    text = io.StringIO()
    show_published_times(load_preset(preset), Console(file=text, width=80, highlight=False))
    assert [part for part in parts if part not in text.getvalue()] == []
    show_published_times(load_preset("quick"), Console(file=(none := io.StringIO())))
    assert none.getvalue() == "", "the controlled track has none"
