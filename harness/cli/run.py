"""`bench run`: train, caption, score, measure and store; the same command continues or re-uses."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from harness.benchmark.engines import HERE
from harness.cli.options import RunOptions, with_run_options
from harness.cli.run_request import make_request
from harness.training.launch import every_rank, in_every_process, is_launched
from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.benchmark.work import Services
    from results.records import RunSpec

_MIN_PROCESSES = 8
"""That may train a model together on any CPU, as a rehearsal of a larger machine."""

EXAMPLES = """
bench run --models all
bench run --models 'expansionnet*,blind' --seeds 3
bench run --models transformer_base --data flickr8k/ --preset small
  --backbone mobilenetv2_100 --backbone-weights mobilenetv2.safetensors
bench run --models all --seeds 5 --on ray:head:6379 --gpus-per-run 0.5
"""


def run(options: RunOptions) -> None:
    """Train, caption, score, measure and store every model under the same conditions.

    The same command again continues where it stopped, re-uses what is finished and retries what failed.
    """
    request = make_request(options)

    from harness.benchmark.benchmark import run_benchmark, said_budget
    from harness.benchmark.plan import choose_device
    from harness.benchmark.run_config import RunConfig
    from harness.config.execution import usable_cores
    from harness.utils.live_table import LiveReporter, RunTable
    from reports.html.report import write_report
    from reports.text.terminal import print_ablations, print_leaderboard
    from results import Store
    from results.runs.standings import Judging

    judging = Judging(options.margin, options.place_unfinished, options.same_machine)
    place, processes = request.workspace, request.execution.devices
    if place.remote is not None:
        place.remote.check()
    if options.on != HERE:
        processes = 1  # each run's worker starts its own
    if processes > 1 and not is_launched():
        where = choose_device(options.device)
        request.execution.check(where)
        if where.type == "cpu" and processes > max(usable_cores(), _MIN_PROCESSES):
            raise BenchError(
                f"--devices {processes}, but this machine has {usable_cores()} CPU cores for as many processes",
                f"write --devices {usable_cores()}",
            )
    with every_rank(processes), LiveReporter() as reporter:

        def on_plan(services: Services, specs: Sequence[RunSpec]) -> None:
            names = {spec.key: f"{spec.model} seed {spec.seed}{said_budget(spec)}" for spec in specs}
            elsewhere = options.on != HERE or RunConfig.of(specs[0]).execution.jobs > 1
            reporter.follow(RunTable(names, lambda: services.store.progress(list(names))), tell=elsewhere)

        summary = run_benchmark(request, reporter, on_plan)
    with Store(place.database) as store:
        print_leaderboard(store, reporter.console, judging=judging, keys=summary.planned)
        page = write_report(store, place.report, judging=judging)
        print_ablations(store, request.preset.name, {*summary.finished, *summary.reused}, reporter.console)
    counts = {"finished": summary.finished, "re-used": summary.reused, "skipped": summary.skipped}
    counts |= {"failed": summary.failed}
    said = ", ".join(f"{len(keys)} {what}" for what, keys in counts.items() if keys or what != "skipped")
    reporter.note(f"{said}; report: {page.absolute().as_uri()}")
    if summary.failed or summary.skipped or summary.lacking:
        sys.exit(1)


COMMAND = in_every_process(with_run_options(run))
