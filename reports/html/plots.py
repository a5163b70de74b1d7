"""Geometry of the report's SVG plots: scales, round ticks, paths, uncertainty and labels that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reports.html.labels import LETTER_WIDTH, LINE_HEIGHT, Box, Frame, Label, end_labels, point_label, shortened

FRAME = Frame()
MAX_LABELS = 8

Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis: its pixel position and text."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Series:
    """One named line or point; `colour` is an index into the style sheet's palette; `points` are data values.

    `x_bounds` and `y_bounds` are how far a point may lie from its place; `band` is by x what a line's y lies between.
    `open_end` marks a training that was still learning when it ended.
    """

    name: str
    colour: int
    points: tuple[tuple[float, float], ...]
    title: str = ""
    x_bounds: tuple[float, float] | None = None
    y_bounds: tuple[float, float] | None = None
    band: tuple[tuple[float, float, float], ...] = ()
    open_end: bool = False


@dataclass(frozen=True, slots=True)
class Drawn:
    """A series in pixels: its points, the path through them, and its name where it has one in the plot.

    `uncertainty` is the path of a point's bars or of a line's band, and `top` the highest of the points of a search.
    """

    series: Series
    points: tuple[tuple[float, float], ...]
    path: str
    label: Label | None = None
    uncertainty: str = ""
    top: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        """The name at its place in the plot."""
        return shortened(self.series.name)


@dataclass(frozen=True, slots=True)
class Plot:
    """A finished plot; `front` is the path of the best trade-offs, empty where there is none.

    `best` are the places in `drawn` of the points on it.
    """

    title: str
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    drawn: tuple[Drawn, ...]
    front: str = ""
    best: frozenset[int] = frozenset()
    frame: Frame = FRAME


def line_plot(
    title: str, x_label: str, y_label: str, series: Sequence[Series], *, x_range: tuple[float, float], y_from: float
) -> Plot | None:
    """Lines over a common x axis, each named at its end; series without points are left out, None when nothing is left.

    The y axis begins at `y_from` or below.
    """
    series = [one for one in series if one.points]
    if not series:
        return None
    frame = _named_frame(series)
    x_scale, x_ticks = _linear(x_range, frame.left, frame.right, whole=True)
    values = [y for one in series for _, y in one.points] + [y for one in series for _, *ys in one.band for y in ys]
    y_scale, y_ticks = _linear([y_from, *values], frame.bottom, frame.top)
    paths = [tuple((round(x_scale(x), 1), round(y_scale(y), 1)) for x, y in one.points) for one in series]
    labels = end_labels([points[-1] for points in paths], frame)
    drawn = []
    for one, points, label in zip(series, paths, labels, strict=True):
        upper = [(round(x_scale(x), 1), round(y_scale(high), 1)) for x, _, high in one.band]
        lower = [(round(x_scale(x), 1), round(y_scale(low), 1)) for x, low, _ in one.band]
        band = _path([*upper, *lower[::-1]]) if upper else ""
        drawn.append(Drawn(one, points, _path(points), label, uncertainty=band))
    return Plot(title, x_label, y_label, x_ticks, y_ticks, tuple(drawn), frame=frame)


def search_plot(title: str, x_label: str, y_label: str, series: Sequence[Series]) -> Plot | None:
    """Lines through the points of a search, over a logarithmic axis of what was searched (above 0), the best marked.

    Points are in the order of x; series without points are left out, None when nothing is left.
    """
    series = [one for one in series if one.points]
    if not series:
        return None
    searched = [x for one in series for x, _ in one.points]
    if min(searched) == max(searched):
        searched += [searched[0] / 2, 2 * searched[0]]
    x_scale, x_ticks = _logarithmic(searched, FRAME.left, FRAME.right)
    y_scale, y_ticks = _linear([y for one in series for _, y in one.points], FRAME.bottom, FRAME.top)
    drawn = []
    for one in series:
        points = tuple((round(x_scale(x), 1), round(y_scale(y), 1)) for x, y in one.points)
        best = max(range(len(points)), key=lambda number: one.points[number][1])
        drawn.append(Drawn(one, points, _path(points), top=points[best]))
    return Plot(title, x_label, y_label, x_ticks, y_ticks, tuple(drawn))


def trade_off_plot(title: str, x_label: str, y_label: str, series: Sequence[Series]) -> Plot | None:
    """One point a series, quality (up is better) against cost (left is better), and the front of the best trade-offs.

    The x axis is logarithmic where costs differ more than tenfold. Where there are many points, only those on the
    front are named. None with fewer than two points.
    """
    if len(series) < 2:
        return None
    costs = [x for one in series for x in (one.points[0][0], *(one.x_bounds or ()))]
    spread_wide = min(costs) > 0 and max(costs) / min(costs) > 10
    x_scale, x_ticks = (_logarithmic if spread_wide else _linear)(costs, FRAME.left, FRAME.right)
    qualities = [y for one in series for y in (one.points[0][1], *(one.y_bounds or ()))]
    y_scale, y_ticks = _linear(qualities, FRAME.bottom, FRAME.top)
    spots = [(round(x_scale(x), 1), round(y_scale(y), 1)) for x, y in (one.points[0] for one in series)]
    front, best = _front(spots)
    placed: list[Box] = [(x - 6, y - 6, x + 6, y + 6) for x, y in spots]
    # Where there are many points, only those on the front are named: others say their name when they are pointed at.
    named = [number for number in range(len(series)) if number in best or len(series) <= MAX_LABELS]
    labels = {number: point_label(shortened(series[number].name), spots[number], placed, FRAME) for number in named}
    drawn = [
        Drawn(one, (spot,), "", labels.get(number), _bars(one, spot, x_scale, y_scale))
        for number, (one, spot) in enumerate(zip(series, spots, strict=True))
    ]
    path = _path(front) if len(front) > 1 else ""
    return Plot(title, x_label, y_label, x_ticks, y_ticks, tuple(drawn), path, best)


def _named_frame(series: Sequence[Series]) -> Frame:
    """A frame with room for the names at the ends of lines, and high enough for one below the other."""
    room = 22 + LETTER_WIDTH * max(len(shortened(one.name)) for one in series)
    height = max(FRAME.bottom - FRAME.top, LINE_HEIGHT * (len(series) - 1))
    return Frame(FRAME.right + room, FRAME.height - FRAME.bottom + FRAME.top + height, bottom=FRAME.top + height)


def _bars(one: Series, spot: tuple[float, float], x_scale: Scale, y_scale: Scale) -> str:
    """Bars through a point as far as its bounds reach."""
    x, y = spot
    path = ""
    if one.x_bounds:
        low, high = (round(x_scale(bound), 1) for bound in one.x_bounds)
        path += f"M{low:g} {y:g}H{high:g}"
    if one.y_bounds:
        low, high = (round(y_scale(bound), 1) for bound in one.y_bounds)
        path += f"M{x:g} {low:g}V{high:g}"
    return path


def _front(spots: Sequence[tuple[float, float]]) -> tuple[list[tuple[float, float]], frozenset[int]]:
    """The spots that no other beats in both directions, as a staircase from cheap to costly (pixel y grows down)."""
    steps: list[tuple[float, float]] = []
    best = []
    for number in sorted(range(len(spots)), key=lambda number: spots[number]):
        x, y = spots[number]
        if not steps or y < steps[-1][1]:
            if steps:
                steps.append((x, steps[-1][1]))
            steps.append((x, y))
            best.append(number)
    return steps, frozenset(best)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _linear(values: Sequence[float], start: float, end: float, whole: bool = False) -> tuple[Scale, tuple[Tick, ...]]:
    """A linear scale over round limits around the values, and its ticks."""
    low, high = min(values), max(values)
    if low == high:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    step = _round_step((high - low) / 5)
    if whole:
        step = max(1.0, step)
    first, last = (low, high) if whole else (math.floor(low / step) * step, math.ceil(high / step) * step)

    def scale(value: float) -> float:
        return start + (value - first) / (last - first) * (end - start)

    decimals = max(0, -math.floor(math.log10(step)))
    marks = range(math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9) + 1)
    return scale, tuple(Tick(round(scale(mark * step), 1), f"{mark * step:.{decimals}f}") for mark in marks)


def _logarithmic(values: Sequence[float], start: float, end: float) -> tuple[Scale, tuple[Tick, ...]]:
    """A logarithmic scale from the 1, 2 or 5 below the values to the one above, and its ticks."""
    powers = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    marks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    low = max(mark for mark in marks if mark <= min(values))
    high = min(mark for mark in marks if mark >= max(values))
    inside = [mark for mark in marks if low <= mark <= high]

    def scale(value: float) -> float:
        return start + math.log(value / low) / math.log(high / low) * (end - start)

    # Beyond two decades only the powers of ten have room.
    shown = inside if high / low <= 100 else [mark for mark in inside if f"{mark:e}".startswith("1.0")]
    return scale, tuple(Tick(round(scale(mark), 1), f"{mark:g}") for mark in shown)


def _round_step(rough: float) -> float:
    """The nearest of 1, 2, 5 times a power of ten that is not below `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
