"""`bench plan`: the options of `bench run`, runs that would be re-used, printed times, and a table for 80 columns."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from harness.cli.plan import sbatch_script, shortened_to
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
    assert {"cells", "channels", "slurm", "detect"} <= planned.keys() - run.keys()


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


@pytest.mark.parametrize(("name", "width", "shown"), [("updown", 6, "updown"), ("abcdefgh", 5, "ab…gh")])
def test_names_are_shortened_in_their_middle(name: str, width: int, shown: str) -> None:
    assert shortened_to(name, width) == shown


def directives(script: str) -> dict[str, str]:
    """Slurm's options by name."""
    return {name: value for name, _, value in re.findall(r"^#SBATCH --([a-z-]+)(=(.*))?$", script, re.MULTILINE)}


def test_an_array_works_off_the_planned_runs(draw_scenes: DrawScenes, tmp_path: Path) -> None:
    """Each element is a `bench work KEY`; all of them together are what one `bench run` does."""
    data, workspace, file = draw_scenes(train=24, val=4, test=6), tmp_path / "workspace", tmp_path / "my runs.sbatch"
    words = [*run_words(data, workspace, "blind,human", TINY)[1:], *FEATURES]
    for _ in range(2):  # the second replaces what the first wrote
        assert bench_or_raise("plan", *words, "--slurm", file)[0] == 0
    script = file.read_text()
    found = directives(script)
    assert (found["array"], found["gpus-per-node"]) == ("0-1", f"{int(torch.cuda.is_available())}")
    [listed] = re.findall(r"^keys=\((.*)\)$", script, re.MULTILINE)
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        assert listed.split() == store.keys({"planned"})
    subprocess.run(["bash", "-n", file], check=True)
    first, second = listed.split()
    assert bench_or_raise("work", first, "--workspace", workspace)[0] == 0
    code, said = bench_or_raise("work", "--workspace", workspace)
    assert (code, "1 finished" in said) == (0, True), "whatever is left"
    assert bench_or_raise("work", second, "--workspace", workspace)[1].endswith("0 skipped, 0 failed\n")
    assert "0 finished, 2 re-used" in bench_or_raise("run", *words)[1]
    with pytest.raises(BenchError, match="--slurm"):
        bench_or_raise("plan", *words, "--slurm", file)
    with pytest.raises(BenchError, match="nothing-of-this-name"):
        bench_or_raise("work", "nothing-of-this-name", "--workspace", workspace)


@pytest.mark.parametrize(
    ("devices", "nodes", "per_node", "started"),
    [
        (1, "1", "1", "-m harness.cli work"),
        (4, "1", "4", "-m torch.distributed.run --standalone --nproc-per-node 4"),
        (16, "2", "8", "-m torch.distributed.run --nnodes 2 --nproc-per-node 8"),
    ],
)
def test_several_devices_are_started_by_torchrun(devices: int, nodes: str, per_node: str, started: str) -> None:
    script = sbatch_script("a", ["b-s0"], devices, [], on_gpus=True)
    found = directives(script)
    assert (found["nodes"], found["gpus-per-node"], found["ntasks-per-node"]) == (nodes, per_node, "1")
    assert started in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("name", ["a\nrm -r b", "\udcff"])
def test_a_name_that_is_no_line_is_not_in_the_script(name: str) -> None:
    assert name not in sbatch_script(name, ["b-s0"], 1, [], on_gpus=False)


def test_a_warned_job_ends_its_run_and_is_queued_again(tmp_path: Path) -> None:
    """`srun` and `scontrol` are stood for; the run says when it can be warned, so that nothing depends on time."""
    programs = {
        "srun": 'trap "echo TERM > ended; exit 143" TERM; echo "$@" > run; '
        "until [ -e waiting ]; do sleep 0.05; done; kill -USR1 $JOB; while :; do sleep 0.05; done",
        "scontrol": 'echo "$@" > queued',
    }
    for name, program in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{program}\n")
        (tmp_path / name).chmod(0o755)
    script = sbatch_script("a", ["a-s0", "b-s0"], 1, ["--workspace", "a b"], on_gpus=False)
    script = script.replace('work "$@" &', 'export JOB=$$\nwork "$@" &').replace(
        "child=$!\n", "child=$!\ntouch waiting\n"
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment |= {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "77"}
    (tmp_path / "script").write_text(script)
    done = subprocess.run(["bash", "script"], cwd=tmp_path, env=environment, timeout=60)
    assert done.returncode == 143
    assert (tmp_path / "run").read_text() == f"{sys.executable} -m harness.cli work b-s0 --workspace a b\n"
    assert (tmp_path / "queued").read_text() == "requeue 77_1\n"
    assert (tmp_path / "ended").read_text() == "TERM\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--data coco", "--slurm"),
        ("--detect 1.0", "--slurm: not used by --detect"),
        ("--devices 9", "--devices 9 are not the same number on each of 2 nodes of 8"),
    ],
)
def test_what_is_not_written_is_refused(tmp_path: Path, words: str, said: str) -> None:
    error = bench("plan", "--slurm", tmp_path / "a", *words.split()).exception
    assert isinstance(error, BenchError)
    assert said in str(error)
    assert not (tmp_path / "a").exists()
