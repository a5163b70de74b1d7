"""What executes runs: one interface for this machine's processes, a Ray cluster and Slurm.

Of tunings and features the first two do the work as well, by the crew of workers that runs have, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from harness.benchmark.context import RunContext
    from harness.benchmark.engines.crew import Crew
    from harness.benchmark.worker import Ended, Shared, Worker
    from harness.data.chunks import Spread
    from harness.utils.progress import Reporter
    from harness.utils.workspace import Workspace
    from results import Store
    from results.records import RunSpec


@dataclass(frozen=True, slots=True)
class Resources:
    """What each run gets of a cluster.

    Attributes:
        cpus: cores, or fractions of one; also how many threads it computes with.
        gpus: GPUs, or fractions of one; None: one where it computes on a GPU, else none.
        memory_gb: of the host; None: as `harness.benchmark.engines.estimate` says.
        hours: a limit of time, for schedulers that ask for one.
    """

    cpus: float = 1.0
    gpus: float | None = None
    memory_gb: float | None = None
    hours: float = 24.0


class Engine(Protocol):
    """Executes runs somewhere. Wherever that is, a lock and the store decide who trains a run and whether it is done.

    The order of calls is `check`, `slots`, `execute` any number of times, `close`.

    Attributes:
        finds_devices: whether it looks for the devices of a run itself, so that this machine's do not matter.
    """

    finds_devices: bool

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

    def extraction(self, device: torch.device, reporter: Reporter) -> Spread | None:
        """Computes features elsewhere, for `prepare_features`; None where this process does."""
        ...

    def close(self) -> None:
        """Let go of the cluster."""
        ...


class CrewEngine(Protocol):
    """An engine whose workers do any work; the order of calls is `join`, the others any number of times, `close`."""

    def join(self) -> None:
        """Join the cluster.

        Raises:
            BenchError: what is missing.
        """
        ...

    def crew(self, opener: str, shared: Any, device: torch.device, jobs: int, reporter: Reporter) -> Crew:
        """Workers that `opener` opens, at most `jobs` (`engines/crew.py`); 0: as many as there is room for.

        Raises:
            BenchError: there is room for none.
        """
        ...

    def extraction(self, device: torch.device, reporter: Reporter) -> Spread | None:
        """See `Engine.extraction`."""
        ...

    def close(self) -> None:
        """Let go of the cluster."""
        ...
