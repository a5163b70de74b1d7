"""`bench plan --slurm`: the script that it writes, and what it does under a shell that stands for Slurm's."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from harness.cli.plan_slurm import PlannedRuns, sbatch_script
from harness.utils.errors import BenchError
from tests.harness.conftest import bench, bench_or_raise


def directives(script: str) -> dict[str, str]:
    """Slurm's options by name."""
    return {name: value for name, _, value in re.findall(r"^#SBATCH --([a-z-]+)(=(.*))?$", script, re.MULTILINE)}


def planned(devices: int = 1, **seconds: float) -> PlannedRuns:
    return PlannedRuns(["updown", "m2"], ["human", "majority"], 5, 2, devices, seconds)


def test_the_command_writes_an_element_for_each_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    words = "plan --models blind,human --preset smoke --seeds 2 --throughput 0.001 --set schedule.stages.0.epochs=2"
    for _ in range(2):  # the second replaces what the first wrote
        code, said = bench_or_raise(*words.split(), "--slurm", "my runs.sbatch", "--db", "postgresql://host/name")
        assert code == 0
    script = Path("my runs.sbatch").read_text()
    assert "one element a run: sbatch my runs.sbatch" in said
    assert directives(script)["array"] == "0-2"
    assert "models=(blind blind human)\nseeds=(0 1 0)\n" in script
    assert "--preset smoke --set=schedule.stages.0.epochs=2 --workspace workspace --db postgresql://host/name" in script
    subprocess.run(["bash", "-n", "my runs.sbatch"], check=True)


@pytest.mark.parametrize(
    ("devices", "nodes", "per_node", "started"),
    [
        (1, "1", "1", "srun bench run"),
        (4, "1", "4", "srun torchrun --standalone --nproc-per-node 4"),
        (16, "2", "8", "srun torchrun --nnodes 2 --nproc-per-node 8"),
    ],
)
def test_several_devices_are_started_by_torchrun(devices: int, nodes: str, per_node: str, started: str) -> None:
    script = sbatch_script("a", planned(devices), [])
    found = directives(script)
    assert (found["nodes"], found["gpus-per-node"], found["ntasks-per-node"]) == (nodes, per_node, "1")
    assert started in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_time_is_twice_the_longest_estimate_or_a_day() -> None:
    assert directives(sbatch_script("a", planned(), []))["time"] == "24:00:00"
    assert directives(sbatch_script("a", planned(updown=60.0), []))["time"] == "1:00:00"
    assert directives(sbatch_script("a", planned(updown=60.0, m2=9000.0), []))["time"] == "5:00:00"


@pytest.mark.parametrize("name", ["a\nrm -r b", "\udcff"])
def test_a_name_that_is_no_line_is_not_in_the_script(name: str) -> None:
    script = sbatch_script(name, planned(), [])
    assert "sbatch FILE --data" in script
    assert name not in script


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
    script = sbatch_script("a", planned(), ["--preset", "a b"])
    script = script.replace('run "$@" &', 'export JOB=$$\nrun "$@" &').replace(
        "child=$!\n", "child=$!\ntouch waiting\n"
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment |= {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "77"}
    (tmp_path / "script").write_text(script)
    done = subprocess.run(["bash", "script", "--data", "coco.json"], cwd=tmp_path, env=environment, timeout=60)
    assert done.returncode == 143
    assert (tmp_path / "run").read_text() == (
        "bench run --models m2 --first-seed 5 --seeds 1 --preset a b --data coco.json\n"
    )
    assert (tmp_path / "queued").read_text() == "requeue 77_1\n"
    assert (tmp_path / "ended").read_text() == "TERM\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--control auto", "--slurm and --control contradict each other"),
        ("--detect 1.0", "--slurm: not used by --detect"),
        ("--devices 9", "--devices 9 are not the same number on each of 2 nodes of 8"),
    ],
)
def test_what_is_not_written_is_refused(tmp_path: Path, words: str, said: str) -> None:
    error = bench("plan", "--slurm", tmp_path / "a", *words.split()).exception
    assert isinstance(error, BenchError)
    assert said in str(error)
    assert not (tmp_path / "a").exists()
