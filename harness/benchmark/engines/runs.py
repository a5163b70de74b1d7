"""Runs as orders of a crew: what a worker opens to execute them, and what becomes of a run without an answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace

from harness.benchmark.engines.crew import Crew, Failure, Order
from harness.benchmark.engines.entering import enter_worker
from harness.benchmark.worker import LOCK, Ended, Shared, Worker
from harness.data.feature_cache import is_cached
from harness.metrics.evaluator import Evaluator
from harness.training.distributed import other_ranks
from harness.utils.errors import INTERRUPTED
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace, is_locked
from results import Store
from results.errors import StoreError
from results.records import RunSpec

OPENER = f"{__name__}:open_runner"


@contextmanager
def open_runner(shared: Shared, place: int, reporter: Reporter) -> Iterator[Callable[[tuple[str, RunSpec]], Ended]]:
    """In a worker: the store, the scorers and the features, for one titled run after another.

    Where several devices train each run, it is the first of as many processes of its host.
    """
    shared = replace(shared, context=enter_worker(shared.context, place))
    devices = shared.context.execution.config.devices
    if shared.context.data.features is not None:
        is_cached(shared.context.data.features.folder, shared.workspace.remote)
    with (
        nullcontext() if devices == 1 else other_ranks(devices),
        Store(shared.workspace.database) as store,
        Evaluator(settings=shared.evaluation) as evaluator,
    ):
        worker = Worker(shared, store, evaluator, reporter)
        yield lambda run: worker.work(run[1], run[0])


def execute_runs(
    crew: Crew, runs: Sequence[tuple[str, RunSpec]], workspace: Workspace, store: Store, reporter: Reporter
) -> Iterator[tuple[RunSpec, Ended]]:
    """Have a crew that `open_runner` opens execute titled runs; yields each as it ends, and how.

    The run of a worker that dies is a failed row; on Ctrl-C those at work become interrupted ones.
    """
    try:
        with closing(crew.perform(ordered(runs, workspace))) as ending:
            for order, ended in ending:
                spec = order.content[1]
                if isinstance(ended, Failure):
                    store.fail(spec.key, ended.error_class, ended.reason, "")
                    reporter.note(f"  {order.name}: failed: {ended}", style="red")
                    yield spec, "failed"
                else:
                    yield spec, ended
    except KeyboardInterrupt:
        for order in crew.at_work:
            mark_interrupted(order.content[1], workspace, store, crew.release_s)
        raise


def ordered(runs: Sequence[tuple[str, RunSpec]], workspace: Workspace) -> list[Order]:
    """Titled runs as orders, whose locks are those of their folders."""
    return [Order(_named(spec), (title, spec), workspace.run_folder(spec.key) / LOCK) for title, spec in runs]


def mark_interrupted(spec: RunSpec, workspace: Workspace, store: Store, release_s: float) -> None:
    """Store that a run whose worker has ended was interrupted; not of one that another command executes.

    Args:
        release_s: how long the worker may take to let go of the run's lock.
    """
    lock, end = workspace.run_folder(spec.key) / LOCK, time.monotonic() + release_s
    while (held := is_locked(lock)) and time.monotonic() < end:
        time.sleep(0.05)
    if not held:
        with suppress(StoreError):  # what ends is the command, whatever the store says
            store.interrupt(spec.key, INTERRUPTED)


def _named(spec: RunSpec) -> str:
    return f"{spec.model} seed {spec.seed}" if spec.seed else spec.model
