"""Jobs of Slurm, through submitit: an array with one job a run, requeued where it is pre-empted or timed out.

Jobs outlive the command that submitted them. The same command then waits for them instead of submitting others, and
the lock of a run's folder and the store decide who trains it, so that nothing is trained twice.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from harness.executors import LOST_WORKER, CallError, Executor, Resources, refuse_sqlite
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.processes import close_at_end
from harness.utils.workspace import Workspace
from results.errors import install_extra
from zoo.errors import first_line

if TYPE_CHECKING:
    import torch

CLUSTER, SHARED = "BENCH_SLURM_CLUSTER", "BENCH_SLURM_SHARED"
"""Variables: `local` rehearses in processes of this machine; 1 says that the workspace is on a disk of all nodes."""
WARNING_S = 120
"""How long before its time limit Slurm signals a job, which is then requeued."""
T = TypeVar("T")
ASK_S = 10.0  # how often Slurm is asked for jobs; it asks of its users not to do so more often
_ALIVE = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "RESIZING", "SUSPENDED"}
_OF_ONE_MACHINE = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
MOUNTS = Path("/proc/mounts")


class SlurmExecutor(Executor):
    """See `harness.executors.Executor`. What a job prints is in the logs of its folder; jobs outlive the command.

    Args:
        resources: of each run; GPUs are whole ones.
        jobs: at most so many at a time; 0: as many as Slurm gives.
        rerun: runs are trained anew: a job of an earlier command that goes on with one does not count.
    """

    def __init__(self, resources: Resources, jobs: int, *, rerun: bool = False) -> None:
        self._resources = resources
        self._jobs = jobs
        self._rerun = rerun
        self._calls: list[_Submitted] = []
        self._cluster = os.environ.get(CLUSTER, "slurm")
        self._folder = Path()
        self.parameters: dict[str, Any] = {}

    def check(self, workspace: Workspace) -> None:
        """Look for submitit, sbatch and a workspace that jobs on other nodes see; BenchError where one is missing."""
        self._folder = workspace.root.absolute() / "slurm"
        if find_spec("submitit") is None:
            raise BenchError("--executor slurm needs submitit, which is not installed", install_extra("slurm"))
        if self._cluster not in {"slurm", "local"}:
            raise BenchError(f"{CLUSTER}={self._cluster} is unknown", f"unset it, or write {CLUSTER}=local")
        if self._cluster == "local":
            return
        if shutil.which("sbatch") is None:
            raise BenchError(
                "--executor slurm needs sbatch, which is not on this machine",
                f"run the command on a login node of the cluster; {CLUSTER}=local rehearses it here",
            )
        if not is_shared(workspace.root) and os.environ.get(SHARED) != "1":
            raise BenchError(
                f"--executor slurm: the workspace {workspace.root} is on a disk of this machine alone",
                f"choose a folder that all nodes share, with --workspace; if this is one, write {SHARED}=1",
            )
        refuse_sqlite("--executor slurm has several hosts", workspace)

    def slots(self, items: int, device: torch.device, devices: int, memory: Callable[[], int]) -> int:  # noqa: ARG002
        """All items are submitted, and Slurm starts as many as there is room for; BenchError for fractions of a GPU."""
        gpus = float(device.type == "cuda") if self._resources.gpus is None else self._resources.gpus
        if (device.type == "cuda") != (gpus > 0):
            raise BenchError(
                f"--device {device.type} and --gpus-per-run {gpus:g} contradict each other",
                "plan the runs on a node with a GPU, with --device cuda; or leave --gpus-per-run out",
            )
        for option, amount in (("--gpus-per-run", gpus), ("--cpus-per-run", self._resources.cpus)):
            if amount != int(amount):
                raise BenchError(
                    f"{option} {amount:g}: Slurm gives whole ones",
                    f"write {option} {math.ceil(amount)}; --executor ray gives fractions",
                )
        memory_gb = self._resources.memory_gb
        slots = min(max(items, 1), self._jobs or max(items, 1))
        self.parameters = {
            "name": "captionbench",
            "timeout_min": math.ceil(60 * self._resources.hours),
            "cpus_per_task": int(self._resources.cpus),
            "gpus_per_node": int(gpus),
            "mem_gb": math.ceil(memory() / 1e9 if memory_gb is None else memory_gb),
        }
        if self._cluster == "slurm":
            self.parameters |= {"slurm_array_parallelism": self._jobs or items, "slurm_signal_delay_s": WARNING_S}
        return slots

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Submit the calls of the block as one array; those that an earlier command submitted are waited for."""
        self._calls = []
        yield
        import submitit

        calls = self._calls
        # A long run times out as often as it must.
        executor = submitit.AutoExecutor(self._folder / "%j", cluster=self._cluster, slurm_max_num_timeout=1000)
        executor.update_parameters(**self.parameters)
        jobs = [self._known(executor.job_class, call.name) for call in calls]
        new = [call for call, job in zip(calls, jobs, strict=True) if job is None]
        if new:
            threads = int(self._resources.cpus)
            try:
                with executor.batch():
                    submitted = [executor.submit(_Job(call.function, Path.cwd(), threads), *call.args) for call in new]
            except submitit.core.utils.FailedJobError as refused:
                hint = "sinfo lists the partitions; SBATCH_PARTITION and SBATCH_ACCOUNT choose one"
                raise BenchError(f"Slurm refuses the job: {first_line(refused)}", hint) from refused
            for call, job in zip(new, submitted, strict=True):
                jobs[calls.index(call)] = job
                note = {"cluster": self._cluster, "job": job.job_id, "folder": str(job.paths.folder)}
                write_text(self._note(call.name), json.dumps({**note, "anew": self._rerun}))
        by_job = {job.job_id: call.future for call, job in zip(calls, jobs, strict=True)}
        Thread(target=self._follow, args=(jobs, by_job), daemon=True).start()

    def submit(self, function: Callable[..., T], /, *args: Any) -> Future[T]:
        """See `Executor.submit`, within a `batch`: jobs are named by the first argument, a run's key.

        Ctrl-C leaves jobs as they are: they go on, and the same command waits for them.
        """
        future = Future[T]()
        future.set_running_or_notify_cancel()
        self._calls.append(_Submitted(str(args[0]), function, args, future))
        return future

    def _follow(self, jobs: Sequence[Any], by_job: dict[str, Future[Any]]) -> None:
        """In a thread of its own: pass on how jobs end."""
        from submitit.helpers import as_completed

        try:
            for job in as_completed(list(jobs), poll_frequency=ASK_S if self._cluster == "slurm" else 0.2):
                future = by_job[job.job_id]
                error = job.exception()
                if error is None:
                    future.set_result(job.result())
                else:
                    ended = f"job {job.job_id} ended before its run: {first_line(error)}; its log is {job.paths.stderr}"
                    future.set_exception(CallError(LOST_WORKER, ended))
        except Exception as error:  # whatever Slurm's programs answer: nobody may wait for ever
            for future in by_job.values():
                if not future.done():
                    future.set_exception(CallError.of(error))

    def _note(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _known(self, job_class: Any, name: str) -> Any:
        """The job of this name that an earlier command submitted, where Slurm has it still; else None."""
        try:
            note = json.loads(self._note(name).read_text(encoding="utf-8"))
            job = job_class(folder=note["folder"], job_id=note["job"])
            same = note["cluster"] == self._cluster and (note.get("anew") or not self._rerun)
            return job if same and job.state in _ALIVE else None
        except (OSError, ValueError, KeyError):
            return None


@dataclass(frozen=True)
class _Submitted:
    """A call that waits for the end of its batch; `name` is that of its job."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    future: Future[Any]


@dataclass(frozen=True)
class _Job:
    """What a job does, and again where Slurm requeues it: a run goes on from its last checkpoint."""

    function: Callable[..., Any]
    folder: Path
    threads: int

    def __call__(self, *args: Any) -> Any:
        os.chdir(self.folder)
        import torch

        torch.set_num_threads(self.threads)
        with close_at_end():
            return self.function(*args)

    def checkpoint(self, *args: Any) -> Any:
        """What submitit puts back into the queue when Slurm warns of the job's end: the same call."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *args)


def is_shared(folder: Path) -> bool:
    """False where the file system of a folder is of a kind that one machine has; True where another, or unknown."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return True
    mounted = {Path(words[1].replace("\\040", " ")): words[2] for line in lines if len(words := line.split()) > 2}
    resolved = folder.resolve()
    return (
        next((mounted[above] for above in (resolved, *resolved.parents) if above in mounted), "") not in _OF_ONE_MACHINE
    )
