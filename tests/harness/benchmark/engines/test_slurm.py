"""Runs as jobs of Slurm: what would be submitted, what becomes of lost jobs, and what is refused before any work."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness.benchmark.engines.filesystems import is_shared
from harness.benchmark.engines.interface import Resources
from harness.benchmark.engines.slurm_job import ExecuteRun

from harness.benchmark.context import RunContext
from harness.benchmark.engines import filesystems, slurm
from harness.benchmark.engines.slurm import SlurmEngine
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results import DatasetRecord, Store
from tests.harness.benchmark.small_runs import make_spec, quiet
from tests.harness.conftest import DrawScenes, bench_or_raise, run_words

submitit = pytest.importorskip("submitit", reason="uv sync --inexact --extra slurm")
POSTGRES = "postgresql://host/name"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (slurm.CLUSTER, slurm.SHARED):
        monkeypatch.delenv(name, raising=False)


def test_the_script_asks_for_what_a_run_is_to_get(monkeypatch: pytest.MonkeyPatch, small: RunContext) -> None:
    monkeypatch.setattr("harness.benchmark.engines.slurm.memory_bytes", lambda *_: 2_300_000_000)
    on_gpu = replace(small, execution=replace(small.execution, device=torch.device("cuda")))
    engine = SlurmEngine(Resources(cpus=4, hours=1.5), jobs=8)
    assert engine.slots([make_spec(str(number)) for number in range(30)], on_gpu) == 8
    executor = submitit.AutoExecutor(folder="logs", cluster="debug")
    asked = engine.parameters(30)
    executor.update_parameters(**asked)  # refuses what it does not know
    script = submitit.slurm.slurm._make_sbatch_string(
        command="", folder="logs", **_as_slurm(asked), map_count=30, stderr_to_stdout=True
    )
    found = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", script, re.MULTILINE))
    assert (found["array"], found["time"], found["mem"]) == ("0-29%8", "90", "3GB")
    assert (found["cpus-per-task"], found["gpus-per-node"], found["signal"]) == ("4", "1", "USR2@120")


def _as_slurm(asked: dict[str, Any]) -> dict[str, Any]:
    """The parameters under the names that Slurm's executor has for them."""
    names = {"name": "job_name", "timeout_min": "time", "mem_gb": "mem"}
    renamed = {names.get(name, name.removeprefix("slurm_")): value for name, value in asked.items()}
    return renamed | {"mem": f"{renamed['mem']}GB"}


@pytest.mark.parametrize("resources", [Resources(gpus=0.5), Resources(cpus=1.5)])
def test_fractions_are_refused(small: RunContext, resources: Resources) -> None:
    with pytest.raises(BenchError, match="Slurm gives whole ones"):
        SlurmEngine(resources, 0).slots([make_spec("a")], small)


def test_needs_are_looked_for_before_any_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine, here = SlurmEngine(Resources(), 0), Workspace(tmp_path)
    monkeypatch.setattr(slurm.shutil, "which", lambda _: None)
    with pytest.raises(BenchError, match="needs sbatch"):
        engine.check(here)
    monkeypatch.setattr(slurm.shutil, "which", lambda _: "/usr/bin/sbatch")
    monkeypatch.setattr(slurm, "is_shared", lambda _: False)
    with pytest.raises(BenchError, match="on a disk of this machine alone"):
        engine.check(here)
    monkeypatch.setenv(slurm.SHARED, "1")
    with pytest.raises(BenchError, match="SQLite's log works on one alone"):
        engine.check(here)
    engine.check(Workspace(tmp_path, POSTGRES))
    monkeypatch.setattr(slurm, "find_spec", lambda _: None)
    with pytest.raises(BenchError, match="not installed") as refused:
        engine.check(Workspace(tmp_path, POSTGRES))
    assert refused.value.hint == "uv sync --inexact --extra slurm"
    monkeypatch.undo()
    monkeypatch.setenv(slurm.CLUSTER, "elsewhere")
    with pytest.raises(BenchError, match="BENCH_SLURM_CLUSTER=elsewhere"):
        SlurmEngine(Resources(), 0).check(here)


