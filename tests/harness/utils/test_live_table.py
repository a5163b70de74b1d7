"""The live table: what it shows of workers' events, in 80 columns, and that nothing but terminals gets it."""

from __future__ import annotations

import io

from harness.benchmark.engines.reporting import Message, RemoteReporter, ReporterProxy
from rich.console import Console, RenderableType

from harness.utils.live_table import LiveReporter, RunTable
from harness.utils.run_events import (
    EvaluationBegins,
    RunBegins,
    RunEnds,
    RunsEnded,
    TrainingStands,
    Validated,
)


def shown(table: RenderableType) -> list[str]:
    """The lines in 80 columns."""
    said = io.StringIO()
    Console(file=said, width=80).print(table)
    return said.getvalue().splitlines()


def cells(lines: list[str], run: str) -> list[str]:
    """What a run's line says after its name."""
    [line] = [line for line in lines if line.startswith(run)]
    return line.removeprefix(run).split()


def test_each_worker_has_a_line_and_all_runs_the_last() -> None:
    runs = RunTable()
    runs.watch(RunsEnded(1, 4), 0, now=0.0)
    runs.watch(RunBegins("updown", 1), 7, now=0.0)
    runs.watch(RunBegins("expansionnet_v2/static-8-to-256-dynamic-16", 0), 8, now=0.0)
    assert cells(shown(runs.render(0.0)), "updown seed 1") == ["-", "-", "-", "-"]
    runs.watch(TrainingStands("xe", 1, 10, None, 0.0), 7, now=10.0)
    runs.watch(TrainingStands("xe", 2, 10, None, 0.2), 7, now=30.0)
    runs.watch(Validated(0.4211), 7, now=30.0)
    runs.watch(Validated(0.4), 7, now=30.0)
    lines = shown(runs.render(40.0))
    assert max(map(len, lines)) <= 80
    assert cells(lines, "updown seed 1") == ["xe", "2/10", "42.1", "1", "min", "10", "s"], "80 s, 10 of them ago"
    # Of two at work one tells: 70 s are left of it. The other and the fourth run take 110 s each, as it will have.
    assert cells(lines, "1 of 4 runs ended") == ["2", "min", "5", "s"]
    assert [line.split()[0] for line in lines if line.startswith("expansionnet_v2/static-8")]


def test_a_run_is_evaluated_and_ends() -> None:
    runs = RunTable()
    runs.watch(RunsEnded(0, 3), 0, now=0.0)
    runs.watch(RunBegins("blind", 0), 0, now=0.0)
    runs.watch(TrainingStands("xe", 3, 3, 0.5, 1.0), 0, now=5.0)
    runs.watch(EvaluationBegins(), 0, now=6.0)
    assert cells(shown(runs.render(6.0)), "blind seed 0") == ["evaluation", "-", "50.0", "-"]
    runs.watch(RunEnds(), 0, now=8.0)
    assert shown(runs.render(8.0)) == [""]
    runs.watch(RunsEnded(1, 3), 0, now=8.0)
    runs.watch(RunBegins("blind", 1), 0, now=8.0)
    assert cells(shown(runs.render(10.0)), "1 of 3 runs ended") == ["14", "s"], "6 s of this, and 8 s, as the first"


def test_a_stage_begins_without_the_score_of_the_one_before() -> None:
    runs = RunTable()
    runs.watch(RunBegins("m2", 0), 0, now=0.0)
    runs.watch(TrainingStands("xe", 3, 3, 0.5, 0.5), 0, now=5.0)
    runs.watch(TrainingStands("scst", 1, 3, None, 0.6), 0, now=6.0)
    assert cells(shown(runs.render(6.0)), "m2 seed 0")[:3] == ["scst", "1/3", "-"]


class Direct:
    """A channel to a proxy in the same process."""

    def __init__(self, proxy: ReporterProxy) -> None:
        self._proxy = proxy

    def send(self, message: Message) -> None:
        self._proxy.show(message)


def test_workers_events_come_through_and_end_with_them() -> None:
    reporter = LiveReporter(Console(file=io.StringIO(), width=80, force_terminal=True))
    proxies = [ReporterProxy(reporter), ReporterProxy(reporter)]
    for proxy, model in zip(proxies, ("blind", "m2"), strict=True):
        RemoteReporter(Direct(proxy)).watch(RunBegins(model, 2))
    lines = shown(reporter.runs.render(0.0))
    assert [line for line in lines if line.startswith(("blind seed 2", "m2 seed 2"))]
    proxies[0].close()
    assert not [line for line in shown(reporter.runs.render(0.0)) if line.startswith("blind")]


def test_a_terminal_shows_the_table_above_the_bars_and_a_pipe_neither() -> None:
    said = io.StringIO()
    with LiveReporter(Console(file=said, width=80, force_terminal=True)) as reporter:
        reporter.watch(RunBegins("blind", 0))
        with reporter.task("  xe epoch 1/2", 5):
            assert reporter.bars is not None
            reporter.bars.refresh()
    assert said.getvalue().index("blind seed 0") < said.getvalue().index("xe epoch 1/2")
    piped = io.StringIO()
    with LiveReporter(Console(file=piped, width=80)) as reporter:
        reporter.watch(RunBegins("blind", 0))
        with reporter.task("  xe epoch 1/2", 5):
            reporter.note("a line")
    assert piped.getvalue() == "a line\n"
