"""What runs in a job of Slurm; it imports nothing heavy until the job has begun."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.runner.worker import Ended
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

        from harness.data.cache_storage import is_cached
        from harness.metrics.evaluator import Evaluator
        from harness.runner.worker import Shared, Worker
        from harness.runner.worker_pool import enter_worker
        from harness.utils.progress import Reporter
        from results import Store

        torch.set_num_threads(self.threads)
        shared: Shared = pickle.loads(self.shared.read_bytes())  # noqa: S301  # the command made it
        shared = replace(shared, context=enter_worker(shared.context, 0))
        if shared.context.data.features is not None:
            is_cached(shared.context.data.features.folder, shared.workspace.remote)
        with (
            Store(shared.workspace.database) as store,
            Evaluator(settings=shared.evaluation) as evaluator,
            Reporter() as reporter,
        ):
            return Worker(shared, store, evaluator, reporter).work(spec, title)

    def checkpoint(self, title: str, spec: RunSpec) -> Any:
        """What submitit puts back into the queue when Slurm warns of the job's end: the same run."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, title, spec)