@pytest.mark.parametrize(("folder", "shared"), [("/home/a/w", True), ("/var/w", False), ("/tmp/w", False)])
def test_the_kind_of_the_nearest_mount_says_whether_nodes_share_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str, shared: bool
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\nnone /tmp tmpfs rw 0 0\n")
    monkeypatch.setattr(filesystems, "MOUNTS", mounts)
    assert is_shared(Path(folder)) is shared
    monkeypatch.setattr(filesystems, "MOUNTS", tmp_path / "none")
    assert is_shared(Path(folder))


class LostJob:
    """A job that Slurm ended, or one that another command submitted and that goes on."""

    def __init__(self, folder: str, job_id: str) -> None:
        self.job_id = job_id
        self.paths = SimpleNamespace(folder=folder, stderr=Path(folder) / "err")
        self.state = "RUNNING"

    def done(self) -> bool:
        return True

    def exception(self) -> Exception | None:
        return RuntimeError("out of memory\nand more") if self.job_id == "lost" else None

    def result(self) -> str:
        return "finished"


def test_jobs_of_an_earlier_command_are_waited_for_and_lost_ones_are_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(submitit.AutoExecutor, "job_class", LostJob, raising=False)
    monkeypatch.setattr(slurm, "ASK_S", 0.0)
    monkeypatch.setenv(slurm.CLUSTER, "local")
    workspace, said = Workspace(tmp_path), io.StringIO()
    (tmp_path / "err").write_text("slurmstepd: oom-kill\n")
    specs = [make_spec("a-s0", "a"), make_spec("b-s0", "b")]
    for spec, job in zip(specs, ("alive", "lost"), strict=True):
        workspace.run_folder(spec.key).mkdir(parents=True)
        content = {"cluster": "local", "job": job, "folder": str(tmp_path)}
        (workspace.run_folder(spec.key) / slurm.JOB_FILE).write_text(json.dumps(content))
    with Store(workspace.database) as store:
        store.record_dataset(DatasetRecord("scenes", "f" * 16, "/pictures", {"test": 1}, ()))
        store.plan(specs)
        runs = [(spec.model, spec) for spec in specs]
        shared: Any = SimpleNamespace(workspace=workspace)
        engine = SlurmEngine(Resources(), 0)
        ended = list(engine.execute(runs, shared, store, quiet(said), None))  # type: ignore[arg-type]
        assert [(spec.model, how) for spec, how in ended] == [("a", "finished"), ("b", "failed")]
        with store.reading() as connection:
            [[error, reason, tail]] = connection.exec_driver_sql(
                "select error_class, reason, log_tail from cells where status = 'failed'"
            ).all()
    assert error == "WorkerDied"
    assert reason.startswith("job lost ended before its run: out of memory; its log is")
    assert tail == "slurmstepd: oom-kill"
    assert "0 jobs submitted, 2 found at work" in said.getvalue()


def test_a_warned_job_is_put_back_as_the_same_run() -> None:
    execute, spec = ExecuteRun(Path("shared"), Path("folder"), 1), make_spec("a-s0", "a")
    again = execute.checkpoint("[1/1] a", spec)
    assert (again.function, again.args) == (execute, ("[1/1] a", spec))


def test_the_command_ends_with_its_rows(
    monkeypatch: pytest.MonkeyPatch, draw_scenes: DrawScenes, tmp_path: Path
) -> None:
    """submitit's executor of this process stands for Slurm."""
    monkeypatch.setattr(SlurmEngine, "check", lambda *_: None)
    monkeypatch.setenv(slurm.CLUSTER, "debug")
    words = run_words(draw_scenes(train=24, val=4, test=6), tmp_path, "majority,human", {})
    words += ["--backbone", "filterbank"]
    code, said = bench_or_raise(*words, "--on", "slurm")
    assert code == 0, said
    assert "2 finished, 0 re-used, 0 failed" in said
    assert bench_or_raise(*words)[1].count("re-used, finished before") == 2
