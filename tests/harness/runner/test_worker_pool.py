"""What a process says through a relay is what its starter shows, with a name before it."""

from __future__ import annotations

import io
from multiprocessing import Pipe

import pytest
from rich.console import Console

from harness.runner.worker_pool import RemoteReporter, ReporterProxy
from harness.utils import progress
from harness.utils.progress import Reporter


@pytest.fixture
def shown() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def echo(shown: io.StringIO) -> ReporterProxy:
    echo = ReporterProxy(Reporter(Console(file=shown, width=80)))
    echo.name = "updown"
    return echo


def test_indented_lines_get_the_name_and_titles_stay(echo: ReporterProxy, shown: io.StringIO) -> None:
    here, there = Pipe()
    relay = RemoteReporter(there)
    relay.note("[3/9] updown")
    relay.note("  xe epoch 1: loss [b]1.5[/b]", style="red")
    for _ in range(2):
        echo.show(here.recv())
    assert shown.getvalue() == "[3/9] updown\n  updown: xe epoch 1: loss [b]1.5[/b]\n"


def test_progress_is_told_as_if_the_work_were_done_here(
    echo: ReporterProxy, shown: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_INTERVAL_S", 0.0)
    here, there = Pipe()
    with RemoteReporter(there).task("  captioning test", 10, done=2) as task:
        task.advance(3, "2 left out")
    while here.poll():
        echo.show(here.recv())
    assert shown.getvalue().startswith("  updown: captioning test: 5/10 2 left out (about ")


def test_an_echo_of_something_else_is_refused(echo: ReporterProxy) -> None:
    with pytest.raises(ValueError, match="'sing'"):
        echo.show(("sing", 1))
