"""What executes runs: one interface for this machine's processes, a Ray cluster and Slurm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from harness.runner.context import RunContext
    from harness.runner.worker import Ended, Shared, Worker
    from harness.utils.progress import Reporter
    from harness.utils.workspace import Workspace
    from results import Store
    from results.records import RunSpec

LOST_WORKER = "WorkerDied"
"""The class of error of a run whose process, or machine, ended before it did."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What each run gets of a cluster.

    Attributes:
        cpus: cores, or fractions of one; also how many threads it computes with.
        gpus: GPUs, or fractions of one; None: one where it computes on a GPU, else none.
        memory_gb: of the host; None: as `harness.runner.engines.estimate` says.
        hours: a limit of time, for schedulers that ask for one.
    """

    cpus: float = 1.0
    gpus: float | None = None
    memory_gb: float | None = None
    hours: float = 24.0


class Engine(Protocol):
    """Executes runs somewhere. Wherever that is, a lock and the store decide who trains a run and whether it is done.

    The order of calls is `check`, `slots`, `execute` any number of times, `close`.
    """

    def check(self, workspace: Workspace) -> None:
        """Look for all that it needs, before data are read or features extracted.

        Raises:
            BenchError: what is missing, or which options contradict it.
        """
        ...

    def slots(self, specs: Sequence[RunSpec], context: RunContext) -> int:
        """How many of these runs it executes at a time; BenchError where there is room for none."""
        ...

    def execute(
        self, runs: Sequence[tuple[str, RunSpec]], shared: Shared, store: Store, reporter: Reporter, here: Worker
    ) -> Iterator[tuple[RunSpec, Ended]]:
        """Execute titled runs, none of them finished; yields each as it ends, and how.

        Every run ends as a row of the store. A process or machine that dies costs its own run at most.

        Args:
            here: executes runs in this process.
        """
        ...

    def close(self) -> None:
        """Let go of the cluster."""
        ...
