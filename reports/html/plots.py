"""The report's SVG plots: scales, round ticks, paths, uncertainty, colours, legends, and names that do not overlap."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from reports.tables.plot_data import SAME_COST, trade_off_front
from results.runs.run import Run

COLOURS = 8
SHAPES = 5
MAX_LABELS = 8
LABEL_HEIGHT = 15.0
LINE_HEIGHT = 13.0
LETTER_WIDTH = 6.6
_LARGE_LETTER = 8.2
LONGEST = 28  # letters of a name at the end of a line; a longer one is cut, and the mark's title has it in full
_DISTANCES = (0.0, 10.0, 22.0, 36.0, 52.0, 72.0, 96.0, 124.0)
# Right of and below its point, or left of and above it, a label is clear of the front: these are tried first.
_DIRECTIONS = ((1, 1), (-1, -1), (1, 0), (-1, 1), (1, -1), (-1, 0))
_NEAR = 12.0
_PADDING = 0.04  # of an axis, between its ends and the outermost values
_LEAST_RATIO = 2.0  # of the ends of an axis of costs, so that differences of a few percent look small

Scale = Callable[[float], float]
Box = tuple[float, float, float, float]
Tick = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Frame:
    width: float = 480.0
    height: float = 320.0
    left: float = 52.0
    right: float = 466.0
    top: float = 16.0
    bottom: float = 274.0

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2


FRAME = Frame()


@dataclass(frozen=True, slots=True)
class Label:
    """A name at the pixel (x, y) of its baseline's start or end (`anchor`); `leader` is the path to it, or ""."""

    x: float
    y: float
    anchor: str
    leader: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """One named line or point; `colour` is an index into the style sheet's palette; `points` are data values.

    `x_bounds` and `y_bounds` are the interval of a point; `band` has (x, lowest y, highest y) along a line. `open_end`
    marks a training that was still learning when it ended.
    """

    name: str
    colour: int
    points: tuple[tuple[float, float], ...] = ()
    title: str = ""
    x_bounds: tuple[float, float] | None = None
    y_bounds: tuple[float, float] | None = None
    band: tuple[tuple[float, float, float], ...] = ()
    open_end: bool = False


@dataclass(frozen=True, slots=True)
class Drawn:
    """A series in pixels; `uncertainty` is the path of a point's bars or of a line's band."""

    series: Series
    points: tuple[tuple[float, float], ...]
    path: str
    label: Label | None = None
    uncertainty: str = ""

    @property
    def name(self) -> str:
        return shortened(self.series.name)


@dataclass(frozen=True, slots=True)
class Plot:
    """A finished plot; `front` is the path of the best trade-offs, or "", and `best` their indices in `drawn`.

    `matched` says by how much costs differ if they are about the same, else it is "".
    """

    title: str
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    drawn: tuple[Drawn, ...]
    front: str = ""
    best: frozenset[int] = frozenset()
    matched: str = ""
    frame: Frame = FRAME


def line_plot(
    title: str, x_label: str, y_label: str, series: Sequence[Series], *, x_range: tuple[float, float]
) -> Plot | None:
    """Lines over a common x axis of whole numbers, each named at its end; None without points."""
    series = [line for line in series if line.points]
    if not series:
        return None
    frame = _named_frame(series)
    x_scale, x_ticks = _whole(x_range, frame.left, frame.right)
    values = [y for line in series for _, y in line.points] + [y for line in series for _, *ys in line.band for y in ys]
    y_scale, y_ticks = _linear(_limits(values), frame.bottom, frame.top)
    paths = [tuple((round(x_scale(x), 1), round(y_scale(y), 1)) for x, y in line.points) for line in series]
    labels = _end_labels([points[-1] for points in paths], frame)
    drawn = []
    for line, points, label in zip(series, paths, labels, strict=True):
        around = [(x, high) for x, _, high in line.band] + [(x, low) for x, low, _ in reversed(line.band)]
        band = _path([(round(x_scale(x), 1), round(y_scale(y), 1)) for x, y in around]) if around else ""
        drawn.append(Drawn(line, points, _path(points), label, uncertainty=band))
    return Plot(title, x_label, y_label, x_ticks, y_ticks, tuple(drawn), frame=frame)


