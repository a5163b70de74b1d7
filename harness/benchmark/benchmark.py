"""`run_benchmark`: plan the runs, store them, execute those that are not finished, and complete their measurements.

Finished runs are re-used, failed ones are tried again, and one model's failure never stops the others.
"""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, closing
from functools import partial

import torch

from harness.benchmark.context import RunContext
from harness.benchmark.costs import BASE_BYTES, time_deferred
from harness.benchmark.execute import LOCK, Ended, execute_run, mark_interrupted
from harness.benchmark.plan import Benchmark, Resolved, check_rows, choose_jobs, plan, resolve
from harness.benchmark.reuse import reuse_finished_runs
from harness.benchmark.saved_model import is_saved
from harness.benchmark.scoring import add_facts, add_more_metrics, more_evaluator
from harness.benchmark.services import Services
from harness.config.run import config_of
from harness.executors import CallError, Executor, spread_over
from harness.executors.local import limit_threads
from harness.measure.environment import describe_state
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import is_locked
from results.records import RunSpec

_RELEASE_S = 5.0
"""How long interrupted workers may take to release the locks of their runs."""


def run_benchmark(
    benchmark: Benchmark, reporter: Reporter, on_plan: Callable[[Services, Sequence[RunSpec]], None] = lambda *_: None
) -> tuple[dict[str, Ended], dict[str, str]]:
    """Execute a whole benchmark in its workspace; every run ends as a row of the store.

    Args:
        on_plan: called with the services and all planned runs, before the first of them starts.

    Returns:
        How each run ended, by key; and why a further metric (CLIPScore, BERTScore, CHAIR) could not be measured, by
        name.
    """
    resolved = resolve(benchmark, reporter)
    workspace = benchmark.workspace
    with ExitStack() as stack:
        executor = stack.enter_context(closing(benchmark.executor))
        executor.check(workspace)
        workspace.create()
        services = stack.enter_context(Services(workspace, reporter, benchmark.execution.plugins))
        store = services.store  # refuses a file that is no store before hours of feature extraction

        # The data: images checked, features extracted or re-used, vocabulary built.
        device = torch.device(resolved.conditions.execution.device)
        context = services.context(
            resolved.conditions,
            check=partial(check_rows, benchmark, resolved.models, reporter),
            spread=spread_over(executor, device, BASE_BYTES),
        )
        more = None
        if benchmark.more is not None:
            more = more_evaluator(benchmark.more, context.data, str(device), context.evaluation)

        # The plan: a run for every model and seed, or the finished run that is re-used for it.
        specs, finished = _plan_and_store(benchmark, resolved, context, executor, services)
        on_plan(services, specs)

        # The runs.
        if process_count := describe_state(device).get("other_processes"):
            reporter.note(f"{process_count} other processes use {device}: times will be longer", style="yellow")
        ended = _execute_runs(specs, finished, executor, services, rerun=benchmark.rerun)

        # What runs do not measure themselves: times of runs that shared the machine, facts, further metrics.
        time_deferred(specs, services)
        complete = [spec for spec in specs if ended[spec.key] in {"finished", "reused"}]
        with reporter.step("Checking the facts that captions state"):
            add_facts(complete, context.data, store, reporter, None if more is None else more.objects)
        unmeasured: dict[str, str] = {}
        if more is not None:
            unmeasured = add_more_metrics(complete, more, context.data, store, reporter)
            for name, reason in unmeasured.items():
                reporter.note(f"not measured: {name}: {reason}", style="yellow")
        return ended, unmeasured


def _plan_and_store(
    benchmark: Benchmark, resolved: Resolved, context: RunContext, executor: Executor, services: Services
) -> tuple[list[RunSpec], set[str]]:
    """Plan the runs of a benchmark and store them; also gives the keys of those that are finished already."""
    store = services.store
    reporter = services.reporter
    with reporter.step("Planning the runs"):
        specs = plan(benchmark, resolved, context, reporter, store)
        store.record_dataset(context.data.record(context.signature["data"]))
        specs, notes = reuse_finished_runs(specs, store, accept=benchmark.reuses_other_code, rerun=benchmark.rerun)
        finished = set()
        if not benchmark.rerun:
            finished = {spec.key for spec in specs if store.status(spec.key) == "finished"}
        specs = choose_jobs(executor, specs, context, finished)
    for note in notes:
        reporter.note(note)
    _refuse_missing_members(specs, services)
    store.plan(specs)
    return specs, finished


