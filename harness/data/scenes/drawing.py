"""Draw the embedded data set: shapes, backgrounds, noise and PNG files, with the same bytes on every machine.

Shapes are masks of integer inequalities, noise comes from SHAKE-256, and the PNG files are stored without compression,
so that no version of a drawing library, compressor or random generator can change a byte.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
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
_HEART = ((-92, -20), (-60, -42), (60, -42), (92, -20), (0, 96))  # but for its lobes
_PETALS = ((0, -54), (51, -17), (32, 44), (-32, 44), (-51, -17))


@dataclass(frozen=True, slots=True)
class Square:
    """The square of an object, and masks (H, W) of what is given in hundredths of half its size from the centre.

    u (1, W) and v (H, 1) are twice the distance from the centre, so that odd and even sizes have exact centres.
    """

    u: Mask
    v: Mask
    size: int

    def polygon(self, *points: tuple[int, int]) -> Mask:
        """Even-odd fill of a polygon."""
        x = 100 * self.u
        y = 100 * self.v
        inside = np.zeros((len(self.v), self.u.shape[1]), dtype=bool)
        for (x1, y1), (x2, y2) in zip(points, points[1:] + points[:1], strict=True):
            x1 = x1 * self.size
            y1 = y1 * self.size
            x2 = x2 * self.size
            y2 = y2 * self.size
            crosses = (y1 > y) != (y2 > y)
            rise = y2 - y1
            left = (x - x1) * abs(rise) < (x2 - x1) * (y - y1) * (1 if rise > 0 else -1)
            inside ^= crosses & left
        return inside

    def within(self, left: int, top: int, right: int, bottom: int) -> Mask:
        """A rectangle."""
        x = 100 * self.u
        y = 100 * self.v
        return (left * self.size <= x) & (x <= right * self.size) & (top * self.size <= y) & (y <= bottom * self.size)

    def disc(self, x: int, y: int, radius: int) -> Mask:
        """A disc."""
        across = 100 * self.u - x * self.size
        down = 100 * self.v - y * self.size
        inside: Mask = across**2 + down**2 <= (radius * self.size) ** 2
        return inside


def _fish(s: Square) -> Mask:
    body: Mask = (100 * s.u + 22 * s.size) ** 2 * 4 + (100 * s.v) ** 2 * 9 <= (152 * s.size) ** 2
    return body | s.polygon((38, 0), (98, -58), (98, 58))


SHAPES: dict[str, Callable[[Square], Mask]] = {
    "circle": lambda s: s.disc(0, 0, 99),
    "square": lambda s: s.within(-94, -94, 94, 94),
    "triangle": lambda s: s.polygon((0, -98), (98, 88), (-98, 88)),
    "star": lambda s: s.polygon(*_STAR),
    "cross": lambda s: s.within(-30, -96, 30, 96) | s.within(-96, -30, 96, 30),
    "ring": lambda s: s.disc(0, 0, 99) & ~s.disc(0, 0, 65),
    "heart": lambda s: s.disc(-48, -42, 50) | s.disc(48, -42, 50) | s.polygon(*_HEART),
    "house": lambda s: s.within(-72, -10, 72, 96) | s.polygon((0, -98), (98, -8), (-98, -8)),
    "tree": lambda s: s.disc(0, -45, 52) | s.disc(-38, -5, 46) | s.disc(38, -5, 46),
    "boat": lambda s: s.polygon((-98, 35), (98, 35), (60, 90), (-60, 90)) | s.polygon((8, -96), (80, 22), (8, 22)),
    "car": lambda s: s.within(-98, -8, 98, 52) | s.polygon((-50, -62), (42, -62), (68, -6), (-70, -6)),
    "fish": _fish,
    "table": lambda s: s.within(-98, -96, 98, -40),
    "moon": lambda s: s.disc(0, 0, 98) & ~s.disc(52, -14, 82),
    "arrow": lambda s: s.within(-96, -22, 10, 22) | s.polygon((8, -76), (98, 0), (8, 76)),
    "flower": lambda s: np.logical_or.reduce([s.disc(x, y, 44) for x, y in _PETALS]),
    "cup": lambda s: s.within(-80, -96, 50, 96) | s.disc(52, 5, 46) & ~s.disc(52, 5, 26),
    "umbrella": lambda s: s.disc(0, 4, 98) & (s.v <= 0),
    "hexagon": lambda s: s.polygon((-54, -94), (54, -94), (98, 0), (54, 94), (-54, 94), (-98, 0)),
}
DETAILS: dict[str, Callable[[Square], Mask]] = {
    "house": lambda s: s.within(-20, 35, 20, 96),
    "tree": lambda s: s.within(-14, 38, 14, 98),
    "boat": lambda s: s.within(-6, -96, 6, 35),
    "car": lambda s: s.disc(-52, 52, 26) | s.disc(52, 52, 26),
    "fish": lambda s: s.disc(-60, -12, 10),
    "table": lambda s: s.within(-84, -40, -60, 96) | s.within(60, -40, 84, 96),
    "flower": lambda s: s.disc(0, 0, 26),
    "cup": lambda s: s.within(-80, -30, 50, -8),
    "umbrella": lambda s: s.within(-6, 0, 6, 96) | s.within(0, 80, 40, 96) | s.within(28, 62, 40, 96),
}


def draw_background(size: int, texture: str) -> Mask:
    """The background as layer numbers (size, size): 0 is its colour, 1 its pattern."""
    y, x = np.mgrid[:size, :size]
    patterns: dict[str, Mask] = {
        "plain": np.zeros_like(x, dtype=bool),
        "striped": y // 6 % 2 == 1,
        "dotted": (x % 12 - 5) ** 2 + (y % 12 - 5) ** 2 <= 6,
        "checkered": (x // 8 + y // 8) % 2 == 1,
    }
    return patterns[texture].astype(np.uint8)


def draw_object(layers: Mask, shape: str, x: int, y: int, size: int, layer: int) -> tuple[int, int, int, int]:
    """Paint a shape at (x, y), its details in `layer` + 1; return its tight box x1, y1, x2, y2, ends excluded."""
    steps = 2 * np.arange(size, dtype=np.int64) - (size - 1)
    square = Square(steps[None, :], steps[:, None], size)
    region = layers[y : y + size, x : x + size]
    painted = SHAPES[shape](square)
    region[painted] = layer
    if shape in DETAILS:
        details = DETAILS[shape](square)
        region[details] = layer + 1
        painted = painted | details
    rows = np.nonzero(painted.any(axis=1))[0]
    columns = np.nonzero(painted.any(axis=0))[0]
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
        struct.pack("<BHH", index == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
        for index, block in enumerate(blocks)
    )
    return b"\x78\x01" + body + struct.pack(">I", zlib.adler32(content))
