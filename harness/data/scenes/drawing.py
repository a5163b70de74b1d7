"""Draw the embedded data set: shapes, backgrounds, noise and PNG files, with the same bytes on every machine.

Shapes are masks of integer inequalities, noise comes from SHAKE-256, and the PNG files are stored without compression,
so that no version of a drawing library, compressor or random generator can change a byte.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

Mask = np.ndarray[Any, Any]  # (H, W)
Colour = tuple[int, int, int]

OBJECT_COLOURS: dict[str, Colour] = {
    "red": (205, 40, 40),
    "green": (40, 155, 60),
    "blue": (45, 80, 205),
    "yellow": (238, 212, 45),
    "orange": (240, 130, 25),
    "purple": (130, 55, 165),
    "pink": (245, 140, 190),
    "brown": (118, 74, 38),
}
BACKGROUND_COLOURS: dict[str, Colour] = {
    "white": (232, 232, 232),
    "grey": (140, 140, 140),
    "black": (34, 34, 34),
    "beige": (208, 190, 150),
}
TEXTURES = ("plain", "striped", "dotted", "checkered")
TEXTURE_CONTRAST = 26
SHADES = 4  # noise levels of each colour; two bits of noise a pixel choose one

_STAR = ((0, -100), (25, -33), (97, -31), (38, 13), (59, 81), (0, 40), (-59, 81), (-38, 13), (-97, -31), (-25, -33))


def _polygon(u: Mask, v: Mask, size: int, points: tuple[tuple[int, int], ...]) -> Mask:
    """Even-odd fill of a polygon whose corners are hundredths of the half size."""
    x, y, inside = 100 * u, 100 * v, np.zeros(np.broadcast(u, v).shape, dtype=bool)
    for (x1, y1), (x2, y2) in zip(points, points[1:] + points[:1], strict=True):
        x1, y1, x2, y2 = x1 * size, y1 * size, x2 * size, y2 * size
        crosses = (y1 > y) != (y2 > y)
        rise = y2 - y1
        left = (x - x1) * abs(rise) < (x2 - x1) * (y - y1) * (1 if rise > 0 else -1)
        inside ^= crosses & left
    return inside


def _within(u: Mask, v: Mask, size: int, left: int, top: int, right: int, bottom: int) -> Mask:
    """A rectangle, in hundredths of the half size."""
    x, y = 100 * u, 100 * v
    return (left * size <= x) & (x <= right * size) & (top * size <= y) & (y <= bottom * size)


def _disc(u: Mask, v: Mask, size: int, x: int, y: int, radius: int) -> Mask:
    """A disc, in hundredths of the half size."""
    inside: Mask = (100 * u - x * size) ** 2 + (100 * v - y * size) ** 2 <= (radius * size) ** 2
    return inside


def _heart(u: Mask, v: Mask, s: int) -> Mask:
    lobes = _disc(u, v, s, -48, -42, 50) | _disc(u, v, s, 48, -42, 50)
    return lobes | _polygon(u, v, s, ((-92, -20), (-60, -42), (60, -42), (92, -20), (0, 96)))


def _house(u: Mask, v: Mask, s: int) -> tuple[Mask, Mask]:
    body = _within(u, v, s, -72, -10, 72, 96) | _polygon(u, v, s, ((0, -98), (98, -8), (-98, -8)))
    return body, _within(u, v, s, -20, 35, 20, 96)


def _tree(u: Mask, v: Mask, s: int) -> tuple[Mask, Mask]:
    crown = _disc(u, v, s, 0, -45, 52) | _disc(u, v, s, -38, -5, 46) | _disc(u, v, s, 38, -5, 46)
    return crown, _within(u, v, s, -14, 38, 14, 98)


def _boat(u: Mask, v: Mask, s: int) -> tuple[Mask, Mask]:
    hull = _polygon(u, v, s, ((-98, 35), (98, 35), (60, 90), (-60, 90)))
    return hull | _polygon(u, v, s, ((8, -96), (80, 22), (8, 22))), _within(u, v, s, -6, -96, 6, 35)


def _car(u: Mask, v: Mask, s: int) -> tuple[Mask, Mask]:
    body = _within(u, v, s, -98, -8, 98, 52) | _polygon(u, v, s, ((-50, -62), (42, -62), (68, -6), (-70, -6)))
    return body, _disc(u, v, s, -52, 52, 26) | _disc(u, v, s, 52, 52, 26)


def _table(u: Mask, v: Mask, s: int) -> tuple[Mask, Mask]:
    legs = _within(u, v, s, -84, -40, -60, 96) | _within(u, v, s, 60, -40, 84, 96)
    return _within(u, v, s, -98, -96, 98, -40), legs


def _fish(u: Mask, v: Mask, s: int) -> tuple[Mask, Mask]:
    body = (100 * u + 22 * s) ** 2 * 4 + (100 * v) ** 2 * 9 <= (152 * s) ** 2
    return body | _polygon(u, v, s, ((38, 0), (98, -58), (98, 58))), _disc(u, v, s, -60, -12, 10)


def _flower(u: Mask, v: Mask, s: int) -> tuple[Mask, Mask]:
    petals = [_disc(u, v, s, x, y, 44) for x, y in ((0, -54), (51, -17), (32, 44), (-32, 44), (-51, -17))]
    return np.logical_or.reduce(petals), _disc(u, v, s, 0, 0, 26)


def _cup(u: Mask, v: Mask, s: int) -> tuple[Mask, Mask]:
    handle = _disc(u, v, s, 52, 5, 46) & ~_disc(u, v, s, 52, 5, 26)
    return _within(u, v, s, -80, -96, 50, 96) | handle, _within(u, v, s, -80, -30, 50, -8)


def _umbrella(u: Mask, v: Mask, s: int) -> tuple[Mask, Mask]:
    roof = _disc(u, v, s, 0, 4, 98) & (v <= 0)
    hook = _within(u, v, s, 0, 80, 40, 96) | _within(u, v, s, 28, 62, 40, 96)
    return roof, _within(u, v, s, -6, 0, 6, 96) | hook


def _only(shape: Callable[[Mask, Mask, int], Mask]) -> Callable[[Mask, Mask, int], tuple[Mask, Mask]]:
    """A shape without dark details."""
    return lambda u, v, s: (shape(u, v, s), np.zeros(np.broadcast(u, v).shape, dtype=bool))


# u and v are twice the distance from the centre, so that odd and even sizes have exact centres; |u|, |v| < size.
SHAPES: dict[str, Callable[[Mask, Mask, int], tuple[Mask, Mask]]] = {
    "circle": _only(lambda u, v, s: _disc(u, v, s, 0, 0, 99)),
    "square": _only(lambda u, v, s: _within(u, v, s, -94, -94, 94, 94)),
    "triangle": _only(lambda u, v, s: _polygon(u, v, s, ((0, -98), (98, 88), (-98, 88)))),
    "star": _only(lambda u, v, s: _polygon(u, v, s, _STAR)),
    "cross": _only(lambda u, v, s: _within(u, v, s, -30, -96, 30, 96) | _within(u, v, s, -96, -30, 96, 30)),
    "ring": _only(lambda u, v, s: _disc(u, v, s, 0, 0, 99) & ~_disc(u, v, s, 0, 0, 65)),
    "heart": _only(_heart),
    "house": _house,
    "tree": _tree,
    "boat": _boat,
    "car": _car,
    "fish": _fish,
    "table": _table,
    "moon": _only(lambda u, v, s: _disc(u, v, s, 0, 0, 98) & ~_disc(u, v, s, 52, -14, 82)),
    "arrow": _only(
        lambda u, v, s: _within(u, v, s, -96, -22, 10, 22) | _polygon(u, v, s, ((8, -76), (98, 0), (8, 76)))
    ),
    "flower": _flower,
    "cup": _cup,
    "umbrella": _umbrella,
    "hexagon": _only(
        lambda u, v, s: _polygon(u, v, s, ((-54, -94), (54, -94), (98, 0), (54, 94), (-54, 94), (-98, 0)))
    ),
}


def draw_background(size: int, texture: str) -> Mask:
    """Layer numbers (size, size): 0 is the background's colour, 1 its pattern."""
    y, x = np.mgrid[:size, :size]
    patterns: dict[str, Mask] = {
        "plain": np.zeros_like(x, dtype=bool),
        "striped": y // 6 % 2 == 1,
        "dotted": (x % 12 - 5) ** 2 + (y % 12 - 5) ** 2 <= 6,
        "checkered": (x // 8 + y // 8) % 2 == 1,
    }
    return patterns[texture].astype(np.uint8)


def draw_object(layers: Mask, shape: str, x: int, y: int, size: int, layer: int) -> tuple[int, int, int, int]:
    """Paint a shape with its top left corner at (x, y): `layer` for its body, `layer` + 1 for its details.

    Returns:
        The tight box of what was painted: x1, y1, x2, y2 in pixels, the last two exclusive.
    """
    steps = 2 * np.arange(size, dtype=np.int64) - (size - 1)
    body, details = SHAPES[shape](steps[None, :], steps[:, None], size)
    region = layers[y : y + size, x : x + size]
    region[body] = layer
    region[details] = layer + 1
    rows, columns = np.nonzero((body | details).any(axis=1))[0], np.nonzero((body | details).any(axis=0))[0]
    return x + int(columns[0]), y + int(rows[0]), x + int(columns[-1]) + 1, y + int(rows[-1]) + 1


def encode_png(layers: Mask, colours: list[Colour], noise: int, seed: str) -> bytes:
    """Encode layer numbers (H, W) as a palette PNG; each pixel gets one of four shades within `noise` of its colour."""
    height, width = layers.shape
    random_bits = np.frombuffer(hashlib.shake_256(seed.encode()).digest(height * width), np.uint8) % SHADES
    indices = layers * np.uint8(SHADES) + random_bits.reshape(height, width)
    shifts = [(2 * shade - SHADES + 1) * noise // (SHADES - 1) for shade in range(SHADES)]
    palette = bytes(min(255, max(0, channel + shift)) for colour in colours for shift in shifts for channel in colour)
    rows = b"".join(b"\0" + row.tobytes() for row in indices)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette),
            _chunk(b"IDAT", _stored(rows)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _stored(content: bytes) -> bytes:
    """A zlib stream of uncompressed blocks (RFC 1951, 3.2.4)."""
    blocks = [content[start : start + 65535] for start in range(0, len(content), 65535)]
    body = b"".join(
        struct.pack("<BHH", number == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
        for number, block in enumerate(blocks)
    )
    return b"\x78\x01" + body + struct.pack(">I", zlib.adler32(content))
