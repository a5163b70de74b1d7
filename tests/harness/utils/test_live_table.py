"""How far runs and tasks are: the live table in 80 columns, of what runs say in the store; pipes get lines."""

import io
import time
from typing import Any

import pytest
from rich.console import Console, RenderableType

from harness.utils import progress
from harness.utils.progress import Reporter, RunTable

LONG = "expansionnet_v2/static-8-to-256-dynamic-16"
AT = {"stage": "xe", "epoch": 2, "epochs": 10, "best": 0.4211, "left_s": 70.0}
SAID = {"noted": 2, "notes": ["xe epoch 1", "xe epoch 2"], **AT}


def shown(table: RenderableType) -> list[str]:
    """The lines in 80 columns."""
    said = io.StringIO()
    Console(file=said, width=80).print(table)
    return said.getvalue().splitlines()


def cells(lines: list[str], run: str) -> list[str]:
    """What a run's line says after its name."""
    [line] = [line for line in lines if line.startswith(run)]
    return line.removeprefix(run).split()


class Stored:
    """A store of four runs."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[str | None, dict[str, Any] | None]] = dict.fromkeys("abcd", ("planned", None))
        names = {"a": "updown seed 1", "b": f"{LONG} seed 0", "c": "blind seed 0", "d": "m2 seed 0"}
        self.table = RunTable(names, lambda: self.rows)

    def at(self, now: float, **rows: tuple[str, dict[str, Any] | None]) -> list[str]:
        self.rows |= rows
        self.table.update(now)
        return shown(self.table.render(now))


def test_each_run_has_a_line_and_all_runs_the_last() -> None:
    stored = Stored()
    assert stored.at(0.0, c=("finished", None)) == [""]
    lines = stored.at(0.0, a=("running", None), b=("running", {}))
    assert cells(lines, "updown seed 1") == ["-", "-", "-", "-"]
    lines = stored.at(40.0, a=("running", SAID))
    assert max(map(len, lines)) <= 80
    assert cells(lines, "updown seed 1") == ["xe", "2/10", "42.1", "1", "min", "10", "s"]
    # Of two at work one tells: 70 s are left of it. The other and the fourth run take 110 s each, as it will have.
    assert cells(lines, "1 of 4 runs ended") == ["2", "min", "5", "s"]
    assert [line for line in lines if line.startswith("expansionnet_v2/static-8")]
    lines = stored.at(50.0, a=("running", {"stage": "evaluation", "best": 0.5}), b=("failed", None))
    assert cells(lines, "updown seed 1") == ["evaluation", "-", "50.0", "-"]
    assert stored.at(60.0, a=("finished", None)) == [""]


def test_a_terminal_shows_the_table_above_the_bars_and_a_pipe_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "READ_S", 0.01)
    stored, said, piped = Stored(), io.StringIO(), io.StringIO()
    stored.rows["a"] = ("running", SAID)
    with Reporter(Console(file=said, width=80, force_terminal=True)) as reporter:
        stored.table.update(0.0)
        reporter.follow(stored.table, tell=False)
        with reporter.task("  captioning", 5):
            assert reporter.bars is not None
            reporter.bars.refresh()
    assert said.getvalue().index("updown seed 1") < said.getvalue().index("captioning")
    for tell in (False, True):
        with Reporter(Console(file=piped, width=80)) as reporter:
            reporter.follow(stored.table, tell=tell)
            end = time.monotonic() + (10.0 if tell else 0.1)
            while time.monotonic() < end and len(piped.getvalue().splitlines()) < 2:
                time.sleep(0.01)
        assert bool(piped.getvalue()) is tell
    assert piped.getvalue() == "  updown seed 1: xe epoch 1\n  updown seed 1: xe epoch 2\n", "each once"


def test_what_comes_before_the_first_unit_counts_for_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    said = io.StringIO()
    with Reporter(Console(file=said)).task("regions", 11) as task:
        for seconds in (600, 30, 30):
            now[0] += seconds
            task.advance()
    first, second, third = said.getvalue().splitlines()
    assert (first.strip(), second.strip()) == ("regions: 1/11", "regions: 2/11  (about 4 min 30 s left)")
    assert third.strip() == "regions: 3/11  (about 4 min 0 s left)"