def trade_off_plot(title: str, x_label: str, y_label: str, series: Sequence[Series]) -> Plot | None:
    """One point a series, quality (up is better) against cost (left is better), and the front of the best trade-offs.

    The x axis is logarithmic if costs differ more than tenfold. If they differ by less than a tenth, they count as the
    same. With many points, only those on the front are labelled; the others have a tooltip. None with fewer than two
    points.
    """
    if len(series) < 2:
        return None
    series = [_bounded(point) for point in series]
    points = [point.points[0] for point in series]
    costs = [x for x, _ in points]
    bounded_costs = [*costs, *(bound for point in series for bound in point.x_bounds or ())]
    if min(bounded_costs) > 0 and max(bounded_costs) / min(bounded_costs) > 10:
        x_scale, x_ticks = _logarithmic(bounded_costs, FRAME.left, FRAME.right)
    else:
        x_scale, x_ticks = _linear(_limits(_widened(bounded_costs)), FRAME.left, FRAME.right)
    qualities = [*(y for _, y in points), *(bound for point in series for bound in point.y_bounds or ())]
    y_scale, y_ticks = _linear(_limits(qualities), FRAME.bottom, FRAME.top)
    spots = [(round(x_scale(x), 1), round(y_scale(y), 1)) for x, y in points]
    matched = _difference(costs)
    compared = [(0.0 if matched else x, -y) for x, y in spots]  # pixels grow downwards
    best = trade_off_front(compared)
    front = _staircase([(0.0, y) for _, y in spots] if matched else spots, best)
    placed: list[Box] = [(x - 6, y - 6, x + 6, y + 6) for x, y in spots]
    placed += [(x1, min(y1, y2) - 1, x2, max(y1, y2) + 1) for (x1, y1), (x2, y2) in pairwise(front)]
    labelled = [index for index in range(len(series)) if index in best or len(series) <= MAX_LABELS]
    labels = {index: _point_label(shortened(series[index].name), spots[index], placed, FRAME) for index in labelled}
    drawn = [
        Drawn(point, (spot,), "", labels.get(index), _bars(point, spot, x_scale, y_scale))
        for index, (point, spot) in enumerate(zip(series, spots, strict=True))
    ]
    path = _path(front) if len(front) > 1 else ""
    return Plot(title, x_label, y_label, x_ticks, y_ticks, tuple(drawn), path, frozenset(best), matched)


def legend(
    names: Iterable[str], ranked: Iterable[str], colour: Mapping[str, int], open_ended: Collection[str] = ()
) -> list[Series]:
    """Each name once: ranked names in their order, then the others, m2 before m10."""
    position = {name: index for index, name in reversed(list(enumerate(ranked)))}
    order = sorted(set(names), key=lambda name: (position.get(name, len(position)), natural(name)))
    return [Series(name, colour[name], open_end=name in open_ended) for name in order]


def colours(runs: Iterable[Run]) -> dict[str, int]:
    return {name: index % (COLOURS * SHAPES) for index, name in enumerate(sorted({run.model for run in runs}))}


