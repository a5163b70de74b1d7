"""Names of pages, nested settings, curves and plots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reports.html.curves import curve_sections
from reports.html.models import flat
from reports.html.plots import MAX_LABELS, Series, trade_off_plot
from reports.html.rendering import model_page, run_page
from results.records import EpochRecord
from tests.reports.examples import contents, run


@pytest.mark.parametrize("name", ["../../up", "a/b/c", "A", "", "x" * 300, "con.txt", "show_tell/../up"])
def test_no_name_becomes_a_path(name: str) -> None:
    for page in (model_page(name), run_page(name)):
        assert page.count("/") == 1
        assert ".." not in page
        assert len(page) < 150


def test_names_of_the_zoo_stay_readable() -> None:
    assert model_page("show_tell/fc") == "models/show_tell.fc.html"
    assert model_page("show_tell.fc") != "models/show_tell.fc.html"


def test_settings_of_stages_are_numbered() -> None:
    assert flat({"stages": [{"lr": 1, "name": None}, {"lr": 2}], "betas": [0.9, 0.99]}) == [
        ("stages.1.lr", "1"),
        ("stages.1.name", "—"),
        ("stages.2.lr", "2"),
        ("betas", "[0.9, 0.99]"),
    ]


def test_curves_of_other_conditions_never_share_a_plot() -> None:
    epoch = EpochRecord(0, "s", "xe", 1, 50, 3e-4, 0.5, 0.9, 10.4, 78.2)
    common = replace(run(), epochs=(epoch,), status="failed")
    runs = {
        key: replace(common, key=key, seed=seed, signature={"beam": "3", "schedule": schedule})
        for key, seed, schedule in (("a", 1, "xe#1"), ("b", 1, "scst#2"), ("c", 2, "xe#1"))
    }
    first, second = curve_sections(contents(runs=runs), {"m2": 0})
    assert (first.apart, second.apart) == ("schedule: xe#1", "schedule: scst#2")
    assert [line.key for line in first.lines] == ["a", "c"]
    assert [line.key for line in second.lines] == ["b"]


def test_bounds_are_drawn_and_stay_inside() -> None:
    points = [Series("a", 0, ((1.0, 50.0),), "", (0.5, 1.5), (45.0, 55.0)), Series("b", 1, ((30.0, 90.0),))]
    plot = trade_off_plot("t", "x", "y", points)
    assert plot is not None
    assert plot.drawn[0].uncertainty.count("M") == 2
    assert plot.drawn[1].uncertainty == ""
    assert float(plot.y_ticks[0].text) <= 45


def test_of_many_points_only_the_best_are_named() -> None:
    points = [Series(f"m{n}", n, ((float(n), 10.0 - (n > 0) * n / 2),)) for n in range(MAX_LABELS + 1)]
    plot = trade_off_plot("t", "x", "y", points)
    assert plot is not None
    assert plot.best == {0}
    assert [drawn.label is not None for drawn in plot.drawn] == [True] + [False] * MAX_LABELS
