"""The benchmark: plan the runs, store them, have an engine execute those that are not finished, and time what was left.

Finished runs are re-used, failed ones tried again, and one model's failure never stops the others.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial

import torch

from harness.benchmark.costs import BASE_BYTES, time_deferred
from harness.benchmark.engines import Failure, spread_over
from harness.benchmark.engines.here import limit_threads
from harness.benchmark.plan import Benchmark, check_rows, plan, resolve
from harness.benchmark.reuse import reuse_finished_runs
from harness.benchmark.saved_model import is_saved
from harness.benchmark.scoring import add_facts, add_more_metrics, more_evaluator
from harness.benchmark.work import Ended, Services, Work, mark_interrupted, next_free
from harness.config.run import config_of
from harness.measure.environment import describe_state
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from results.records import RunSpec

_RELEASE_S = 5.0


def run_benchmark(
    benchmark: Benchmark, reporter: Reporter, on_plan: Callable[[Services, Sequence[RunSpec]], None] = lambda *_: None
) -> tuple[dict[str, Ended], dict[str, str]]:
    """Execute the whole benchmark against its workspace; every run ends as a row of the store.

    Gives how each run ended, by key; and by name why metrics that were asked for could not be measured.
    """
    resolved, ended, lacking = resolve(benchmark, reporter), dict[str, Ended](), dict[str, str]()
    with ExitStack() as stack:
        engine = stack.enter_context(closing(benchmark.engine))
        engine.check(benchmark.workspace)
        benchmark.workspace.create()
        services = stack.enter_context(Services(benchmark.workspace, reporter, benchmark.execution.plugins))
        store = services.store
        # The data: images checked, features extracted or re-used, vocabulary built.
        device = torch.device(resolved.conditions.execution.device)
        context = services.context(
            resolved.conditions,
            check=partial(check_rows, benchmark, resolved.models, reporter),
            spread=spread_over(engine, device, BASE_BYTES),
        )
        more = None if benchmark.more is None else more_evaluator(benchmark.more, context.data, str(device))
        # The plan: a spec for every run, or the finished run that stands for it.
        with reporter.step("Planning the runs"):
            specs = plan(benchmark, resolved, context, reporter, store)
            store.record_dataset(context.data.record(context.signature["data"]))
            specs, notes = reuse_finished_runs(specs, store, accept=benchmark.reuses_other_code, rerun=benchmark.rerun)
        for note in notes:
            reporter.note(note)
        _refuse_missing_members(specs, services)
        store.plan(specs)
        on_plan(services, specs)
        if others := describe_state(device).get("other_processes"):
            reporter.note(f"{others} other processes use {device}: times will be longer", style="yellow")
        # The runs: first those that are finished, then those that no other command executes.
        titles, left, work = _titles(specs), [], Work(benchmark.workspace, benchmark.rerun, services)
        ensembles = [spec.key for spec in specs if spec.kind == "ensemble"]
        for key in titles:
            if work.is_done(key):
                ended[key] = work(key)
            elif key not in ensembles:
                left.append(key)

        def take() -> str | None:
            if (key := next_free(left, benchmark.workspace)) is not None:
                reporter.log(titles[key])
            return key

        try:
            ending = stack.enter_context(closing(engine.perform(work, take)))
            with limit_threads(config_of(specs[0]).execution.jobs or 1):
                for key, answer in ending:
                    ended[key] = "failed" if isinstance(answer, Failure) else answer
                    if isinstance(answer, Failure):  # its process died
                        store.fail(key, answer.error_class, answer.reason, "")
                        reporter.note(f"{titles[key]}: failed: {answer}", style="red")
        except KeyboardInterrupt:
            mark_interrupted(engine.at_work, services, _RELEASE_S)
            raise
        # Ensembles, once all that they may be made of has ended.
        for key in (key for key in ensembles if not work.is_done(key)):
            reporter.log(titles[key])
            ended[key] = work(key)
        # What was not measured while runs were side by side, and what was asked for besides.
        time_deferred(specs, services)
        there = [spec for spec in specs if ended[spec.key] in {"finished", "reused"}]
        with reporter.step("Judging the facts that captions state"):
            add_facts(there, context.data, store, reporter, None if more is None else more.objects)
        if more is not None:
            lacking = add_more_metrics(there, more, context.data, store, reporter)
            for name, reason in lacking.items():
                reporter.note(f"not measured: {name}: {reason}", style="yellow")
        return ended, lacking


def _refuse_missing_members(specs: Sequence[RunSpec], services: Services) -> None:
    """BenchError where an ensemble's members are neither finished, nor imported, nor among the runs of the command."""
    planned, store = {spec.key for spec in specs}, services.store
    for spec in specs:
        config = config_of(spec)
        members = config.members if config.kind == "ensemble" else ()
        there = {key: store.status(key) for key in members if key not in planned}
        unfinished = [key for key, status in there.items() if status != "finished"]
        missing = [key for key in unfinished if there[key] is not None or not is_saved(key, services.workspace)]
        if missing:
            raise BenchError(
                f"{spec.model}: {len(missing)} of its members are not finished under these conditions: "
                + ", ".join(missing[:4]),
                "train them in the same command, --models MODEL,ensemble:MODEL:4 --seeds 4, or name stored runs: "
                "--models ensemble:KEY+KEY",
            )


def said_budget(spec: RunSpec) -> str:
    """What a title says of a run's budget: nothing of the usual one."""
    budget = config_of(spec).made_from.budget
    return "" if budget == 1 else f" budget {budget}"


def _titles(specs: Sequence[RunSpec]) -> dict[str, str]:
    several = len({spec.seed for spec in specs}) > 1
    return {
        spec.key: f"[{number}/{len(specs)}] {spec.model}"
        + (f" seed {spec.seed}" if several else "")
        + said_budget(spec)
        for number, spec in enumerate(specs, 1)
    }
