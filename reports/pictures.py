"""Small copies of the data set's pictures as data URIs; no file outside the data set's folder is ever read."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

SMALL_FILE = 12 * 1024
LONGEST_SIDE = 320
MOST_PIXELS = 64_000_000

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture ready for an `img` element, or None with the reason why there is none."""

    uri: str | None
    reason: str | None = None


class Thumbnails:
    """Makes thumbnails until `budget` bytes of pages are filled; what comes later gets a placeholder that says so.

    Args:
        root: the data set's folder; files that resolve outside it are refused.
        budget: the most bytes that all data URIs together may take.
    """

    def __init__(self, root: Path, budget: int) -> None:
        self._root = root.resolve()
        self.left = budget

    def __call__(self, file: str) -> Picture:
        """The thumbnail of one picture; `file` is relative to the root."""
        try:
            path = (self._root / file).resolve()
            if not path.is_relative_to(self._root):
                return Picture(None, "the file lies outside the data set's folder")
            if not path.is_file():
                return Picture(None, "the picture is no longer there")
            content, mime = _read(path)
        except (OSError, ValueError, SyntaxError) as error:
            return Picture(None, f"the picture cannot be read: {type(error).__name__}")
        uri = f"data:{mime};base64,{base64.b64encode(content).decode('ascii')}"
        if len(uri) > self.left:
            return Picture(None, "left out to keep this page small")
        self.left -= len(uri)
        return Picture(uri)


def _read(path: Path) -> tuple[bytes, str]:
    """The picture's bytes and type: a small file of a type that browsers show as it is, anything else made smaller.

    Raises:
        OSError, ValueError, SyntaxError: not a picture that Pillow can read, or too large to open safely.
    """
    if path.stat().st_size <= SMALL_FILE:
        content = path.read_bytes()
        for magic, mime in _MAGIC:
            if content.startswith(magic):
                return content, mime
    return _shrink(path), "image/jpeg"


def _shrink(path: Path) -> bytes:
    """A JPEG of at most `LONGEST_SIDE` pixels, upright, on white where the picture is transparent."""
    from PIL import Image, ImageOps

    with Image.open(path) as opened:
        if opened.width * opened.height > MOST_PIXELS:
            raise ValueError(f"{opened.width} x {opened.height} pixels")
        opened.draft("RGB", (2 * LONGEST_SIDE, 2 * LONGEST_SIDE))
        picture = ImageOps.exif_transpose(opened)
        if picture.mode.startswith("I;16") or picture.mode == "I":
            # 16-bit grey: Pillow would clip everything above 255 to white.
            picture = picture.convert("I").point(lambda value: value / 256).convert("L")
        picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        if picture.has_transparency_data:
            picture = picture.convert("RGBA")
            ground = Image.new("RGBA", picture.size, "white")
            picture = Image.alpha_composite(ground, picture)
        target = BytesIO()
        picture.convert("RGB").save(target, "JPEG", quality=80)
    return target.getvalue()
