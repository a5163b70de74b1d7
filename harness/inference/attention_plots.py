"""Plot attention maps: one panel per word, the image under a translucent heat map."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from harness.data.images import load_image
from harness.utils.atomic import replacing
from results.records import AttentionRecord

PANEL = 224
"""Longer side of a panel, in pixels."""
COLUMNS = 6
_LABEL, _GAP = 26, 8
_HEAT, _DARKEST, _STRONGEST = (255, 60, 0), 0.45, 0.6


def draw_attention(picture: Path, record: AttentionRecord, out: Path) -> None:
    """Write a PNG: the plain image, then one panel for each word of its caption, with the word below.

    Each panel is scaled to its own maximum weight. Cells of a grid are interpolated; regions keep their edges, overlaps
    show the greater weight, and a frame marks the region of the greatest weight.

    Raises:
        BadImage: the image cannot be read.
        OSError: the file cannot be written.
    """
    plain = ImageOps.contain(load_image(picture), (PANEL, PANEL), Image.Resampling.LANCZOS)
    panels = [("", plain)] + [
        (word, _heated(plain, weights, record)) for word, weights in zip(record.words, record.weights, strict=True)
    ]
    columns = min(COLUMNS, len(panels))
    width, height = plain.width + _GAP, plain.height + _LABEL + _GAP
    sheet = Image.new("RGB", (columns * width + _GAP, -(-len(panels) // columns) * height + _GAP), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(16)
    for number, (word, panel) in enumerate(panels):
        left, top = _GAP + number % columns * width, _GAP + number // columns * height
        sheet.paste(panel, (left, top))
        pen.text((left, top + plain.height + 4), _fitting(word, font, plain.width), fill="black", font=font)
    with replacing(out) as temporary:
        sheet.save(temporary, "PNG")


def _heated(plain: Image.Image, weights: tuple[float, ...], record: AttentionRecord) -> Image.Image:
    heat = _grid_heat(weights, record.grid, plain.size) if record.grid else _box_heat(weights, record, plain.size)
    heat = (heat / max(float(heat.max()), 1e-12))[..., None]
    pixels = np.asarray(plain, dtype=np.float32) * (_DARKEST + (1 - _DARKEST) * heat)
    pixels += (np.asarray(_HEAT, dtype=np.float32) - pixels) * (_STRONGEST * heat**2)
    heated = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    if record.boxes is not None:
        left, top, right, bottom = _pixels(record.boxes[int(np.argmax(weights))], plain.size)
        frame = (left, top, max(right - 1, left), max(bottom - 1, top))
        ImageDraw.Draw(heated).rectangle(frame, outline="white", width=2)
    return heated


def _grid_heat(weights: tuple[float, ...], grid: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    cells = np.asarray(weights, dtype=np.float32).reshape(grid)
    smooth = Image.fromarray(cells).resize(size, Image.Resampling.BILINEAR)
    return np.asarray(smooth)


def _box_heat(weights: tuple[float, ...], record: AttentionRecord, size: tuple[int, int]) -> np.ndarray:
    heat = np.zeros((size[1], size[0]), dtype=np.float32)
    for weight, box in zip(weights, record.boxes or (), strict=True):
        left, top, right, bottom = _pixels(box, size)
        covered = heat[top:bottom, left:right]
        np.maximum(covered, weight, out=covered)
    return heat


def _pixels(box: tuple[float, float, float, float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """A box in whole pixels of an image of this size, at least one a side."""
    (left, top, right, bottom), (width, height) = box, size
    x, y = (min(max(round(edge * side), 0), side - 1) for edge, side in ((left, width), (top, height)))
    return x, y, max(x + 1, min(round(right * width), width)), max(y + 1, min(round(bottom * height), height))


def _fitting(word: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """The word, cut with an ellipsis if it is wider than its panel."""
    shown = word[:80]
    while len(shown) > 1 and font.getlength(shown) > width:
        shown = shown[:-2] + "…"
    return shown
