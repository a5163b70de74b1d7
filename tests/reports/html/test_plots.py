"""Plots: geometry, and conditions of curves."""

import itertools
import re
from dataclasses import replace

import pytest

from reports.html.plots import (
    FRAME,
    LETTER_WIDTH,
    LINE_HEIGHT,
    MAX_LABELS,
    Plot,
    Series,
    colours,
    legend,
    line_plot,
    trade_off_plot,
)
from reports.html.rendering import template_environment
from reports.html.trade_offs import curve_sections
from results.records import EpochRecord
from tests.reports.examples import contents, run

SVG = "{http://www.w3.org/2000/svg}"


def trade_off(*points: tuple[float, float]) -> Plot:
    series = [Series(f"model_{number}", number % 8, (point,)) for number, point in enumerate(points)]
    plot = trade_off_plot("t", "x", "y", series)
    assert plot is not None
    return plot


@pytest.mark.parametrize("points", [[(1, 5), (1, 5)], [(0, 0), (3, 0)], [(1e-5, 1), (9e4, 99)], [(2, 1), (29, 98.3)]])
def test_every_point_is_inside_whatever_the_values(points: list[tuple[float, float]]) -> None:
    plot = trade_off(*points)
    assert all(0 <= x <= FRAME.width and 0 <= y <= FRAME.height for drawn in plot.drawn for x, y in drawn.points)
    ticks = [float(text) for _, text in plot.x_ticks]
    assert len(ticks) >= 2
    assert ticks == sorted(set(ticks))


def test_bounds_are_drawn_and_stay_inside() -> None:
    points = [Series("a", 0, ((1.0, 50.0),), "", (0.5, 1.5), (45.0, 55.0)), Series("b", 1, ((30.0, 90.0),))]
    plot = trade_off_plot("t", "x", "y", points)
    assert plot is not None
    assert [drawn.uncertainty.count("M") for drawn in plot.drawn] == [2, 0]
    ends = [float(number) for number in re.findall(r"[\d.]+", plot.drawn[0].uncertainty)]
    assert all(FRAME.top <= end <= FRAME.right for end in ends)


@pytest.mark.parametrize("values", [[3, 250, 310], [40, 41, 60], [-3, 0, 5], [250.2, 250.9]])
def test_axes_end_where_their_values_do(values: list[float]) -> None:
    plot = trade_off(*((number + 1, value) for number, value in enumerate(values)))
    heights = [y for drawn in plot.drawn for _, y in drawn.points]
    free = 0.05 * (FRAME.bottom - FRAME.top)
    assert min(heights) - FRAME.top < free
    assert FRAME.bottom - max(heights) < free
    beyond = 0.05 * (max(values) - min(values))
    assert all(min(values) - beyond <= float(text) <= max(values) + beyond for _, text in plot.y_ticks)


def test_an_interval_below_zero_does_not_take_the_axis_there() -> None:
    points = [Series("a", 0, ((1.0, 3.0),), "", (-1.0, 3.0), (-250.0, 260.0)), Series("b", 1, ((2.0, 300.0),))]
    plot = trade_off_plot("t", "x", "y", points)
    assert plot is not None
    assert min(float(text) for _, text in (*plot.x_ticks, *plot.y_ticks)) == 0
    assert plot.drawn[0].uncertainty.startswith(f"M{FRAME.left:g} ")


def test_matched_costs_are_not_stretched_into_a_difference() -> None:
    plot = trade_off((136, 20), (138, 50), (140, 40))
    places = [x for drawn in plot.drawn for x, _ in drawn.points]
    assert max(places) - min(places) < 0.1 * (FRAME.right - FRAME.left)
    assert plot.matched == "differ by at most 2.9 %"
    assert (plot.front, plot.best) == ("", {1})
    assert trade_off((7, 1), (7, 2)).matched == "are the same"
    assert trade_off((100, 20), (120, 50)).matched == ""


