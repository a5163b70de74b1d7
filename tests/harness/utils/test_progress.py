"""What a terminal and a pipe get of a command's progress."""

import io
import time
from collections.abc import Sequence

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from harness.utils import progress
from harness.utils.progress import Line, Reporter


class Panel:
    """A panel of one word, with lines that other processes report while it is shown."""

    def __init__(self, *lines: Line) -> None:
        self.lines = list(lines)

    def refresh(self) -> None:
        pass

    def render(self, width: int, height: int) -> RenderableType:
        return Text(f"panel {width} x {height}")

    def new_lines(self) -> Sequence[Line]:
        lines, self.lines = self.lines, []
        return lines


def terminal(file: io.StringIO) -> Console:
    return Console(file=file, width=80, height=24, force_terminal=True)


def test_a_terminal_shows_the_panel_above_spinners_and_bars() -> None:
    output = io.StringIO()
    with Reporter(terminal(output)) as reporter:
        reporter.show(Panel())
        with reporter.step("Loading torch"), reporter.task("captioning", 5):
            assert reporter.display is not None
            reporter.display.refresh()
    text = output.getvalue()
    assert text.index("panel 80 x 21") < text.rindex("Loading torch") < text.rindex("captioning")


def test_a_terminal_has_notes_and_a_pipe_what_is_logged_too() -> None:
    lines = Line("careful", "yellow", False), Line("epoch 1", "", True)
    shown, piped = io.StringIO(), io.StringIO()
    for console in (terminal(shown), Console(file=piped)):
        with Reporter(console) as reporter:
            reporter.note("a note")
            reporter.log("a log")
            reporter.show(Panel(*lines))
    assert "a note" in shown.getvalue()
    assert "careful" in shown.getvalue()
    assert "a log" not in shown.getvalue()
    assert "epoch 1" not in shown.getvalue()
    assert piped.getvalue() == "a note\na log\ncareful\nepoch 1\n", "what is reported in the last second too"


def test_a_pipe_names_steps_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    reporter = Reporter(Console(file=output))
    with reporter.step("short"):
        pass
    monkeypatch.setattr(progress, "PLAIN_DELAY_S", 0.01)
    with reporter.step("long"):
        end = time.monotonic() + 10.0
        while not output.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    assert output.getvalue() == "long ...\n"


def test_what_comes_before_the_first_unit_counts_for_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    output = io.StringIO()
    with Reporter(Console(file=output)).task("regions", 11) as task:
        for seconds in (600, 30, 30):
            now[0] += seconds
            task.advance()
    assert output.getvalue().splitlines() == [
        "regions: 1/11",
        "regions: 2/11 (about 4 min 30 s left)",
        "regions: 3/11 (about 4 min 0 s left)",
    ]
