"""Executors: where functions are called. In this process or its own workers, on a Ray cluster, or in jobs of Slurm.

Nothing of a run travels but its key: configuration, progress and results are in the store, wherever it is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from harness.utils.errors import BenchError
from harness.utils.files import shortened

if TYPE_CHECKING:
    import torch

    from harness.data.feature_cache import Spread
    from harness.utils.workspace import Workspace

HERE = "here"
LOST_WORKER = "WorkerDied"
T = TypeVar("T")


class CallError(Exception):
    """Why a call has no result: an exception in it, or the end of its process (`LOST_WORKER`)."""

    def __init__(self, error_class: str, reason: str) -> None:
        super().__init__(error_class, reason)
        self.error_class = error_class
        self.reason = reason

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Of an exception, with what to do about it if that is known."""
        hint = getattr(error, "hint", None)
        return cls(type(error).__name__, (str(error) or type(error).__name__) + (f" ({hint})" if hint else ""))

    def __str__(self) -> str:
        return f"{self.error_class}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Resources:
    """What each run gets of a cluster.

    Attributes:
        cpus: cores, or fractions of one; also how many threads it computes with.
        gpus: GPUs, or fractions of one; None: one where it computes on a GPU, else none.
        memory_gb: of the host; None: as `harness.benchmark.costs` says.
    """

    cpus: float = 1.0
    gpus: float | None = None
    memory_gb: float | None = None
    hours: float = 24.0


class Executor(Protocol):
    """Calls functions somewhere; the order is `check`, then `slots` and `submit` any number of times, `close`.

    Attributes:
        elsewhere: whether calls are made on other machines, so that this one's devices do not matter, and chunks of
            features are worth to be computed there.
    """

    elsewhere: bool = False

    def check(self, workspace: Workspace) -> None:  # noqa: ARG002
        """BenchError where anything lacks that it needs, before data are read; by default nothing."""
        return

    def slots(self, items: int, device: torch.device, devices: int, memory: Callable[[], int]) -> int:
        """How many of so many items, on `devices` such devices each, it works on at a time; BenchError if none fits."""

    def batch(self) -> AbstractContextManager[None]:
        """A block whose calls are submitted together at its end, where that matters."""
        return nullcontext()

    def submit(self, function: Callable[..., T], /, *args: Any) -> Future[T]:
        """Call a function of a module, or a picklable object, with picklable arguments.

        The future's exception is a `CallError`. A process or machine that dies costs its own call at most.
        """

    def cancel(self) -> None:
        """Cancel calls that have not begun, and end those that have, as far as they do not outlive the command.

        The exception of what was ended is a `CancelledError`.
        """
        return

    def close(self) -> None:
        """Let go of workers and of the cluster, where there is one; all calls have ended or were cancelled."""
        return


def check_executor(on: str, resources: dict[str, float | None], devices: int = 1, *, tuning: bool = False) -> None:
    """BenchError where an `--executor` is unknown, or does not take the options given; imports nothing heavy."""
    name, _, address = on.partition(":")
    if name not in {HERE, "ray", "slurm"} or (address and name != "ray") or on.endswith(":"):
        raise BenchError(f"--executor {shortened(on)!r} is unknown", "choose here, ray, ray:HOST:PORT or slurm")
    if address.startswith("ray://"):
        raise BenchError(
            f"--executor {shortened(on)}: this is an address of Ray's client, whose driver is outside of the cluster",
            "run the command on a node of the cluster: --executor ray:HOST:6379, "
            "or ray job submit -- bench run --executor ray",
        )
    used_options = [option for option, value in resources.items() if value is not None]
    if name == HERE and used_options:
        raise BenchError(
            f"{used_options[0]} is for runs on a cluster", "add --executor ray or --executor slurm, or leave it out"
        )
    if name == "slurm" and tuning:
        raise BenchError(
            "--executor slurm is for bench run", "tune here, with --jobs, or on a Ray cluster: --executor ray:HOST:PORT"
        )
    if name == "slurm" and devices > 1:
        raise BenchError(
            f"--executor slurm and --devices {devices} contradict each other: each job has one process",
            "leave out one of the two; docs/cluster.md has a script of jobs with several devices",
        )
    if name == "ray" and "--hours-per-run" in used_options:
        raise BenchError("--hours-per-run is for Slurm; Ray limits no time", "leave it out, or write --executor slurm")


def choose_executor(on: str, resources: Resources, jobs: int, *, rerun: bool = False) -> Executor:
    """The executor of a checked `--executor`.

    Args:
        jobs: limits calls at a time, 0 is as many as there is room for.
        rerun: runs are trained anew, so that jobs of an earlier command that go on with them do not count.
    """
    name, _, address = on.partition(":")
    if name == "ray":
        from harness.executors.ray import RayExecutor

        return RayExecutor(address or None, resources, jobs)
    if name == "slurm":
        from harness.executors.slurm import SlurmExecutor

        return SlurmExecutor(resources, jobs, rerun=rerun)
    from harness.executors.local import LocalExecutor

    return LocalExecutor(jobs)


def refuse_sqlite(hosts: str, workspace: Workspace) -> None:
    """BenchError where hosts share results in SQLite; `hosts` says who has them."""
    from results.store.engine import resolve_url, sqlite_file

    if sqlite_file(resolve_url(workspace.database)) is not None:
        raise BenchError(
            f"{hosts}, and SQLite's log works on one alone: {workspace.database}",
            "name a server for the results: --db postgresql://USER@HOST/NAME",
        )


def spread_over(executor: Executor, device: torch.device, memory: int) -> Spread | None:
    """Has an executor compute chunks of features, where that is worth it; None where this process does."""
    if not executor.elsewhere:
        return None

    def spread(chunks: Callable[[int], Any], parts: Sequence[int]) -> Generator[tuple[int, Any], None, None]:
        from concurrent.futures import as_completed

        executor.slots(len(parts), device, 1, lambda: memory)
        futures = {executor.submit(chunks, part): part for part in parts}
        for future in as_completed(futures):
            part = futures[future]
            try:
                yield part, future.result()
            except CallError as error:
                raise BenchError(
                    f"features, part {part + 1} cannot be extracted: {error}",
                    "the same command goes on with the parts that are left; --executor here extracts in one process",
                ) from error

    return spread