def test_forty_models_have_each_a_colour_and_a_shape_of_their_own() -> None:
    runs = [replace(run(), model=f"model_{number}") for number in range(40)]
    look = "{{ each | hue }} {{ draw.shape(each, 0, 0) }};"
    looks = template_environment(()).from_string(
        f'{{% import "plots.html.j2" as draw %}}{{% for each in of %}}{look}{{% endfor %}}'
    )
    drawn = looks.render(of=list(colours(runs).values())).split(";")[:-1]
    assert len({(look.split()[0], look.partition("<")[2]) for look in drawn}) == 40


def test_the_front_joins_only_points_that_no_other_beats() -> None:
    plot = trade_off((1, 10), (2, 5), (3, 20), (4, 19))
    assert [f"{x:g} {y:g}" in plot.front for x, y in (drawn.points[0] for drawn in plot.drawn)] == [
        True, False, True, False,
    ]  # fmt: skip
    assert plot.best == {0, 2}
    assert trade_off_plot("t", "x", "y", [Series("only", 0, ((1, 2),))]) is None


def test_labels_of_neighbours_do_not_overlap() -> None:
    boxes = []
    for drawn in trade_off((1, 50), (1.01, 50.1), (1.02, 49.9), (3, 90), (0.5, 10)).drawn:
        assert drawn.label
        width = LETTER_WIDTH * len(drawn.series.name)
        left = drawn.label.x if drawn.label.anchor == "start" else drawn.label.x - width
        boxes.append((left, drawn.label.y - 10, left + width, drawn.label.y))
    for one, other in itertools.combinations(boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_of_many_points_those_of_the_front_alone_are_named_and_joined_to_their_names() -> None:
    front = [(1 + number / 50, 50 + number) for number in range(12)]
    plot = trade_off(*front, *((2 + number / 50, 45 + number / 2) for number in range(10)))
    assert len(plot.drawn) > MAX_LABELS
    labels = [drawn.label for drawn in plot.drawn]
    assert [label is not None for label in labels] == [True] * 12 + [False] * 10
    assert any(label.leader for label in labels if label), "those that are pushed away have a leader"


def test_lines_are_named_at_their_ends_one_below_the_other() -> None:
    series = [Series(f"m{number}", number, ((1, 0), (2, 5 + number / 1000))) for number in range(30)]
    plot = line_plot("t", "x", "y", [*series, Series("empty", 1, ())], x_range=(1, 2))
    assert plot is not None
    heights = sorted(drawn.label.y for drawn in plot.drawn if drawn.label)
    assert len(heights) == 30, "a line without points is left out"
    assert all(high - low >= LINE_HEIGHT - 0.2 for low, high in itertools.pairwise(heights))
    assert heights[-1] <= plot.frame.height
    assert all(drawn.label and drawn.label.x > plot.frame.right for drawn in plot.drawn)
    assert line_plot("t", "x", "y", [Series("empty", 1, ())], x_range=(1, 2)) is None
    single = line_plot("t", "x", "y", [Series("one", 0, ((1, 3),))], x_range=(1, 1))
    assert single is not None
    assert all(text == str(int(text)) for _, text in single.x_ticks), "epochs are whole"


def test_legends_are_in_the_order_of_the_score_then_natural() -> None:
    names = ["m10", "m2", "best", "second", "M3"]
    entries = legend(names, ["best", "second", "absent"], dict.fromkeys(names, 0), {"m2"})
    assert [each.name for each in entries] == ["best", "second", "m2", "M3", "m10"]
    assert [each.open_end for each in entries] == [False, False, True, False, False]


def test_curves_of_other_conditions_never_share_a_plot() -> None:
    common = replace(run(), epochs=(EpochRecord(0, "s", "xe", 1, 50, 3e-4, 0.5, 0.9, 10.4, 78.2),), status="failed")
    runs = {
        key: replace(common, key=key, seed=seed, signature={"beam": "3", "schedule": schedule})
        for key, seed, schedule in (("a", 1, "xe#1"), ("b", 1, "scst#2"), ("c", 2, "xe#1"))
    }
    sections = curve_sections(contents(runs=runs), {"m2": 0})
    assert [section.details for section in sections] == ["schedule: xe#1", "schedule: scst#2"], (
        "digests have four digits"
    )
    tables = [section.tables[""] for section in sections]
    assert [[line.runs[0][1] for line in table.lines] for table in tables] == [["a", "c"], ["b"]]
