"""The plot of a tuning's trials: what is drawn, what is said of the rest, and where it stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports.html.method import tuning
from reports.html.plots import FRAME, Entry, Series, search_plot
from reports.html.report import write_report
from results.store.store import Store
from tests.reports.conftest import dataset, outcome, spec
from tests.reports.examples import group, row, run
from tests.reports.html.parsed import Page

LABEL = "4x300#1a2b3c"


def trials(*pairs: tuple[float, float | None]) -> dict[str, Any]:
    return {"trials": [{"learning_rate": rate, "state": "any", "score": score} for rate, score in pairs]}


def tuned_group(*models: str) -> Any:
    found = group(*(replace(row(model), keys=(model,)) for model in models))
    return replace(found, signature=found.signature | {"tuned": LABEL})


def test_trials_are_in_the_order_of_their_learning_rates() -> None:
    runs = {"m2": run(tuning=trials((0.002, 0.5), (0.0004, 0.3), (0.01, None), (0.006, 0.6)))}
    found = tuning(tuned_group("m2"), runs, {"m2": 3})
    assert found is not None
    [line] = found.plot.drawn
    assert line.series.points == ((0.0004, 30.0), (0.002, 50.0), (0.006, 60.0))
    assert line.top == line.points[2]
    assert line.series.title == "m2: best 60.0 at 0.006, of 3 trials"
    assert found.legend == [Entry("m2", 3)]
    assert found.budget.startswith("4 trials of at most 300 updates for each model")
    assert found.left_out == "1 trial that was stopped early or diverged is not drawn"


def test_a_run_without_its_trials_is_named() -> None:
    runs = {"m2": run(tuning=trials((0.002, 0.5))), "updown": run(tuned={})}
    found = tuning(tuned_group("m2", "updown"), runs, {"m2": 0, "updown": 1})
    assert found is not None
    assert [each.name for each in found.legend] == ["m2"]
    assert found.left_out == "the runs of updown do not store their trials"


def test_untuned_tables_have_no_plot() -> None:
    assert tuning(group(row("m2")), {"k": run(tuning=trials((0.002, 0.5)))}, {"m2": 0}) is None
    assert tuning(tuned_group("m2"), {"m2": run(tuning=trials((0.002, None)))}, {"m2": 0}) is None


@pytest.mark.parametrize("points", [[(0.002, 50.0)], [(2e-5, 0.0), (9e-1, 130.0)], [(0.0002, 9.0), (0.02, 9.0)]])
def test_every_trial_is_inside_the_plot(points: list[tuple[float, float]]) -> None:
    plot = search_plot("t", "x", "y", [Series("m2", 0, tuple(points))])
    assert plot is not None
    [line] = plot.drawn
    assert all(0 <= x <= FRAME.width and 0 <= y <= FRAME.height for x, y in line.points)
    assert [x for x, _ in line.points] == sorted({x for x, _ in line.points})
    assert len(plot.x_ticks) >= 2


def test_the_method_page_shows_the_trials_of_its_table(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(dataset(tmp_path / "data"))
        for model, best in (("updown", 0.6), ("m2", 0.7)):
            planned = spec(model, tuned=LABEL)
            searched = {"tuned": {"learning_rate": 2.0}, "tuning": trials((0.002, 0.5), (0.004, best), (0.02, None))}
            store.plan([replace(planned, config=planned.config | searched)])
            store.begin(planned.key, {})
            store.finish(planned.key, outcome(model, 1, best))
        folder = write_report(store, tmp_path / "report").parent
    page = Page(folder / "method.html")
    text = (folder / "method.html").read_text(encoding="utf-8")
    assert "m2: best 70.0 at 0.004, of 2 trials" in text
    assert "4 trials of at most 300 updates for each model" in text
    assert "2 trials that were stopped early or diverged are not drawn" in text
    [figure] = page.root.find("figure", class_="plot")
    marks = {mark.attributes["data-model"]: mark for mark in figure.find("g", class_="mark")}
    assert {name: len([*mark.find("circle", r="2.5")]) for name, mark in marks.items()} == {"m2": 2, "updown": 2}
    model = (folder / "models" / "m2.html").read_text(encoding="utf-8")
    assert "tuned.learning_rate" in model
    assert "tuning.trials" not in model
