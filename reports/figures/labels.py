"""Names beside points, none of which covers another name or a point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase

Box = tuple[float, float, float, float]
Spot = tuple[float, float]
_AWAY = (4.0, 7.0, 11.0, 16.0, 22.0, 30.0)  # points
_DIRECTIONS = ((1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (-1, 0), (0, 1), (0, -1))
_POINT = 3.0


@dataclass(frozen=True, slots=True)
class Label:
    """A name to write beside a spot in data units; `may_be_far`, with a line, where there is no room beside it."""

    name: str
    spot: Spot
    colour: str
    may_be_far: bool = True


def place_labels(
    axes: Axes,
    renderer: RendererBase,
    labels: Sequence[Label],
    *,
    lines: Sequence[Sequence[Spot]] = (),
    size: float,
) -> list[str]:
    """Write names beside their spots, the first first; gives those that found no room.

    A name that is not beside its spot has a line to it. No name covers a spot or one of the `lines`.
    """
    scale = axes.figure.dpi / 72
    pixels = [tuple(axes.transData.transform(label.spot)) for label in labels]
    frame = axes.get_window_extent(renderer)
    occupied: list[Box] = [_around(spot, _POINT * scale) for spot in pixels]
    for line in lines:
        points = [tuple(axes.transData.transform(spot)) for spot in line]
        for start, end in pairwise(points):
            occupied += _along(start, end, scale)
    without = []
    for label, (x, y) in zip(labels, pixels, strict=True):
        text = axes.annotate(label.name, label.spot, (0, 0), textcoords="offset points", size=size, color=label.colour)
        extent = text.get_window_extent(renderer)
        width = extent.width
        height = extent.height
        reach = _AWAY if label.may_be_far else _AWAY[:2]
        for away, (right, up) in ((away, direction) for away in reach for direction in _DIRECTIONS):
            left = x + (right * away * scale if right > 0 else right * away * scale - width if right else -width / 2)
            low = y + (up * away * scale if up > 0 else up * away * scale - height if up else -height / 2)
            box = (left, low, left + width, low + height)
            is_inside = box[0] >= frame.x0 and box[2] <= frame.x1 and box[1] >= frame.y0 and box[3] <= frame.y1
            if is_inside and not any(_overlap(box, end) for end in occupied):
                occupied.append(box)
                text.set_position(((left - x) / scale, (low - y) / scale))
                if away > _AWAY[1]:
                    near = (min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3]))
                    line_of = axes.transData.inverted().transform([(x, y), near])
                    axes.plot(*zip(*line_of, strict=True), color="#999999", linewidth=0.4, zorder=1)
                    occupied += _along((x, y), near, scale)
                break
        else:
            text.remove()
            without.append(label.name)
    return without


def _along(first: Spot, second: Spot, scale: float) -> list[Box]:
    """Small boxes along a line, which no name may cover."""
    steps = max(1, int(hypot(second[0] - first[0], second[1] - first[1]) / (2 * scale)))
    coordinates = zip(first, second, strict=True)
    xs, ys = ([start + (end - start) * step / steps for step in range(steps + 1)] for start, end in coordinates)
    return [_around(spot, 0.5 * scale) for spot in zip(xs, ys, strict=True)]


def _around(spot: Spot, radius: float) -> Box:
    x, y = spot
    return x - radius, y - radius, x + radius, y + radius


def _overlap(first: Box, second: Box) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]
