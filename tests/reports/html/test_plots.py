"""Geometry of the plots."""

from __future__ import annotations

import itertools

import pytest

from reports.html.plots import (
    FRAME,
    LETTER_WIDTH,
    LINE_HEIGHT,
    MAX_LABELS,
    Plot,
    Series,
    legend,
    line_plot,
    natural,
    trade_off_plot,
)


def trade_off(*points: tuple[float, float]) -> Plot:
    series = [Series(f"model_{number}", number % 8, (point,)) for number, point in enumerate(points)]
    plot = trade_off_plot("t", "x", "y", series)
    assert plot is not None
    return plot


def ticks_grow(plot: Plot) -> bool:
    pairs = itertools.pairwise(float(tick.text) for tick in plot.x_ticks)
    return all(one < other for one, other in pairs)


@pytest.mark.parametrize("points", [[(1, 5), (1, 5)], [(0, 0), (3, 0)], [(1e-5, 1), (9e4, 99)], [(2, 1), (29, 98.3)]])
def test_every_point_is_inside_whatever_the_values(points: list[tuple[float, float]]) -> None:
    plot = trade_off(*points)
    for drawn in plot.drawn:
        assert 0 <= drawn.points[0][0] <= FRAME.width
        assert 0 <= drawn.points[0][1] <= FRAME.height
    assert len(plot.x_ticks) >= 2
    assert ticks_grow(plot)


def test_the_front_joins_only_points_that_no_other_beats() -> None:
    plot = trade_off((1, 10), (2, 5), (3, 20), (4, 19))
    positions = [drawn.points[0] for drawn in plot.drawn]
    assert [f"{x:g} {y:g}" in plot.front for x, y in positions] == [True, False, True, False]


def test_labels_of_neighbours_do_not_overlap() -> None:
    plot = trade_off((1, 50), (1.01, 50.1), (1.02, 49.9), (3, 90), (0.5, 10))
    boxes = []
    for drawn in plot.drawn:
        width = LETTER_WIDTH * len(drawn.series.name)
        left = drawn.label.x if drawn.label.anchor == "start" else drawn.label.x - width
        boxes.append((left, drawn.label.y - 10, left + width, drawn.label.y))
    for one, other in itertools.combinations(boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_one_point_is_no_trade_off() -> None:
    assert trade_off_plot("t", "x", "y", [Series("only", 0, ((1, 2),))]) is None


def test_lines_without_points_are_left_out() -> None:
    full, empty = Series("full", 0, ((1, 2), (2, 4))), Series("empty", 1, ())
    plot = line_plot("t", "x", "y", [full, empty], x_range=(1, 2), y_from=0)
    assert plot is not None
    assert [drawn.series.name for drawn in plot.drawn] == ["full"]
    assert plot.y_ticks[0].text == "0"
    assert line_plot("t", "x", "y", [empty], x_range=(1, 2), y_from=0) is None


def test_a_single_epoch_can_be_drawn() -> None:
    plot = line_plot("t", "x", "y", [Series("one", 0, ((1, 3),))], x_range=(1, 1), y_from=3)
    assert plot is not None
    assert all(tick.text == str(int(tick.text)) for tick in plot.x_ticks), "epochs are whole"


def test_every_point_of_a_crowded_front_is_named_and_joined_to_its_name() -> None:
    front = [(1 + number / 50, 50 + number) for number in range(12)]
    beaten = [(2 + number / 50, 45 + number / 2) for number in range(10)]
    plot = trade_off(*front, *beaten)
    assert plot.best == set(range(12))
    assert len(plot.drawn) > MAX_LABELS
    labels = [plot.drawn[number].label for number in sorted(plot.best)]
    assert all(label is not None for label in labels)
    assert any(label.leader for label in labels if label), "those that are pushed away have a leader"


def test_names_at_the_ends_of_lines_stand_one_below_the_other_inside() -> None:
    series = [Series(f"m{number}", number, ((1, 0), (2, 5 + number / 1000))) for number in range(30)]
    plot = line_plot("t", "x", "y", series, x_range=(1, 2), y_from=0)
    assert plot is not None
    heights = sorted(drawn.label.y for drawn in plot.drawn if drawn.label)
    assert len(heights) == 30
    assert all(high - low >= LINE_HEIGHT - 0.2 for low, high in itertools.pairwise(heights))
    assert heights[-1] <= plot.frame.height
    assert all(drawn.label and drawn.label.x > plot.frame.right for drawn in plot.drawn)


def test_legends_are_in_the_order_of_the_score_then_natural() -> None:
    names = ["m10", "m2", "best", "second", "M3"]
    entries = legend(names, ["best", "second", "absent"], dict.fromkeys(names, 0), {"m2"})
    assert [each.name for each in entries] == ["best", "second", "m2", "M3", "m10"]
    assert [each.open_end for each in entries] == [False, False, True, False, False]
    assert natural("m2") < natural("m10")
