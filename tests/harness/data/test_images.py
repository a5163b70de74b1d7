"""Pictures of every kind become upright RGB with the right values, or are refused by name."""

import contextlib
import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness.data.images import MAX_PIXELS, BadImage, image_size, load_image


def photo(width: int = 40, height: int = 30) -> Image.Image:
    """A smooth colour picture whose corners differ."""
    y, x = np.mgrid[:height, :width]
    return Image.fromarray(
        np.stack([x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), np.full_like(x, 90)], -1).astype(
            np.uint8
        )
    )


def corner(image: Image.Image, *, right: bool = False, bottom: bool = False) -> tuple[int, ...]:
    pixel = image.getpixel((image.width - 1 if right else 0, image.height - 1 if bottom else 0))
    assert isinstance(pixel, tuple)
    return pixel


def bomb(path: Path, width: int, height: int) -> None:
    """A PNG of a few bytes whose header claims width x height pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 64)), (b"IEND", b"")]
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    )


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_sixteen_bit_images_are_scaled_not_clipped(tmp_path: Path, suffix: str) -> None:
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / f"deep.{suffix}")
    loaded = np.asarray(load_image(tmp_path / f"deep.{suffix}"))
    np.testing.assert_array_equal(loaded[..., 0], np.rint(values / 257).astype(np.uint8))
    np.testing.assert_array_equal(loaded[..., 0], loaded[..., 2])


@pytest.mark.parametrize("values", [[[-5.0, 0.0], [5.0, 15.0]], [[0.0, 0.25], [0.5, 1.0]]])
def test_floating_point_grey_is_stretched(tmp_path: Path, values: list[list[float]]) -> None:
    pixels = np.array(values, np.float32)
    Image.fromarray(pixels).save(tmp_path / "float.tif")
    expected = np.rint((pixels - pixels.min()) / (pixels.max() - pixels.min()) * 255)
    np.testing.assert_array_equal(np.asarray(load_image(tmp_path / "float.tif"))[..., 0], expected)


def palette(*colours: int) -> Image.Image:
    """Four by four pixels of the palette's second colour, and one of its third in the first corner."""
    image = Image.new("P", (4, 4), 1)
    image.putpixel((0, 0), 2)
    image.putpalette(colours)
    return image


CLEAR = (255, 255, 255)


@pytest.mark.parametrize(
    ("image", "options", "first", "last"),
    [
        (Image.fromarray(np.full((3, 3), 130, np.float32)), {}, (130, 130, 130), (130, 130, 130)),
        (Image.new("RGB", (16, 16), (200, 40, 60)).convert("CMYK"), {}, (200, 40, 60), (200, 40, 60)),
        (Image.new("LAB", (4, 4), (128, 128, 128)), {}, (119, 119, 119), (119, 119, 119)),
        (palette(0, 0, 0, 250, 120, 30, 10, 20, 30), {}, (10, 20, 30), (250, 120, 30)),
        (palette(0, 0, 0, 0, 0, 0, 10, 200, 30), {"transparency": 1}, (10, 200, 30), CLEAR),
        (palette(0, 0, 0, 0, 0, 0, 10, 200, 30), {"transparency": b"\xff\x00\xff"}, (10, 200, 30), CLEAR),
        (Image.new("RGBA", (4, 4), (0, 0, 0, 0)), {}, CLEAR, CLEAR),
        (Image.new("LA", (4, 4), (0, 0)), {}, CLEAR, CLEAR),
        (Image.new("RGBA", (4, 4), (200, 0, 100, 128)), {}, (227, 127, 177), (227, 127, 177)),
        (Image.new("RGB", (4, 4), 0), {"transparency": (0, 0, 0)}, CLEAR, CLEAR),
        (Image.new("L", (4, 4), 0), {"transparency": 0}, CLEAR, CLEAR),
    ],
)
def test_every_mode_comes_in_its_colours_over_white(
    tmp_path: Path, image: Image.Image, options: dict[str, Any], first: tuple[int, ...], last: tuple[int, ...]
) -> None:
    path = tmp_path / ("picture.tif" if image.mode in ("F", "CMYK", "LAB") else "picture.png")
    image.save(path, **options)
    loaded = load_image(path)
    assert corner(loaded) == pytest.approx(first, abs=2)
    assert corner(loaded, right=True, bottom=True) == pytest.approx(last, abs=2)


