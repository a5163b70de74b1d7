"""Runs on this machine: one after another in this process, or side by side in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from harness.benchmark.context import RunContext
from harness.benchmark.engines.crew import take
from harness.benchmark.engines.processes import ProcessCrew
from harness.benchmark.engines.runs import OPENER, execute_runs, ordered
from harness.benchmark.worker import Ended, Shared, Worker
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results import Store
from results.records import RunSpec


class LocalEngine:
    """See `harness.benchmark.engines.interface.Engine`."""

    finds_devices = False

    def check(self, workspace: Workspace) -> None:
        """Nothing is needed that a run does not check itself."""

    def slots(self, specs: Sequence[RunSpec], context: RunContext) -> int:
        """As `--jobs` says, of the runs that are more than a score."""
        execution = context.execution
        return execution.config.jobs_for(sum(spec.kind != "reference" for spec in specs), execution.device)

    def execute(
        self, runs: Sequence[tuple[str, RunSpec]], shared: Shared, store: Store, reporter: Reporter, here: Worker
    ) -> Iterator[tuple[RunSpec, Ended]]:
        """In processes where there are several jobs and runs; a run that another command executes comes last."""
        jobs = shared.context.execution.config.jobs
        if jobs > 1 and len(runs) > 1:
            crew = ProcessCrew(jobs, OPENER, shared, reporter)
            yield from execute_runs(crew, runs, shared.workspace, store, reporter)
            return
        left = ordered(runs, shared.workspace)
        while left:
            title, spec = take(left).content
            yield spec, here.work(spec, title)

    def extraction(self, device: torch.device, reporter: Reporter) -> None:
        """This process extracts features, with all of the machine's threads."""

    def close(self) -> None:
        """There is nothing to let go of."""