def _execute_runs(
    specs: Sequence[RunSpec], finished: Collection[str], executor: Executor, services: Services, *, rerun: bool
) -> dict[str, Ended]:
    """Execute planned runs: those that are finished, then the others, then ensembles of them.

    Gives how each run ended, by key.
    """
    workspace = services.workspace
    reporter = services.reporter
    titles = _titles(specs)
    kinds = {spec.key: spec.kind for spec in specs}
    pending = [key for key in titles if key not in finished and kinds[key] != "ensemble"]
    ensembles = [key for key in titles if key not in finished and kinds[key] == "ensemble"]
    ended = {key: execute_run(key, workspace) for key in titles if key in finished}

    jobs = config_of(specs[0]).execution.jobs
    futures: dict[str, Future[Ended]] = {}
    report_end = partial(_report_failure, titles, services)
    try:
        # Runs that another command executes are left to it at first, and waited for in the end.
        for wait_for_others in (False, True):
            with limit_threads(jobs or 1), executor.batch():
                for key in pending:
                    if jobs == 1 and (wait_for_others or not is_locked(workspace.run_folder(key) / LOCK)):
                        reporter.log(titles[key])  # of several at a time, each line begins with its run's name
                    futures[key] = executor.submit(execute_run, key, workspace, rerun, wait_for_others)
                    futures[key].add_done_callback(partial(report_end, key))
            wait([futures[key] for key in pending])
            for key in pending:
                ended[key] = "failed" if futures[key].exception() else futures[key].result()
            pending = [key for key in pending if ended[key] == "busy"]
    except KeyboardInterrupt:
        running = [key for key, future in futures.items() if future.running()]
        executor.cancel()
        mark_interrupted(running, services, _RELEASE_S)
        raise

    for key in ensembles:
        reporter.log(titles[key])
        ended[key] = execute_run(key, workspace, rerun)
    return ended


def _report_failure(titles: dict[str, str], services: Services, key: str, future: Future[Ended]) -> None:
    """Store the failure of a run whose process died before it could do so, unless another command executes the run."""
    error = None if future.cancelled() else future.exception()
    if isinstance(error, CallError):
        if not is_locked(services.workspace.run_folder(key) / LOCK):
            services.store.fail(key, error.error_class, error.reason, "")
        services.reporter.note(f"{titles[key]}: failed: {error}", style="red")


def _refuse_missing_members(specs: Sequence[RunSpec], services: Services) -> None:
    """BenchError if an ensemble's members are neither finished, nor imported, nor among the planned runs."""
    store = services.store
    planned = {spec.key for spec in specs}
    for spec in specs:
        config = config_of(spec)
        members = config.members if config.kind == "ensemble" else ()
        statuses = {key: store.status(key) for key in members if key not in planned}
        unfinished = [key for key, status in statuses.items() if status != "finished"]
        missing = [key for key in unfinished if statuses[key] is not None or not is_saved(key, services.workspace)]
        if missing:
            raise BenchError(
                f"{spec.model}: {len(missing)} of its members are not finished in this workspace: "
                + ", ".join(missing[:4]),
                "train them in the same command, --models MODEL,ensemble:MODEL:4 --seeds 4, or name stored runs: "
                "--models ensemble:KEY+KEY",
            )


def _titles(specs: Sequence[RunSpec]) -> dict[str, str]:
    """What the log calls each run, by key, such as "[3/12] updown seed 1"."""
    several_seeds = len({spec.seed for spec in specs}) > 1
    titles = {}
    for index, spec in enumerate(specs, start=1):
        title = f"[{index}/{len(specs)}] {spec.model}"
        if several_seeds:
            title += f" seed {spec.seed}"
        budget = config_of(spec).made_from.budget
        if budget != 1:
            title += f" budget {budget}"
        titles[spec.key] = title
    return titles
