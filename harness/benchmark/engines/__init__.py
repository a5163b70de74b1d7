"""Engines: where a call is made with item after item. Here, on a Ray cluster, or in jobs of Slurm.

A call is work on one item: a run by its key (`harness.benchmark.work`), a trial, or a chunk of features. Nothing of a
run travels but its key: configuration, progress and results are in the store, wherever the call is made.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from harness.utils.errors import BenchError
from harness.utils.files import shortened

if TYPE_CHECKING:
    import torch

    from harness.data.feature_cache import Spread
    from harness.utils.workspace import Workspace

HERE = "here"
LOST_WORKER = "WorkerDied"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call with an item has no answer: an exception, or the end of its process."""

    error_class: str
    reason: str

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Of an exception, with what to do about it if that is known."""
        hint = getattr(error, "hint", None)
        return cls(type(error).__name__, (str(error) or type(error).__name__) + (f" ({hint})" if hint else ""))

    def __str__(self) -> str:
        return f"{self.error_class}: {self.reason}"


class Call(Protocol):
    """Does the work on one item after another; picklable, without what it opens."""

    def __call__(self, item: Any, /) -> Any:
        """Do the work; what it raises is the failure of this item."""

    def close(self) -> None:
        """Close what the calls opened."""


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


class Engine(Protocol):
    """Makes calls somewhere; the order is `check`, then `slots` and `perform` any number of times, `close`.

    Attributes:
        elsewhere: whether calls are made on other machines, so that this one's devices do not matter, and chunks of
            features are worth to be computed there.
        at_work: items that were handed out and have no answer yet, also after an interruption.
    """

    elsewhere: bool = False
    at_work: list[Any]

    def check(self, workspace: Workspace) -> None:  # noqa: ARG002
        """BenchError where anything lacks that it needs, before data are read; by default nothing."""
        return

    def slots(self, items: int, device: torch.device, devices: int, memory: Callable[[], int]) -> int:
        """How many of so many items, on `devices` such devices each, it works on at a time; BenchError if none fits."""

    def perform(self, call: Call, take: Callable[[], Any | None]) -> Generator[tuple[Any, Any], None, None]:
        """Call with every item; yields each with its answer, or a `Failure`, as it ends.

        A process or machine that dies costs its own item at most. `take` gives the next item when there is room for
        one; None where there is none now. It is asked again after each answer, until none is at work either.
        """

    def close(self) -> None:
        """Let go of the cluster, where there is one."""
        return


def check_engine(on: str, resources: dict[str, float | None], devices: int = 1, *, tuning: bool = False) -> None:
    """BenchError where an `--on` is unknown, or does not take what was given, by option; imports nothing heavy."""
    name, _, address = on.partition(":")
    if name not in {HERE, "ray", "slurm"} or (address and name != "ray") or on.endswith(":"):
        raise BenchError(f"--on {shortened(on)!r} is unknown", "choose here, ray, ray:HOST:PORT or slurm")
    if address.startswith("ray://"):
        raise BenchError(
            f"--on {shortened(on)}: this is an address of Ray's client, whose driver is outside of the cluster",
            "run the command on a node of the cluster: --on ray:HOST:6379, or ray job submit -- bench run --on ray",
        )
    given = [option for option, value in resources.items() if value is not None]
    if name == HERE and given:
        raise BenchError(f"{given[0]} is for runs on a cluster", "add --on ray or --on slurm, or leave it out")
    if name == "slurm" and tuning:
        raise BenchError(
            "--on slurm is for bench run", "tune here, with --jobs, or on a Ray cluster: --on ray:HOST:PORT"
        )
    if name == "slurm" and devices > 1:
        raise BenchError(
            f"--on slurm and --devices {devices} contradict each other: each job has one process",
            "leave out one of the two; docs/cluster.md has a script of jobs with several devices",
        )
    if name == "ray" and "--hours-per-run" in given:
        raise BenchError("--hours-per-run is for Slurm; Ray limits no time", "leave it out, or write --on slurm")


def choose_engine(on: str, resources: Resources, jobs: int) -> Engine:
    """The engine of a checked `--on`; `jobs` limits items at a time, 0 is as many as there is room for."""
    name, _, address = on.partition(":")
    if name == "ray":
        from harness.benchmark.engines.ray import RayEngine

        return RayEngine(address or None, resources, jobs)
    if name == "slurm":
        from harness.benchmark.engines.slurm import SlurmEngine

        return SlurmEngine(resources, jobs)
    from harness.benchmark.engines.here import HereEngine

    return HereEngine(jobs)


def refuse_sqlite(hosts: str, workspace: Workspace) -> None:
    """BenchError where hosts share results in SQLite; `hosts` says who has them."""
    from results.store.engine import resolve_url, sqlite_file

    if sqlite_file(resolve_url(workspace.database)) is not None:
        raise BenchError(
            f"{hosts}, and SQLite's log works on one alone: {workspace.database}",
            "name a server for the results: --db postgresql://USER@HOST/NAME",
        )


def spread_over(engine: Engine, device: torch.device, memory: int) -> Spread | None:
    """Has an engine compute chunks of features, where that is worth it; None where this process does."""
    if not engine.elsewhere:
        return None

    def spread(chunks: Call, parts: Sequence[int]) -> Generator[tuple[int, Any], None, None]:
        waiting = list(parts)
        engine.slots(len(waiting), device, 1, lambda: memory)
        with closing(engine.perform(chunks, lambda: waiting.pop(0) if waiting else None)) as computed:
            for part, found in computed:
                if isinstance(found, Failure):
                    raise BenchError(
                        f"features, part {part + 1} cannot be extracted: {found}",
                        "the same command goes on with the parts that are left; --on here extracts in one process",
                    )
                yield part, found

    return spread
