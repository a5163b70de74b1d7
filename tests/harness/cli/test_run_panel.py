"""What `bench run` shows while runs are at work: a line a run, the whole, and the leading models."""

import io
from typing import Any

import pytest
from rich.console import Console

from harness.cli import run_panel
from harness.cli.run_panel import RunName, RunPanel
from results.store.store import RunProgress

LONG = "expansionnet_v2/static-8-to-256-dynamic-16"
NAMES = {
    "a": RunName("updown seed 1", "updown", False),
    "b": RunName(f"{LONG} seed 0", LONG, False),
    "c": RunName("updown seed 0", "updown", False),
    "d": RunName("human seed 0", "human", True),
}
TRAINING = {"doing": "xe 40 %", "epoch": 2, "epochs": 10, "loss": 2.346, "cider": 0.4211, "images_per_second": 1234.0}


class FakeStore:
    """The progress and the scores of four runs."""

    def __init__(self, **runs: RunProgress) -> None:
        self.runs = dict.fromkeys("abcd", RunProgress("planned", 0, None)) | runs
        self.scores: dict[str, float] = {}

    def progress(self, _: object) -> dict[str, RunProgress]:
        return dict(self.runs)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    def score_values(store: Any, keys: list[str], *_: object) -> dict[str, float]:
        return {key: value for key, value in store.scores.items() if key in keys}

    monkeypatch.setattr(run_panel, "score_values", score_values)
    return FakeStore()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def panel_of(store: FakeStore, clock: Clock, *, rerun: bool = False) -> RunPanel:
    return RunPanel(store, NAMES, elsewhere=True, rerun=rerun, clock=clock)  # type: ignore[arg-type]


def shown(panel: RunPanel, height: int = 23) -> list[str]:
    """The panel's lines in 80 columns."""
    panel.refresh()
    output = io.StringIO()
    Console(file=output, width=80).print(panel.render(80, height))
    return output.getvalue().splitlines()


def test_each_run_at_work_has_a_line_of_80_columns(store: FakeStore) -> None:
    panel = panel_of(store, Clock())
    store.runs |= {"a": RunProgress("running", 1, TRAINING), "b": RunProgress("running", 1, None)}
    lines = shown(panel)
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["updown", "seed", "1", "xe", "40", "%", "2/10", "2.35", "42.1", "1,234"]
    assert lines[2].split()[-5:] == ["starting", "-", "-", "-", "-"]
    assert " left" not in "\n".join(lines)


def test_time_left_is_of_runs_that_have_ended(store: FakeStore) -> None:
    clock = Clock()
    store.runs["d"] = RunProgress("finished", 1, None)
    panel = panel_of(store, clock)
    assert panel.seconds_left() is None, "a re-used run says nothing"
    clock.now = 30.0
    store.runs["a"] = RunProgress("failed", 1, None)
    lines = "\n".join(shown(panel))
    assert panel.seconds_left() == 60.0
    assert "2 of 4 runs, 1 failed" in lines


def test_references_say_nothing_of_the_time_that_models_take(store: FakeStore) -> None:
    clock = Clock()
    panel = panel_of(store, clock)
    clock.now = 2.0
    store.runs["d"] = RunProgress("finished", 1, None)
    panel.refresh()
    assert panel.seconds_left() is None
    clock.now = 30.0
    store.runs["a"] = RunProgress("finished", 1, None)
    panel.refresh()
    assert panel.seconds_left() == 60.0


def test_a_failed_run_counts_once_it_is_tried_again(store: FakeStore) -> None:
    store.runs |= {"a": RunProgress("failed", 1, None), "d": RunProgress("finished", 1, None)}
    panel = panel_of(store, Clock(), rerun=True)
    assert "0 of 4 runs" in "\n".join(shown(panel))
    store.runs |= {"a": RunProgress("failed", 2, None), "d": RunProgress("finished", 2, None)}
    assert "2 of 4 runs, 1 failed" in "\n".join(shown(panel))


def test_models_lead_by_the_mean_of_their_runs(store: FakeStore) -> None:
    panel = panel_of(store, Clock())
    store.runs |= dict.fromkeys("abcd", RunProgress("finished", 1, None))
    store.scores = {"a": 0.5, "c": 0.7, "b": 0.65, "d": 2.0}
    lines = shown(panel)
    leading = lines[lines.index(next(line for line in lines if line.startswith("Leading"))) + 1 :]
    assert [line.split() for line in leading] == [[LONG, "65.0", "1"], ["updown", "60.0", "2"]], "people do not compete"


@pytest.mark.parametrize("height", [4, 8, 12, 23])
def test_the_panel_is_never_higher_than_the_screen(store: FakeStore, height: int) -> None:
    panel = panel_of(store, Clock())
    store.scores = {"d": 2.0}
    store.runs |= dict.fromkeys("abc", RunProgress("running", 1, TRAINING))
    assert len(shown(panel, height)) <= max(height, 5)


def test_lines_of_other_processes_come_once_with_the_runs_name(store: FakeStore) -> None:
    panel = panel_of(store, Clock())
    store.runs["a"] = RunProgress(
        "running", 1, {"reported": 2, "lines": [["epoch 1", "", True], ["odd", "red", False]]}
    )
    panel.refresh()
    assert panel.new_lines() == [("updown seed 1: epoch 1", "", True), ("updown seed 1: odd", "red", False)]
    assert panel.new_lines() == []
    store.runs["a"] = RunProgress("finished", 1, {"reported": 3, "lines": [["epoch 1", "", True], ["done", "", True]]})
    panel.refresh()
    assert panel.new_lines() == [("updown seed 1: done", "", True)]
    store.runs["a"] = RunProgress("running", 2, {"reported": 1, "lines": [["again", "", True]]})
    panel.refresh()
    assert panel.new_lines() == [("updown seed 1: again", "", True)]
