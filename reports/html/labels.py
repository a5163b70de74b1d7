"""Where the names of points and lines go in a plot, so that none covers another, and the leaders that join them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

LABEL_HEIGHT = 15.0
LINE_HEIGHT = 13.0
LETTER_WIDTH = 6.6
_LARGE_LETTER = 8.2
"""A letter of the larger type that plots have on a phone."""
LONGEST = 28
"""Letters of a name at the end of a line; the rest of a longer one is left to what the mark says."""
_AWAY = (0.0, 10.0, 22.0, 36.0, 52.0, 72.0, 96.0, 124.0)
# Right of and below its point, or left of and above it, a label is clear of the front: these are tried first.
_DIRECTIONS = ((1, 1), (-1, -1), (1, 0), (-1, 1), (1, -1), (-1, 0))
_NEAR = 12.0

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Frame:
    """The box of a plot in pixels: its size, and where its axes begin and end."""

    width: float = 480.0
    height: float = 320.0
    left: float = 52.0
    right: float = 466.0
    top: float = 16.0
    bottom: float = 274.0

    @property
    def middle(self) -> float:
        """The middle of the x axis."""
        return (self.left + self.right) / 2


@dataclass(frozen=True, slots=True)
class Label:
    """A name at the pixel (x, y) of its baseline's start or end (`anchor`); `leader` is the path to it, or ""."""

    x: float
    y: float
    anchor: str
    leader: str = ""


def natural(name: str) -> list[tuple[bool, int, str]]:
    """A key by which m2 comes before m10."""
    parts = re.findall(r"\d+|\D+", name.lower())
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def point_label(name: str, spot: tuple[float, float], placed: list[Box], frame: Frame) -> Label:
    """The nearest place beside a point that covers nothing placed before, or else what covers least; it is then taken.

    Further off, a leader joins it to its point.
    """
    width = _LARGE_LETTER * len(name)
    best: tuple[int, Box, float] | None = None
    for away in _AWAY:
        for x_side, y_side in _DIRECTIONS:
            baseline = spot[1] + 4 + y_side * (11 + away)
            left = spot[0] + (7 + away / 2 if x_side > 0 else -7 - away / 2 - width)
            left = min(max(left, frame.left + 2), frame.width - 2 - width)
            box = (left, baseline - LABEL_HEIGHT + 2, left + width, baseline + 2)
            if box[1] < frame.top - 14 or box[3] > frame.bottom:
                continue
            hit = sum(_overlap(box, other) for other in placed)
            if best is None or hit < best[0]:
                best = hit, box, away
            if hit == 0:
                break
        if best is not None and best[0] == 0:
            break
    if best is None:  # a plot is higher than a label: some side of every point has room
        raise AssertionError(f"no room in a plot of {frame.height} pixels")
    _, box, away = best
    placed.append(box)
    anchor = "start" if box[0] >= spot[0] else "end"
    at = box[0] if anchor == "start" else box[2]
    return Label(round(at, 1), round(box[3] - 2, 1), anchor, _leader(spot, box) if away else "")


def end_labels(ends: Sequence[tuple[float, float]], frame: Frame) -> list[Label]:
    """Names right of the axes beside the ends of lines, moved up and down until each has a line of its own."""
    order = sorted(range(len(ends)), key=lambda number: ends[number][1])
    heights: list[float] = []
    for number in order:
        lowest = heights[-1] + LINE_HEIGHT if heights else frame.top
        heights.append(max(ends[number][1], lowest))
    limit = frame.bottom
    for place in range(len(heights) - 1, -1, -1):
        heights[place] = min(heights[place], limit)
        limit = heights[place] - LINE_HEIGHT
    found = [Label(0, 0, "start")] * len(ends)
    for number, height in zip(order, heights, strict=True):
        x, y = ends[number]
        start, end = x + 5, frame.right + 12
        far = end - start > _NEAR or abs(height - y) > 1
        leader = f"M{start:g} {y:g}L{end:g} {round(height, 1):g}" if far else ""
        found[number] = Label(end + 3, round(height + 4, 1), "start", leader)
    return found


def shortened(name: str) -> str:
    """A name as it stands at the end of a line."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _leader(spot: tuple[float, float], box: Box) -> str:
    """From the edge of a point's mark to the nearest place on a label's box."""
    x = min(max(spot[0], box[0]), box[2])
    y = min(max(spot[1], box[1] + 2), box[3])
    length = math.hypot(x - spot[0], y - spot[1])
    if length <= _NEAR:
        return ""
    start = [at + 6 * (to - at) / length for at, to in zip(spot, (x, y), strict=True)]
    return f"M{start[0]:.1f} {start[1]:.1f}L{x:.1f} {y:.1f}"


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
