"""Thumbnails: small, upright, within their budget, and never of a file outside the data set."""

from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from reports.html import gallery
from reports.html.gallery import LONGEST_SIDE, thumbnail
from reports.tables.contents import Contents
from results.store.store import Store


def shown(folder: Path, name: str) -> tuple[str, Image.Image]:
    content, suffix = thumbnail(folder, name)
    assert content is not None
    return suffix, Image.open(BytesIO(content))


def noise(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    return Image.effect_noise(size, 90).convert(mode)


def test_a_small_file_is_embedded_as_it_is(tmp_path: Path) -> None:
    Image.new("RGB", (20, 10), "red").save(tmp_path / "a.jpg", "PNG")
    kind, picture = shown(tmp_path, "a.jpg")
    assert (kind, picture.size) == (".png", (20, 10)), "the type is told from the content, not from the name"


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "1"])
def test_a_large_picture_is_made_small(tmp_path: Path, mode: str) -> None:
    noise((1200, 800), mode).save(tmp_path / "a.tif")
    kind, picture = shown(tmp_path, "a.tif")
    assert (kind, max(picture.size), picture.mode) == (".jpg", LONGEST_SIDE, "RGB")
    Image.new("1", (2_000, 2_000)).save(tmp_path / "small_file.png")
    assert shown(tmp_path, "small_file.png")[1].size == (LONGEST_SIDE, LONGEST_SIDE)


def test_grey_transparent_and_rotated_pictures_look_right(tmp_path: Path) -> None:
    Image.new("I;16", (400, 400), 0x8000).save(tmp_path / "grey.tif")
    assert shown(tmp_path, "grey.tif")[1].getpixel((5, 5)) == (128, 128, 128)
    clear = noise((400, 400), "RGBA")
    clear.putalpha(0)
    clear.save(tmp_path / "clear.png")
    assert shown(tmp_path, "clear.png")[1].getpixel((5, 5)) == (255, 255, 255)
    exif = Image.Exif()
    exif[0x0112] = 6
    noise((900, 600)).save(tmp_path / "rotated.jpg", exif=exif)
    picture = shown(tmp_path, "rotated.jpg")[1]
    assert picture.height > picture.width


@pytest.mark.parametrize("file", ["../secret.png", "/etc/hostname", "link.png", "sub/../../secret.png"])
def test_a_file_outside_the_root_is_refused(tmp_path: Path, file: str) -> None:
    root = tmp_path / "data"
    (root / "sub").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(tmp_path / "secret.png")
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    content, why = thumbnail(root, file)
    assert content is None
    assert "outside" in why


@pytest.mark.parametrize("content", [b"", b"<svg onload='alert(1)'/>", b"not a picture at all"])
def test_what_is_no_picture_gets_a_placeholder(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jpg").write_bytes(content)
    for file in ("a.jpg", "gone.png", "", "nul\0.png", "x" * 5000):
        content, why = thumbnail(tmp_path, file)
        assert content is None
        assert why


@pytest.mark.parametrize("side", [9_000, 20_000])
def test_a_picture_of_too_many_pixels_is_not_decoded(tmp_path: Path, side: int) -> None:
    Image.new("1", (side, side)).save(tmp_path / "bomb.png")
    assert thumbnail(tmp_path, "bomb.png")[0] is None


def test_the_budget_is_kept(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "PICTURE_BUDGET", 5_000)
    (tmp_path / "gallery").mkdir()
    pages = gallery.gallery_pages(store, Contents.read(store), {}, {}, tmp_path)
    assert 0 < sum(path.stat().st_size for path in (tmp_path / "gallery").iterdir()) <= 5_000
    reasons = [reason for page in pages.values() for _, reason in page.pictures.values()]
    assert gallery.LEFT_OUT in reasons
