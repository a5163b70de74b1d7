"""Load images as 8-bit RGB, and preprocess them for a backbone.

Transparency is composited over white; 16-bit grey is scaled to 8 bits (65535 is white); 32-bit grey, which has no
nominal white, is stretched from its minimum to its maximum; CMYK and YCbCr are converted without their colour profile;
EXIF orientation is applied; the first frame of an animation is used. An image that cannot be decoded to its last row is
refused (`BadImage`), never repaired.
"""

import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from harness.utils.files import reason

MAX_PIXELS = 89_478_485
"""Maximum number of pixels (0.25 GiB as RGB, Pillow's own limit); more is refused as a decompression bomb."""

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
"""Formats that are tried, independent of the file's name; none of them starts a program (EPS would)."""

Resize = Literal["squash", "shortest-centre-crop"]
NonRgb = Literal["convert", "black"]
Interpolation = Literal["bilinear", "bicubic"]

STORED_MODE = "captionbench stored mode"
"""Key in an image's `info` under which `load_image` stores Pillow's mode of the file ("RGB", "L", ...)."""

_RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
_SIXTEEN_BIT_FORMATS = {"PNG", "PPM", "JPEG2000"}  # where Pillow's 32-bit mode "I" holds 16-bit samples
# of EXIF
_ORIENTATION = 0x0112
_ON_THEIR_SIDE = frozenset({5, 6, 7, 8})
_TURNED = frozenset(range(2, 9))
_quiet_lock = threading.Lock()
Image.init()  # Pillow loads its formats on first use, which is not safe in the threads that decode images
_KNOWN_FORMATS = tuple(name for name in FORMATS if name in Image.OPEN)  # those that this build of Pillow can read


