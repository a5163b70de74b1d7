"""Runs as jobs of Slurm, through submitit: an array with one job a run, requeued where it is pre-empted or timed out.

Jobs outlive the command that submitted them. The same command then waits for them instead of submitting others, and
the lock of a run's folder and the store decide who trains it, so that nothing is trained twice.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from harness.benchmark.context import RunContext
from harness.benchmark.engines.crew import LOST_WORKER
from harness.benchmark.engines.estimate import memory_bytes
from harness.benchmark.engines.filesystems import is_shared
from harness.benchmark.engines.interface import Resources
from harness.benchmark.engines.slurm_job import ExecuteRun
from harness.benchmark.worker import Ended, Shared, Worker
from harness.utils.atomic import replacing, write_text
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results import Store
from results.errors import install_extra
from results.records import RunSpec
from results.store.engine import resolve_url, sqlite_file
from zoo.errors import first_line

CLUSTER, SHARED = "BENCH_SLURM_CLUSTER", "BENCH_SLURM_SHARED"
"""Variables: `local` rehearses in processes of this machine; 1 says that the workspace is on a disk of all nodes."""
WARNING_S = 120
"""How long before the end of its time a job is told, to be requeued."""
ASK_S = 10.0
"""How often Slurm is asked for jobs; it asks of its users not to do so more often."""
JOB_FILE = "slurm.json"
_ALIVE = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "RESIZING", "SUSPENDED"}


@dataclass(frozen=True, slots=True)
class _Limits:
    """What `slots` found of the runs."""

    memory: int = 0
    gpus: int = 0


class SlurmEngine:
    """See `harness.benchmark.engines.interface.Engine`.

    Args:
        resources: of each run; GPUs are whole ones.
        jobs: at most so many at a time; 0: as many as Slurm gives.
    """

    finds_devices = False

    def __init__(self, resources: Resources, jobs: int) -> None:
        self._resources, self._jobs = resources, jobs
        self._cluster = os.environ.get(CLUSTER, "slurm")
        self._limits = _Limits()

    def check(self, workspace: Workspace) -> None:
        """Look for submitit, sbatch and a workspace that jobs on other nodes see.

        Raises:
            BenchError: one of them is missing.
        """
        if find_spec("submitit") is None:
            raise BenchError("--on slurm needs submitit, which is not installed", install_extra("slurm"))
        if self._cluster not in {"slurm", "local"}:
            raise BenchError(f"{CLUSTER}={self._cluster} is unknown", f"unset it, or write {CLUSTER}=local")
        if self._cluster == "local":
            return
        if shutil.which("sbatch") is None:
            raise BenchError(
                "--on slurm needs sbatch, which is not on this machine",
                f"run the command on a login node of the cluster; {CLUSTER}=local rehearses it here",
            )
        if not is_shared(workspace.root) and os.environ.get(SHARED) != "1":
            raise BenchError(
                f"--on slurm: the workspace {workspace.root} is on a disk of this machine alone",
                f"choose a folder that all nodes share, with --workspace; if this is one, write {SHARED}=1",
            )
        if sqlite_file(resolve_url(workspace.database)) is not None:
            raise BenchError(
                f"--on slurm has several hosts, and SQLite's log works on one alone: {workspace.database}",
                "name a server for the results: --db postgresql://USER@HOST/NAME",
            )

    def slots(self, specs: Sequence[RunSpec], context: RunContext) -> int:
        """All runs are submitted; Slurm starts as many as there is room for.

        Raises:
            BenchError: a run is to get a fraction of a GPU or of a core.
        """
        gpus = self._resources.gpus
        if gpus is None:
            gpus = float(context.execution.device.type == "cuda")
        for option, amount in (("--gpus-per-run", gpus), ("--cpus-per-run", self._resources.cpus)):
            if amount != int(amount):
                raise BenchError(
                    f"{option} {amount:g}: Slurm gives whole ones",
                    f"write {option} {math.ceil(amount)}; --on ray gives fractions",
                )
        given = self._resources.memory_gb
        self._limits = _Limits(memory_bytes(specs, context) if given is None else int(given * 1e9), int(gpus))
        models = max(sum(spec.kind != "reference" for spec in specs), 1)
        return min(models, self._jobs or models)

    def execute(
        self,
        runs: Sequence[tuple[str, RunSpec]],
        shared: Shared,
        store: Store,
        reporter: Reporter,
        here: Worker,  # noqa: ARG002  # this process only waits
    ) -> Iterator[tuple[RunSpec, Ended]]:
        """See `Engine.execute`; what a job prints is in the log that a note names. Ctrl-C leaves jobs as they are."""
        from submitit.helpers import as_completed

        if not runs:
            return
        jobs = self._submit(runs, shared, reporter)
        try:
            for job in as_completed([job for job, _, _ in jobs], poll_frequency=ASK_S if self._polite else 0.2):
                title, spec = next((title, spec) for each, title, spec in jobs if each is job)
                yield spec, self._ended(job, title, spec, store, reporter)
        except KeyboardInterrupt:
            reporter.note("jobs go on without this command; the same command waits for them, scancel ends them")
            raise

    def extraction(self, device: torch.device, reporter: Reporter) -> None:
        """The command extracts features itself."""

    def close(self) -> None:
        """Jobs go on."""

    @property
    def _polite(self) -> bool:
        return self._cluster == "slurm"

    def _submit(
        self, runs: Sequence[tuple[str, RunSpec]], shared: Shared, reporter: Reporter
    ) -> list[tuple[Any, str, RunSpec]]:
        """The job of each run: one that an earlier command submitted and that goes on, or a new one."""
        import submitit

        folder = shared.workspace.root.absolute() / "slurm"
        executor = submitit.AutoExecutor(folder=folder / "%j", cluster=self._cluster)
        executor.update_parameters(**self.parameters(len(runs)))
        known = {spec.key: self._known(executor.job_class, spec, shared.workspace) for _, spec in runs}
        new = [(title, spec) for title, spec in runs if known[spec.key] is None]
        if new:
            execute = ExecuteRun(_kept(shared, folder), Path.cwd(), int(self._resources.cpus))
            with executor.batch():
                submitted = [executor.submit(execute, title, spec) for title, spec in new]
            for job, (_, spec) in zip(submitted, new, strict=True):
                known[spec.key] = job
                content = {"cluster": self._cluster, "job": job.job_id, "folder": str(job.paths.folder)}
                write_text(shared.workspace.run_folder(spec.key) / JOB_FILE, json.dumps(content))
        what = f"{len(new)} jobs submitted" + (
            f", {len(runs) - len(new)} found at work" if len(new) < len(runs) else ""
        )
        reporter.note(f"{what}; logs: {folder}/JOB/*.out")
        return [(known[spec.key], title, spec) for title, spec in runs]

    def parameters(self, runs: int) -> dict[str, Any]:
        """What each job asks Slurm for, as submitit names it."""
        common = {
            "name": "captionbench",
            "timeout_min": math.ceil(60 * self._resources.hours),
            "cpus_per_task": int(self._resources.cpus),
            "gpus_per_node": self._limits.gpus,
            "mem_gb": math.ceil(self._limits.memory / 1e9),
        }
        own = {"slurm_array_parallelism": self._jobs or runs, "slurm_signal_delay_s": WARNING_S}
        return common | (own if self._polite else {})

    def _known(self, job_class: Any, spec: RunSpec, workspace: Workspace) -> Any:
        """The job of a run that an earlier command submitted, where Slurm has it still; else None."""
        try:
            known = json.loads((workspace.run_folder(spec.key) / JOB_FILE).read_text(encoding="utf-8"))
            job = job_class(folder=known["folder"], job_id=known["job"])
            return job if known["cluster"] == self._cluster and job.state in _ALIVE else None
        except (OSError, ValueError, KeyError):
            return None

    def _ended(self, job: Any, title: str, spec: RunSpec, store: Store, reporter: Reporter) -> Ended:
        """How a run ended, told and, where its job was lost, stored."""
        error = job.exception()
        if error is None:
            ended: Ended = job.result()
            reporter.note(f"{title}: {ended} (job {job.job_id})", style="red" if ended == "failed" else "")
            return ended
        reason = f"job {job.job_id} ended before its run: {first_line(error)}; its log is {job.paths.stderr}"
        store.fail(spec.key, LOST_WORKER, reason, _tail(job.paths.stderr))
        reporter.note(f"{title}: failed: {reason}", style="red")
        return "failed"


def _kept(shared: Shared, folder: Path) -> Path:
    """A file with what all runs share, for jobs to read."""
    path = folder / f"shared-{os.getpid()}.pickle"
    with replacing(path) as temporary:
        temporary.write_bytes(pickle.dumps(shared))
    return path


def _tail(path: Path) -> str:
    try:
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-40:])
    except OSError:
        return ""
