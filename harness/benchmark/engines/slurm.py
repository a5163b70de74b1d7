"""Jobs of Slurm, through submitit: an array with one job a run, requeued where it is pre-empted or timed out.

Jobs outlive the command that submitted them. The same command then waits for them instead of submitting others, and
the lock of a run's folder and the store decide who trains it, so that nothing is trained twice.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.benchmark.engines import LOST_WORKER, Call, Engine, Failure, Resources, refuse_sqlite
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results.errors import install_extra
from zoo.errors import first_line

if TYPE_CHECKING:
    import torch

CLUSTER, SHARED = "BENCH_SLURM_CLUSTER", "BENCH_SLURM_SHARED"
"""Variables: `local` rehearses in processes of this machine; 1 says that the workspace is on a disk of all nodes."""
WARNING_S = 120  # how long before the end of its time a job is told, to be requeued
ASK_S = 10.0  # how often Slurm is asked for jobs; it asks of its users not to do so more often
_ALIVE = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "RESIZING", "SUSPENDED"}
_OF_ONE_MACHINE = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
MOUNTS = Path("/proc/mounts")


class SlurmEngine(Engine):
    """See `harness.benchmark.engines.Engine`. What a job prints is in the logs of its folder; jobs outlive the command.

    Args:
        resources: of each run; GPUs are whole ones.
        jobs: at most so many at a time; 0: as many as Slurm gives.
    """

    def __init__(self, resources: Resources, jobs: int) -> None:
        self.at_work: list[Any] = []
        self._resources, self._jobs = resources, jobs
        self._cluster = os.environ.get(CLUSTER, "slurm")
        self._folder = Path()
        self.parameters: dict[str, Any] = {}

    def check(self, workspace: Workspace) -> None:
        """Look for submitit, sbatch and a workspace that jobs on other nodes see; BenchError where one is missing."""
        self._folder = workspace.root.absolute() / "slurm"
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
        refuse_sqlite("--on slurm has several hosts", workspace)

    def slots(self, items: int, device: torch.device, devices: int, memory: Callable[[], int]) -> int:  # noqa: ARG002
        """All items are submitted, and Slurm starts as many as there is room for; BenchError for fractions of a GPU."""
        gpus = float(device.type == "cuda") if self._resources.gpus is None else self._resources.gpus
        for option, amount in (("--gpus-per-run", gpus), ("--cpus-per-run", self._resources.cpus)):
            if amount != int(amount):
                raise BenchError(
                    f"{option} {amount:g}: Slurm gives whole ones",
                    f"write {option} {math.ceil(amount)}; --on ray gives fractions",
                )
        given, slots = self._resources.memory_gb, min(max(items, 1), self._jobs or max(items, 1))
        self.parameters = {
            "name": "captionbench",
            "timeout_min": math.ceil(60 * self._resources.hours),
            "cpus_per_task": int(self._resources.cpus),
            "gpus_per_node": int(gpus),
            "mem_gb": math.ceil(memory() / 1e9 if given is None else given),
        }
        if self._cluster == "slurm":
            self.parameters |= {"slurm_array_parallelism": self._jobs or items, "slurm_signal_delay_s": WARNING_S}
        return slots

    def perform(self, call: Call, take: Callable[[], Any | None]) -> Generator[tuple[Any, Any], None, None]:
        """See `Engine.perform`; Ctrl-C leaves jobs as they are: they go on, and the same command waits for them."""
        import submitit
        from submitit.helpers import as_completed

        items = list(iter(take, None))
        # A long run times out as often as it must.
        executor = submitit.AutoExecutor(self._folder / "%j", cluster=self._cluster, slurm_max_num_timeout=1000)
        executor.update_parameters(**self.parameters)
        anew = getattr(call, "rerun", False)  # a job that goes on with a run does not train it anew
        jobs = {item: job for item in items if (job := self._known(executor.job_class, item, anew)) is not None}
        if new := [item for item in items if item not in jobs]:
            try:
                with executor.batch():
                    threads = int(self._resources.cpus)
                    submitted = [executor.submit(_Job(call, Path.cwd(), threads), item) for item in new]
            except submitit.core.utils.FailedJobError as refused:
                hint = "sinfo lists the partitions; SBATCH_PARTITION and SBATCH_ACCOUNT choose one"
                raise BenchError(f"Slurm refuses the job: {first_line(refused)}", hint) from refused
            for item, job in zip(new, submitted, strict=True):
                jobs[item] = job
                told = {"cluster": self._cluster, "job": job.job_id, "folder": str(job.paths.folder), "anew": anew}
                write_text(self._note(item), json.dumps(told))
        by_job = {job.job_id: item for item, job in jobs.items()}
        for job in as_completed(list(jobs.values()), poll_frequency=ASK_S if self._cluster == "slurm" else 0.2):
            error = job.exception()
            ended = f"job {job.job_id} ended before its run"
            lost = (
                Failure(LOST_WORKER, f"{ended}: {first_line(error)}; its log is {job.paths.stderr}") if error else None
            )
            yield by_job[job.job_id], lost or job.result()

    def _note(self, item: Any) -> Path:
        return self._folder / f"{item}.json"

    def _known(self, job_class: Any, item: Any, anew: bool) -> Any:
        """The job of an item that an earlier command submitted, where Slurm has it still; else None."""
        try:
            known = json.loads(self._note(item).read_text(encoding="utf-8"))
            job = job_class(folder=known["folder"], job_id=known["job"])
            same = known["cluster"] == self._cluster and (known.get("anew") or not anew)
            return job if same and job.state in _ALIVE else None
        except (OSError, ValueError, KeyError):
            return None


@dataclass(frozen=True)
class _Job:
    """What a job does with an item, and again where Slurm requeues it: a run goes on from its last checkpoint."""

    call: Call
    folder: Path
    threads: int

    def __call__(self, item: Any) -> Any:
        os.chdir(self.folder)
        import torch

        torch.set_num_threads(self.threads)
        with closing(self.call):
            return self.call(item)

    def checkpoint(self, item: Any) -> Any:
        """What submitit puts back into the queue when Slurm warns of the job's end: the same item."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, item)


def is_shared(folder: Path) -> bool:
    """False where the file system of a folder is of a kind that one machine has; True where another, or unknown."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return True
    mounted = {Path(words[1].replace("\\040", " ")): words[2] for line in lines if len(words := line.split()) > 2}
    place = folder.resolve()
    return next((mounted[above] for above in (place, *place.parents) if above in mounted), "") not in _OF_ONE_MACHINE
