"""Plain lines of progress, where there is no terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.utils import progress
from harness.utils.progress import Reporter


@pytest.mark.parametrize(
    ("restarts", "said"), [(False, "3/5  (about 2 min 0 s left)"), (True, "3/5  (about 20 s left)")]
)
def test_the_time_left_can_leave_out_other_work(monkeypatch: pytest.MonkeyPatch, restarts: bool, said: str) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    printed = io.StringIO()
    with Reporter(Console(file=printed)).task("regions", 5) as task:
        now = 150.0
        if restarts:
            task.restart_clock()
        now = 180.0
        task.reach(3)
    assert printed.getvalue() == f"regions: {said}\n"
