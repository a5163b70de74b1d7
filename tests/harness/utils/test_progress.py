"""How far a task is, in lines where no bars can be shown."""

import io

import pytest
from rich.console import Console

from harness.utils import progress
from harness.utils.progress import Reporter


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
