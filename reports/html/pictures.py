"""Small copies of the data set's pictures; no file outside the data set's folder is ever read."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

SMALL_FILE = 12 * 1024
LONGEST_SIDE = 320
LARGEST_AS_IT_IS = 1024
LEFT_OUT = "left out to keep the report small"
MAX_PIXELS = 64_000_000

# What Pillow may try: formats it decodes by itself, without starting other programs.
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM")
_SHOWN_BY_BROWSERS = {"PNG": ".png", "JPEG": ".jpg", "GIF": ".gif", "WEBP": ".webp"}


@dataclass(frozen=True, slots=True)
class ShownPicture:
    content: bytes | None
    suffix: str = ""
    reason: str = ""


class Thumbnails:
    """Makes thumbnails until `budget` bytes are filled; what comes later gets a placeholder that says so."""

    def __init__(self, root: Path, budget: int) -> None:
        self._root = root.resolve()
        self.left = budget

    def __call__(self, file: str) -> ShownPicture:
        try:
            path = (self._root / file).resolve()
            if not path.is_relative_to(self._root):
                return ShownPicture(None, reason="the file lies outside the data set's folder")
            if not path.is_file():
                return ShownPicture(None, reason="the picture is not there")
            content, suffix = _read(path)
        except (OSError, ValueError, SyntaxError) as error:
            return ShownPicture(None, reason=f"the picture cannot be read ({type(error).__name__})")
        if len(content) > self.left:
            return ShownPicture(None, reason=LEFT_OUT)
        self.left -= len(content)
        return ShownPicture(content, suffix)


def _read(path: Path) -> tuple[bytes, str]:
    """Bytes and suffix of a picture: a small file of a type that browsers show as it is, anything else made smaller."""
    from PIL import Image

    try:
        with warnings.catch_warnings(action="error", category=Image.DecompressionBombWarning):
            opened = Image.open(path, formats=_FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ValueError(str(error)) from error
    with opened:
        if opened.width * opened.height > MAX_PIXELS:
            raise ValueError(f"{opened.width} x {opened.height} pixels")
        suffix = _SHOWN_BY_BROWSERS.get(str(opened.format))
        if suffix and path.stat().st_size <= SMALL_FILE and max(opened.size) <= LARGEST_AS_IT_IS:
            return path.read_bytes(), suffix
        return _shrink(opened), ".jpg"


def _shrink(opened: ImageFile) -> bytes:
    """A JPEG of at most `LONGEST_SIDE` pixels, upright, on white where the picture is transparent."""
    from PIL import Image, ImageOps

    opened.draft("RGB", (2 * LONGEST_SIDE, 2 * LONGEST_SIDE))
    picture: Image.Image = ImageOps.exif_transpose(opened)
    if picture.mode.startswith("I"):
        # 16-bit grey: Pillow would clip everything above 255 to white.
        picture = picture.convert("I").point(lambda value: value / 256).convert("L")
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    target = BytesIO()
    picture.convert("RGB").save(target, "JPEG", quality=80)
    return target.getvalue()
