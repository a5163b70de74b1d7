"""What runs in a job of Slurm; it imports nothing heavy until the job has begun."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.benchmark.worker import Ended
    from results.records import RunSpec


@dataclass(frozen=True)
class ExecuteRun:
    """Executes one run in a job, and again where Slurm requeues it: it goes on from the last checkpoint.

    Attributes:
        shared: the file of the pickled `Shared` of all runs.
        folder: the command's current folder, in which relative paths were meant.
        threads: to compute with.
    """

    shared: Path
    folder: Path
    threads: int

    def __call__(self, title: str, spec: RunSpec) -> Ended:
        """Execute the run; it ends as a row of the store."""
        os.chdir(self.folder)

        import torch

        from harness.benchmark.engines.crew import open_worker
        from harness.benchmark.engines.runs import OPENER
        from harness.utils.progress import Reporter

        torch.set_num_threads(self.threads)
        with Reporter() as reporter, open_worker(OPENER, self.shared.read_bytes(), 0, reporter) as work:
            ended: Ended = work((title, spec))
            return ended

    def checkpoint(self, title: str, spec: RunSpec) -> Any:
        """What submitit puts back into the queue when Slurm warns of the job's end: the same run."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, title, spec)