def natural(name: str) -> list[tuple[bool, int, str]]:
    """A key by which m2 comes before m10."""
    parts = re.findall(r"\d+|\D+", name.lower())
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def shortened(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _named_frame(series: Sequence[Series]) -> Frame:
    room = 22 + LETTER_WIDTH * max(len(shortened(line.name)) for line in series)
    height = max(FRAME.bottom - FRAME.top, LINE_HEIGHT * (len(series) - 1))
    return Frame(FRAME.right + room, FRAME.height - FRAME.bottom + FRAME.top + height, bottom=FRAME.top + height)


def _bars(point: Series, spot: tuple[float, float], x_scale: Scale, y_scale: Scale) -> str:
    path = ""
    if point.x_bounds:
        low, high = (round(x_scale(bound), 1) for bound in point.x_bounds)
        path += f"M{low:g} {spot[1]:g}H{high:g}"
    if point.y_bounds:
        low, high = (round(y_scale(bound), 1) for bound in point.y_bounds)
        path += f"M{spot[0]:g} {low:g}V{high:g}"
    return path


def _staircase(spots: Sequence[tuple[float, float]], front: Sequence[int]) -> list[tuple[float, float]]:
    """The corners of the line through the points of a front, from cheap to costly."""
    corners: list[tuple[float, float]] = []
    for index in front:
        x, y = spots[index]
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    return corners


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _bounded(point: Series) -> Series:
    """The series with bounds cut at 0 unless its value is negative: scores and costs cannot be."""
    x, y = point.points[0]
    x_bounds = point.x_bounds
    y_bounds = point.y_bounds
    if x_bounds and x >= 0:
        x_bounds = max(0.0, x_bounds[0]), x_bounds[1]
    if y_bounds and y >= 0:
        y_bounds = max(0.0, y_bounds[0]), y_bounds[1]
    return replace(point, x_bounds=x_bounds, y_bounds=y_bounds)


def _widened(costs: Sequence[float]) -> tuple[float, float]:
    """The least and the largest cost, or ends around them of which one is twice the other."""
    low = min(costs)
    high = max(costs)
    if low <= 0 or high / low >= _LEAST_RATIO:
        return low, high
    share = (low + high) / (1 + _LEAST_RATIO)
    return share, _LEAST_RATIO * share


def _difference(costs: Sequence[float]) -> str:
    """The difference of costs that are about the same, in words; "" if they differ by more."""
    low = min(costs)
    high = max(costs)
    if low == high:
        return "are the same"
    if low <= 0 or high / low > SAME_COST:
        return ""
    return f"differ by at most {100 * (high / low - 1):.2g} %"


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis: a little beyond the values, but not below 0 unless a value is."""
    low = min(values)
    high = max(values)
    if low == high:
        low = low - (abs(low) or 1) / 2
        high = high + (abs(high) or 1) / 2
    padding = _PADDING * (high - low)
    return (max(0.0, low - padding) if min(values) >= 0 else low - padding), high + padding


def _whole(limits: tuple[float, float], start: float, end: float) -> tuple[Scale, tuple[Tick, ...]]:
    """A linear scale whose ticks are whole numbers."""
    first, last = limits if limits[0] < limits[1] else (limits[0] - 0.5, limits[1] + 0.5)
    return _linear((first, last), start, end, least_step=1.0)


def _linear(
    limits: tuple[float, float], start: float, end: float, least_step: float = 0.0
) -> tuple[Scale, tuple[Tick, ...]]:
    """A linear scale between limits, and ticks at round values."""
    first, last = limits
    step = max(least_step, _round_step((last - first) / 5))

    def scale(value: float) -> float:
        return start + (value - first) / (last - first) * (end - start)

    decimals = max(0, -math.floor(math.log10(step)))
    marks = range(math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9) + 1)
    return scale, tuple((round(scale(mark * step), 1), f"{mark * step:.{decimals}f}") for mark in marks)


def _logarithmic(values: Sequence[float], start: float, end: float) -> tuple[Scale, tuple[Tick, ...]]:
    """A logarithmic scale that ends a little beyond the values, and its ticks at 1, 2 and 5 times powers of ten."""
    padding = (max(values) / min(values)) ** _PADDING
    low = min(values) / padding
    high = max(values) * padding
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    inside = [mark for mark in marks if low <= mark <= high]

    def scale(value: float) -> float:
        return start + math.log(value / low) / math.log(high / low) * (end - start)

    # Beyond two decades only the powers of ten fit.
    marks_shown = inside if high / low <= 100 else [mark for mark in inside if f"{mark:e}".startswith("1.0")]
    return scale, tuple((round(scale(mark), 1), f"{mark:g}") for mark in marks_shown)


def _round_step(rough: float) -> float:
    """The nearest of 1, 2, 5 times a power of ten that is not below `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def _point_label(name: str, spot: tuple[float, float], placed: list[Box], frame: Frame) -> Label:
    """A label near its point that overlaps boxes in `placed` as little as possible; its own box is added to them."""
    width = _LARGE_LETTER * len(name)
    best: tuple[int, Box, float] | None = None
    for distance in _DISTANCES:
        for x_side, y_side in _DIRECTIONS:
            baseline = spot[1] + 4 + y_side * (11 + distance)
            box_left = spot[0] + (7 + distance / 2 if x_side > 0 else -7 - distance / 2 - width)
            box_left = min(max(box_left, frame.left + 2), frame.width - 2 - width)
            box = (box_left, baseline - LABEL_HEIGHT + 2, box_left + width, baseline + 2)
            if box[1] < frame.top - 14 or box[3] > frame.bottom:
                continue
            overlaps = sum(box[0] < x2 and x1 < box[2] and box[1] < y2 and y1 < box[3] for x1, y1, x2, y2 in placed)
            if best is None or overlaps < best[0]:
                best = overlaps, box, distance
            if overlaps == 0:
                break
        if best is not None and best[0] == 0:
            break
    assert best is not None, "a plot is higher than a label, so that some side of every point is free"
    _, box, distance = best
    placed.append(box)
    anchor = "start" if box[0] >= spot[0] else "end"
    anchor_x = box[0] if anchor == "start" else box[2]
    return Label(round(anchor_x, 1), round(box[3] - 2, 1), anchor, _leader(spot, box) if distance else "")


def _end_labels(line_ends: Sequence[tuple[float, float]], frame: Frame) -> list[Label]:
    """Names to the right of the ends of lines, moved up and down until they do not overlap."""
    order = sorted(range(len(line_ends)), key=lambda index: line_ends[index][1])
    heights: list[float] = []
    for index in order:
        lowest = heights[-1] + LINE_HEIGHT if heights else frame.top
        heights.append(max(line_ends[index][1], lowest))
    limit = frame.bottom
    for position in range(len(heights) - 1, -1, -1):
        heights[position] = min(heights[position], limit)
        limit = heights[position] - LINE_HEIGHT
    labels = [Label(0, 0, "start")] * len(line_ends)
    for index, height in zip(order, heights, strict=True):
        x, y = line_ends[index]
        start = x + 5
        end = frame.right + 12
        far = end - start > _NEAR or abs(height - y) > 1
        leader = f"M{start:g} {y:g}L{end:g} {round(height, 1):g}" if far else ""
        labels[index] = Label(end + 3, round(height + 4, 1), "start", leader)
    return labels


def _leader(spot: tuple[float, float], box: Box) -> str:
    """The path from the edge of a point's mark to the nearest position on a label's box."""
    x = min(max(spot[0], box[0]), box[2])
    y = min(max(spot[1], box[1] + 2), box[3])
    length = math.hypot(x - spot[0], y - spot[1])
    if length <= _NEAR:
        return ""
    start = [origin + 6 * (target - origin) / length for origin, target in zip(spot, (x, y), strict=True)]
    return f"M{start[0]:.1f} {start[1]:.1f}L{x:.1f} {y:.1f}"
