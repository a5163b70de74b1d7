"""The benchmark: plan the runs, store them, submit those that are not finished, and time what was left.

Finished runs are re-used, failed ones tried again, and one model's failure never stops the others.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, closing
from functools import partial

import torch

from harness.benchmark.costs import BASE_BYTES, time_deferred
from harness.benchmark.execute import LOCK, Ended, execute_run, mark_interrupted
from harness.benchmark.plan import Benchmark, check_rows, choose_jobs, plan, resolve
from harness.benchmark.reuse import reuse_finished_runs
from harness.benchmark.saved_model import is_saved
from harness.benchmark.scoring import add_facts, add_more_metrics, more_evaluator
from harness.benchmark.services import Services
from harness.config.run import config_of
from harness.executors import CallError, spread_over
from harness.executors.local import limit_threads
from harness.measure.environment import describe_state
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import is_locked
from results.records import RunSpec

_RELEASE_S = 5.0


def run_benchmark(
    benchmark: Benchmark, reporter: Reporter, on_plan: Callable[[Services, Sequence[RunSpec]], None] = lambda *_: None
) -> tuple[dict[str, Ended], dict[str, str]]:
    """Execute the whole benchmark against its workspace; every run ends as a row of the store.

    Gives how each run ended, by key; and by name why metrics that were asked for could not be measured.
    """
    resolved, workspace, rerun = resolve(benchmark, reporter), benchmark.workspace, benchmark.rerun
    with ExitStack() as stack:
        executor = stack.enter_context(closing(benchmark.executor))
        executor.check(workspace)
        workspace.create()
        services = stack.enter_context(Services(workspace, reporter, benchmark.execution.plugins))
        store = services.store
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
        # The plan: a run for every model and seed, or the finished one that stands for it.
        with reporter.step("Planning the runs"):
            specs = plan(benchmark, resolved, context, reporter, store)
            store.record_dataset(context.data.record(context.signature["data"]))
            specs, notes = reuse_finished_runs(specs, store, accept=benchmark.reuses_other_code, rerun=rerun)
            finished = [spec.key for spec in specs if not rerun and store.status(spec.key) == "finished"]
            specs = choose_jobs(executor, specs, context, finished)
        for note in notes:
            reporter.note(note)
        _refuse_missing_members(specs, services)
        store.plan(specs)
        on_plan(services, specs)
        if others := describe_state(device).get("other_processes"):
            reporter.note(f"{others} other processes use {device}: times will be longer", style="yellow")
        # The runs: those that are finished, the others, those that another command executed, and ensembles of them.
        jobs = config_of(specs[0]).execution.jobs
        titles = _titles(specs)
        kinds = {spec.key: spec.kind for spec in specs}
        pending = [key for key in titles if key not in finished and kinds[key] != "ensemble"]
        ensembles = [key for key in titles if key not in finished and kinds[key] == "ensemble"]
        ended = {key: execute_run(key, workspace) for key in finished}
        futures: dict[str, Future[Ended]] = {}
        report_end = partial(_report_failure, titles, services)
        try:
            for wait_for_others in (False, True):
                with limit_threads(jobs or 1), executor.batch():
                    for key in pending:
                        if jobs == 1 and (wait_for_others or not is_locked(workspace.run_folder(key) / LOCK)):
                            reporter.log(titles[key])  # else the lines of each run have its name
                        futures[key] = executor.submit(execute_run, key, workspace, rerun, wait_for_others)
                        futures[key].add_done_callback(partial(report_end, key))
                wait([futures[key] for key in pending])
                for key in pending:
                    ended[key] = "failed" if futures[key].exception() else futures[key].result()
                pending = [key for key in pending if ended[key] == "busy"]
        except KeyboardInterrupt:
            at_work = [key for key, future in futures.items() if future.running()]
            executor.cancel()
            mark_interrupted(at_work, services, _RELEASE_S)
            raise
        for key in ensembles:
            reporter.log(titles[key])
            ended[key] = execute_run(key, workspace, rerun)
        # What was not measured while runs were side by side, and what was asked for besides.
        time_deferred(specs, services)
        complete = [spec for spec in specs if ended[spec.key] in {"finished", "reused"}]
        with reporter.step("Judging the facts that captions state"):
            add_facts(complete, context.data, store, reporter, None if more is None else more.objects)
        lacking: dict[str, str] = {}
        if more is not None:
            lacking = add_more_metrics(complete, more, context.data, store, reporter)
            for name, reason in lacking.items():
                reporter.note(f"not measured: {name}: {reason}", style="yellow")
        return ended, lacking


def _report_failure(titles: dict[str, str], services: Services, key: str, future: Future[Ended]) -> None:
    """Store a failure that a run could not store itself, as where its process died, unless another command has it."""
    error = None if future.cancelled() else future.exception()
    if isinstance(error, CallError):
        if not is_locked(services.workspace.run_folder(key) / LOCK):
            services.store.fail(key, error.error_class, error.reason, "")
        services.reporter.note(f"{titles[key]}: failed: {error}", style="red")


def _refuse_missing_members(specs: Sequence[RunSpec], services: Services) -> None:
    """BenchError where an ensemble's members are neither finished, nor imported, nor among the runs of the command."""
    planned, store = {spec.key for spec in specs}, services.store
    for spec in specs:
        config = config_of(spec)
        members = config.members if config.kind == "ensemble" else ()
        statuses = {key: store.status(key) for key in members if key not in planned}
        unfinished = [key for key, status in statuses.items() if status != "finished"]
        missing = [key for key in unfinished if statuses[key] is not None or not is_saved(key, services.workspace)]
        if missing:
            raise BenchError(
                f"{spec.model}: {len(missing)} of its members are not finished under these conditions: "
                + ", ".join(missing[:4]),
                "train them in the same command, --models MODEL,ensemble:MODEL:4 --seeds 4, or name stored runs: "
                "--models ensemble:KEY+KEY",
            )


def budget_suffix(spec: RunSpec) -> str:
    """What a title says of a run's budget: nothing of the usual one."""
    budget = config_of(spec).made_from.budget
    return "" if budget == 1 else f" budget {budget}"


def _titles(specs: Sequence[RunSpec]) -> dict[str, str]:
    several = len({spec.seed for spec in specs}) > 1
    return {
        spec.key: f"[{number}/{len(specs)}] {spec.model}"
        + (f" seed {spec.seed}" if several else "")
        + budget_suffix(spec)
        for number, spec in enumerate(specs, 1)
    }