@pytest.mark.parametrize("suffix", ["gif", "webp", "png"])
def test_the_first_frame_of_an_animation_counts(tmp_path: Path, suffix: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ((255, 0, 0), (0, 0, 255))]
    options = {"lossless": True} if suffix == "webp" else {}
    frames[0].save(tmp_path / f"moving.{suffix}", save_all=True, append_images=frames[1:], duration=50, **options)
    assert corner(load_image(tmp_path / f"moving.{suffix}")) == (255, 0, 0)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_exif_rotation_is_undone(tmp_path: Path, orientation: int, suffix: str) -> None:
    upright = photo()
    turned_by = {
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }
    stored = upright
    for step in turned_by.get(orientation, []):
        stored = stored.transpose(step)
    exif = Image.Exif()
    exif[274] = orientation
    stored.save(tmp_path / f"turned.{suffix}", exif=exif)
    np.testing.assert_array_equal(np.asarray(load_image(tmp_path / f"turned.{suffix}")), np.asarray(upright))
    assert image_size(tmp_path / f"turned.{suffix}") == upright.size


@pytest.mark.parametrize("exif", [b"Exif\0\0II*\0\xff\xff\xff\xff garbage", b"Exif\0\0garbage"])
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_unreadable_exif_leaves_the_pixels_alone(tmp_path: Path, suffix: str, exif: bytes) -> None:
    photo().save(tmp_path / f"odd.{suffix}", exif=exif)
    assert load_image(tmp_path / f"odd.{suffix}").size == image_size(tmp_path / f"odd.{suffix}") == (40, 30)


def test_what_cannot_be_used_is_refused_with_file_and_reason(tmp_path: Path) -> None:
    whole = io.BytesIO()
    photo(200, 200).save(whole, "JPEG")
    (tmp_path / "truncated.jpg").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    whole = io.BytesIO()
    photo(200, 200).save(whole, "PNG")
    (tmp_path / "truncated.png").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("<html>404 not found</html>")
    (tmp_path / "folder.jpg").mkdir()
    bomb(tmp_path / "bomb.png", 40_000, 40_000)
    bomb(tmp_path / "small-bomb.png", 10_000, 10_000)  # Pillow only warns of this one
    os.mkfifo(tmp_path / "pipe.jpg")
    expected = {
        "truncated.jpg": "truncated",
        "truncated.png": "truncated",
        "empty.jpg": "is an empty file",
        "text.jpg": "is not an image",
        "missing.jpg": "is missing",
        "folder.jpg": "is a folder",
        "pipe.jpg": "is not a file",
        "bomb.png": "decompression bomb",
        "small-bomb.png": "decompression bomb",
        "x" * 300 + ".jpg": "cannot be read",
    }
    assert MAX_PIXELS < 10_000**2
    for name, reason in expected.items():
        with pytest.raises(BadImage, match=reason) as caught:
            load_image(tmp_path / name)
        assert caught.value.path == tmp_path / name
        assert str(tmp_path / name) in str(caught.value)
        assert str(tmp_path) not in caught.value.reason


def test_postscript_is_never_handed_to_another_program(tmp_path: Path) -> None:
    (tmp_path / "script.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    with pytest.raises(BadImage, match="is not an image"):
        load_image(tmp_path / "script.jpg")


def test_random_damage_never_raises_anything_else(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for suffix in ("jpg", "png", "gif", "tif", "webp", "bmp"):
        whole = io.BytesIO()
        photo().save(whole, {"jpg": "JPEG", "tif": "TIFF"}.get(suffix, suffix.upper()))
        for _ in range(40):
            damaged = bytearray(whole.getvalue())
            for place in random.integers(0, len(damaged), 4):
                damaged[place] = random.integers(256)
            (tmp_path / "damaged").write_bytes(damaged)
            with contextlib.suppress(BadImage):
                assert load_image(tmp_path / "damaged").mode == "RGB"


def test_no_warning_reaches_the_user(tmp_path: Path) -> None:
    bomb(tmp_path / "bomb.png", 10_000, 10_000)
    Image.new("P", (4, 4), 1).save(tmp_path / "clear.png", transparency=b"\xff\x00")
    photo().save(tmp_path / "odd.jpg", exif=b"Exif\0\0II*\0\x08\0\0\0\x05\0garbage")
    code = (
        "import sys, pathlib\nfrom harness.data.images import BadImage, load_image\n"
        "for name in sys.argv[1:]:\n    try: load_image(pathlib.Path(name))\n    except BadImage: pass\n"
    )
    files = sorted(str(path) for path in tmp_path.iterdir())
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