class BadImage(Exception):  # noqa: N818 - it names the image, not the failure
    """An image that cannot be used, with its path and a short reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def load_image(path: Path) -> Image.Image:
    """Decode an image as upright 8-bit RGB; BadImage if that fails, or above `MAX_PIXELS`."""
    with _reading(path, "decoded") as image:
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise BadImage(path, _bomb(f"{width} x {height}"))
        if not width or not height:
            raise BadImage(path, f"has no pixels ({width} x {height})")
        image.load()
        stored_mode = image.mode
        upright = to_upright_rgb(image)
        upright.info[STORED_MODE] = stored_mode
        return upright


def to_upright_rgb(image: Image.Image) -> Image.Image:
    """Convert an opened image to upright 8-bit RGB, as `load_image`."""
    return _to_rgb(_upright(image))


def image_size(path: Path) -> tuple[int, int]:
    """Width and height of the upright image at `path`, from its header; BadImage as `load_image`."""
    with _reading(path, "read") as image:
        turned = False
        with _quiet_lock, warnings.catch_warnings(), suppress(Exception):  # as `_upright`
            warnings.simplefilter("ignore")  # Pillow turns the size of a TIFF itself
            turned = image.format != "TIFF" and image.getexif().get(_ORIENTATION) in _ON_THEIR_SIDE
        return (image.height, image.width) if turned else (image.width, image.height)


@dataclass(frozen=True, slots=True)
class ImagePreprocessing:
    """Preprocessing of an image for a backbone.

    `size` is (height, width) in pixels, or one number for a square; `mean` and `std` are for values in [0, 1].
    "squash" ignores the aspect ratio; "shortest-centre-crop" fills the size and crops evenly on both sides (in one
    step, without the rounding of a resize followed by a crop). Either interpolation has Pillow's anti-aliasing when
    shrinking. `non_rgb` "black" makes images black that are not stored as RGB (grey ones, for example), as
    ExpansionNet's code does by mistake; for the paper track.
    """

    size: int | tuple[int, int]
    resize: Resize = "squash"
    interpolation: Interpolation = "bicubic"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    non_rgb: NonRgb = "convert"

    def __post_init__(self) -> None:
        if min(self.height_width) < 1 or min(self.std) <= 0:
            raise ValueError(f"size must be at least one pixel a side and std above 0, not {self.size} and {self.std}")

    @property
    def height_width(self) -> tuple[int, int]:
        """The size as (height, width)."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    def key(self) -> str:
        """A stable description, which differs for settings that may give different pixels."""
        height, width = self.height_width
        mean, std = (",".join(f"{value:.12g}" for value in values) for values in (self.mean, self.std))
        unusual = "" if self.non_rgb == "convert" else f" non-rgb={self.non_rgb}"
        return f"{height}x{width} {self.resize} {self.interpolation} mean={mean} std={std}{unusual}"

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Turn an RGB image of any size, from `load_image`, into float32 (3, height, width)."""
        import torch  # not needed to verify images

        mean, std = (torch.tensor(values)[:, None, None] for values in (self.mean, self.std))
        pixels = torch.from_numpy(self.eight_bits(image)).float()
        return pixels.div_(255).sub_(mean).div_(std).numpy()

    def eight_bits(self, image: Image.Image) -> np.ndarray:
        """The pixels before normalisation, in uint8; `levels` has the normalised values.

        Without cropping, torch resizes the image, three times faster than Pillow; about 0.1 % of the values differ from
        Pillow's by 1.
        """
        import torch
        from torch.nn.functional import interpolate

        if self.resize != "squash":
            return np.asarray(self._cropped(image)).transpose(2, 0, 1).copy()
        pixels = torch.from_numpy(np.array(self._coloured(image))).permute(2, 0, 1)
        resized = interpolate(pixels[None], self.height_width, mode=self.interpolation, antialias=True)
        return resized[0].contiguous().numpy()

    @property
    def levels(self) -> np.ndarray:
        """The normalised value of each 8-bit value, float32 (3, 256)."""
        mean, std = (np.array(values, np.float32)[:, None] for values in (self.mean, self.std))
        levels: np.ndarray = (np.arange(256, dtype=np.float32) / np.float32(255) - mean) / std
        return levels

    def _cropped(self, image: Image.Image) -> Image.Image:
        height, width = self.height_width
        image = self._coloured(image)
        resampling = _RESAMPLING[self.interpolation]
        return image.resize((width, height), resampling, box=self.seen(image.width, image.height))

    def _coloured(self, image: Image.Image) -> Image.Image:
        """The image, or a black one instead, see `non_rgb`."""
        black = self.non_rgb == "black" and image.info.get(STORED_MODE, "RGB") != "RGB"
        return Image.new("RGB", image.size) if black else image

    def seen(self, width: int, height: int) -> tuple[float, float, float, float]:
        """The part of an image of this size that is used: left, top, right, bottom."""
        if self.resize == "squash":
            return 0.0, 0.0, float(width), float(height)
        out_height, out_width = self.height_width
        scale = min(width / out_width, height / out_height)
        return centred(min(out_width * scale, width), min(out_height * scale, height), width, height)


def without_stored_control(stored: Any) -> Any:
    """Stored settings without the field `control` of release 1; ValueError where they are those of a control run."""
    if not isinstance(stored, dict) or "control" not in stored:
        return stored
    if stored["control"] != "none":
        raise ValueError("it is a control run of captionbench 1, whose images this release cannot prepare")
    return {name: value for name, value in stored.items() if name != "control"}


def centred(kept_width: float, kept_height: float, width: int, height: int) -> tuple[float, float, float, float]:
    """The middle of an image of this width and height: left, top, right, bottom."""
    left = (width - kept_width) / 2
    top = (height - kept_height) / 2
    return left, top, left + kept_width, top + kept_height


def _refuse_unreadable(path: Path) -> None:
    """Check the file before it is decoded; opening a pipe would block for ever."""
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise BadImage(path, "is missing") from error
    except (OSError, ValueError) as error:
        raise BadImage(path, f"cannot be read: {reason(error)}") from error
    if stat.S_ISDIR(status.st_mode):
        raise BadImage(path, "is a folder, not an image (FOLDER/*.jpg names what lies in one)")
    if not stat.S_ISREG(status.st_mode):
        raise BadImage(path, "is not a file")
    if not status.st_size:
        raise BadImage(path, "is an empty file")


@contextmanager
def _reading(path: Path, what: str) -> Iterator[Image.Image]:
    """The opened image; BadImage where opening it, or the block, fails.

    Pillow's warnings are hidden: their causes are checked here, or harmless. The header is read under a lock, since
    Python's warning filters are shared by all threads.
    """
    _refuse_unreadable(path)
    try:
        with _quiet_lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(path, formats=_KNOWN_FORMATS)
        with image:
            yield image
    except BadImage:
        raise
    except UnidentifiedImageError as error:
        raise BadImage(path, "is not an image in a supported format") from error
    except Image.DecompressionBombError as error:
        raise BadImage(path, _bomb("its header claims more than twice as many")) from error
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged data
        raise BadImage(path, f"cannot be {what}: {reason(error)}") from error


def _bomb(size: str) -> str:
    return f"has more than {MAX_PIXELS} pixels ({size}): refused as a decompression bomb"


def _upright(image: Image.Image) -> Image.Image:
    """Apply the EXIF orientation; an image with an unreadable EXIF block is used as stored, as viewers do."""
    with _quiet_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Pillow copies what is upright already, which takes half as long as decoding.
            return ImageOps.exif_transpose(image) if image.getexif().get(_ORIENTATION) in _TURNED else image
        except Exception:  # Pillow's EXIF reader raises nearly anything on damaged tags; the pixels are sound
            return image


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_grey_to_8_bits(image)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        colour = image.convert("LA" if image.mode == "La" else "RGBA").convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), colour).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _grey_to_8_bits(image: Image.Image) -> np.ndarray:
    """Scale grey of more than 8 bits, (H, W), to uint8."""
    values = np.nan_to_num(np.asarray(image).astype(np.float64))
    if image.mode.startswith("I;16") or image.format in _SIXTEEN_BIT_FORMATS:
        values = values / 257
    elif values.max() > values.min():
        values = (values - values.min()) * (255 / (values.max() - values.min()))
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
