"""`bench run`: train, caption, score, measure and store; the same command continues or re-uses."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.benchmark.engines.choose import HERE
from harness.cli.run_options import RunOptions, with_run_options
from harness.cli.run_request import make_request
from harness.training.launch import every_rank, in_every_process, is_launched
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace

if TYPE_CHECKING:
    from harness.utils.progress import Reporter
    from results import Store

_MIN_PROCESSES = 8
"""That may train a model together on any CPU, as a rehearsal of a larger machine."""
_FIRST_TABLE_S = 75.0
"""When the leaderboard of what is finished is shown first; then after twice the time, and so on."""

EXAMPLES = """
Examples:

  bench run --models all

  bench run --models 'expansionnet*,blind' --seeds 3

  bench run --models all --seeds 3 --control auto

  bench run --models transformer_base --data flickr8k/ --preset small
  --backbone mobilenetv2_100 --backbone-weights mobilenetv2.safetensors

  bench run --models hf:Salesforce/blip2-opt-2.7b,hf:folder,transformer_base --prompt 'a photo of'

  bench run --models all --regions boxes --jobs 2

  bench run --models updown,transformer_base --tuned

  bench run --models updown,m2 --data dataset_coco.json --regions cocobu_att

  bench run --models all --seeds 5 --on ray:head:6379 --gpus-per-run 0.5
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", epilog=EXAMPLES)(in_every_process(with_run_options(run)))


def run(options: RunOptions) -> None:
    """Train, caption, score, measure and store every model under the same conditions.

    The same command again continues where it stopped, re-uses what is finished and retries what failed.
    """
    request = make_request(options)

    from harness.benchmark.benchmark import choose_device, run_benchmark
    from harness.config.execution import usable_cores
    from harness.utils.live_table import LiveReporter
    from harness.utils.run_events import RunsEnded
    from reports.text.terminal import print_ablations
    from results import Store

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
        tables = _FirstTables(place, reporter, options.place_unfinished)

        def on_run(ended: int, planned: int) -> None:
            reporter.watch(RunsEnded(ended, planned))
            tables(ended, planned)

        summary = run_benchmark(request, reporter, on_run)
    with Store(place.database) as store:
        page = _show(store, place, reporter, place_unfinished=options.place_unfinished)
        print_ablations(store, request.preset.name, {*summary.finished, *summary.reused}, reporter.console)
    counts = {"finished": summary.finished, "re-used": summary.reused, "skipped": summary.skipped}
    counts |= {"failed": summary.failed}
    always = {"finished", "re-used", "failed"}
    said = ", ".join(f"{len(keys)} {what}" for what, keys in counts.items() if keys or what in always)
    reporter.note(f"{said}; report: {page.absolute().as_uri()}")
    if summary.failed or summary.skipped or summary.lacking:
        sys.exit(1)


class _FirstTables:
    """Shows the leaderboard of what is finished while other runs go on, ever more rarely."""

    def __init__(self, workspace: Workspace, reporter: Reporter, place_unfinished: bool) -> None:
        self._workspace, self._reporter, self._place_unfinished = workspace, reporter, place_unfinished
        self._started, self._due = time.monotonic(), _FIRST_TABLE_S

    def __call__(self, ended: int, planned: int) -> None:
        """Called as a run ends, with the number of those that have, and of all."""
        passed = time.monotonic() - self._started
        if passed < self._due or ended == planned:
            return
        while self._due <= passed:
            self._due *= 2
        from results import Store

        self._reporter.note(f"so far, {ended} of {planned} runs:")
        try:
            with Store(self._workspace.database) as store:
                page = _show(store, self._workspace, self._reporter, place_unfinished=self._place_unfinished)
        except Exception as error:  # the runs to go are worth more than a table on the way
            self._reporter.note(f"no leaderboard yet: {type(error).__name__}: {error}", style="yellow")
        else:
            self._reporter.note(f"{planned - ended} runs to go; report so far: {page}")


def _show(store: Store, workspace: Workspace, reporter: Reporter, *, place_unfinished: bool) -> Path:
    """Print the leaderboard, and write the report; gives its page."""
    from reports.html.report import write_report
    from reports.text.terminal import print_leaderboard

    print_leaderboard(store, reporter.console, place_unfinished=place_unfinished)
    return write_report(store, workspace.report, place_unfinished=place_unfinished)
