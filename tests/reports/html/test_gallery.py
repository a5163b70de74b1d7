"""The gallery: scripts that are small, lossless and nothing but data, words by their stems, examples of a model."""

import json
import random
import re
import struct
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reports.html import gallery
from reports.html.gallery import (
    IMAGES_A_FILE,
    LONGEST_SIDE,
    GalleryPage,
    disagreement,
    forms,
    gallery_data,
    pieces,
    stem,
    stems,
    thumbnail,
)
from reports.html.models import examples_by_run, flat, model_pages
from reports.tables.contents import Contents
from results.records import Quantity, Role
from results.runs.gallery import GalleryCaption, GalleryItem
from results.runs.spreads import Spread
from results.store.store import Store
from tests.harness.conftest import bench_ok
from tests.reports.examples import contents, group, row, run


def said(key: str, caption: str, cider: float | None, role: Role = "model") -> GalleryCaption:
    return GalleryCaption(key.partition("-")[0], role, key, caption, cider)


def item(number: int, *captions: GalleryCaption, references: tuple[str, ...] = ("a ball",)) -> GalleryItem:
    return GalleryItem(number, f"{number}.png", None, references, captions, 0.5)


def written(items: list[GalleryItem]) -> tuple[dict[str, Any], list[Any], dict[str, str]]:
    """The index, the images of all files, and the scripts."""
    pictures = {each.image_id: ("", "none here") for each in items}
    files = gallery_data(items, pictures, {"m-1": "beam: 1", "m-2": "beam: 3"}, "gallery/1-")
    index = re.fullmatch(r"captionbench\.index\((.*)\);\n", files["gallery/1-index.js"])
    assert index
    images = []
    for number in range(len(files) - 1):
        found = re.fullmatch(rf"captionbench\.images\({number},(.*)\);\n", files[f"gallery/1-{number}.js"])
        assert found
        images += json.loads(found[1])
    return json.loads(index[1]), images, files


def decoded(text: str, words: list[str]) -> str:
    return " ".join(word[1:] if word.startswith("=") else words[int(word, 36)] for word in text.split(" "))


HOSTILE = "</script><script>alert(1)</script>"


@pytest.mark.parametrize(
    "text", ["", " ", "a  ball", "=a ball", "a\nball", HOSTILE, "word" * 2500, "ein Öl \u2028 球 a", '"\\']
)
def test_every_text_comes_back(text: str) -> None:
    index, images, files = written(
        [item(1, said("m-1", text, 0.1), said("n-1", "a ball", None)), item(2, said("m-1", text, 0))]
    )
    assert decoded(images[0][5][images[0][6][0]], index["words"]) == text
    assert images[0][7] == [100, None]
    assert images[1][6] == [0, -1], "the other said nothing of this image"
    assert not any("<" in script for script in files.values())


def test_equal_captions_are_stored_once_and_namesakes_labelled() -> None:
    index, images, _ = written([item(1, said("m-1", "a ball", 1.0), said("m-2", "a ball", 1.0), said("n-1", "x", 0.0))])
    assert (len(images[0][5]), images[0][6]) == (2, [0, 0, 1])
    assert [speaker["label"] for speaker in index["speakers"]] == ["beam: 1", "beam: 3", ""]
    assert index["speakers"][0]["page"] == "run.html?run=m-1"


def test_disagreement_is_the_deviation_between_models() -> None:
    assert disagreement(item(1, said("m-1", "", 1.0), said("n-1", "", 0.0), said("h", "", 9.0, "reference"))) == 0.5
    assert disagreement(item(1, said("m-1", "", 1.0), said("n-1", "", None))) is None


def test_twenty_captions_of_an_image_take_about_a_kilobyte() -> None:
    chance = random.Random(1)
    words = [f"word{number}" for number in range(2000)]
    weights = [1 / (1 + number) for number in range(2000)]
    items = [
        item(number, *(said(f"m{model}-1", " ".join(chance.choices(words, weights, k=10)), 0.5) for model in range(20)))
        for number in range(IMAGES_A_FILE + 50)
    ]
    _, images, files = written(items)
    assert (len(files), len(images)) == (3, len(items)), "the index and two files of images"
    assert sum(map(len, files.values())) / len(items) < 1100


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("House", "houses", True), ("sitting", "sits", True), ("man", "men", True), ("person", "people", True),
        ("Grey", "gray", True), ("colourful", "colors", True), ("doughnuts", "donut", True), ("tyres", "tire", True),
        ("travelling", "traveled", True), ("chequered", "checkered", True),
        ("theatre", "theaters", True), ("neighbouring", "neighbor", True),
        ("greyhound", "gray", False), ("four", "for", False), ("hour", "hor", False), ("buses", "bus", True),
        ("cat", "cattle", False), ("ball", "bell", False), ("red", "reading", False), ("7", "17", False),
    ],
)  # fmt: skip
def test_forms_of_a_word_have_one_stem(one: str, other: str, same: bool) -> None:
    assert (stem(one) == stem(other)) is same


def test_a_form_of_a_reference_is_no_hallucination() -> None:
    known = stems(["Two houses and some men", "a red house"])
    found = pieces("a man by the houses, barking", known)
    assert found == (("a man by the houses, ", False), ("barking", True), ("", False))
    assert pieces("the men", known) == (("the men", False),), "function words are never marked"
    assert forms(["A house", "two houses", "a dog", "House"]) == [["house", "houses"]], "others stand alone"


def test_examples_are_the_lowest_the_median_and_the_highest() -> None:
    def found(*ciders: float | None) -> Any:
        items = tuple(
            item(n, said("k", "a big house", cider), references=("two houses",)) for n, cider in enumerate(ciders)
        )
        pictures = dict.fromkeys(range(len(items)), ("", "none"))
        return examples_by_run(GalleryPage("gallery.html", "d test", items, pictures, (), {}, {}, ""))

    shown = found(0.5, None, 0.1, 0.9, 0.2, 0.7)["k"]
    assert [(each.which, each.image_id) for each in shown] == [("lowest", 2), ("median", 0), ("highest", 3)]
    assert shown[0].page == "gallery.html#image-2"
    assert shown[0].pieces == (("a ", False), ("big", True), (" house", False)), "compared by stem"
    assert [each.which for each in found(0.5)["k"]] == ["lowest"]
    assert found(None) == {}


def test_a_model_s_results_have_a_line_a_domain_and_its_costs_what_was_measured() -> None:
    domains = {name: {"CIDEr-D": Spread(0.5, None, 1)} for name in ("out-domain", "in-domain")}
    costs = {"train_seconds": Quantity(60.0, unit="s"), "energy_per_image": Quantity(None, "no meter", "J")}
    of = group(replace(row("m2"), domains=domains, costs=costs), row("aoanet"))
    [page] = model_pages(contents(of, runs={"k": run()}), {})
    [result] = page.results
    assert [line.model for line in result.table.lines] == ["in-domain", "out-domain", "overall"]
    assert "2 models" in result.rank
    assert [(label, cell.text) for label, _, cell in page.costs] == [("Training time", "1\u202fmin 00\u202fs")]
    assert flat({"stages": [{"lr": 1, "name": None}, {"lr": 2}], "betas": [0.9, 0.99]}) == [
        ("stages.1.lr", "1"), ("stages.1.name", "—"), ("stages.2.lr", "2"), ("betas", "[0.9, 0.99]"),
    ]  # fmt: skip


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


def damaged() -> bytes:
    """A large picture that is turned by EXIF, which also has a number where another type belongs."""
    turned, wrong = struct.pack("<2HIHH", 0x112, 3, 1, 3, 0), struct.pack("<2HI4s", 0x100, 1, 1, b"\xff" * 4)
    file, exif = BytesIO(), b"Exif\0\0II*\0\x08\0\0\0\x02\0" + turned + wrong + bytes(4)
    Image.new("L", (2000, 1)).save(file, "JPEG", exif=exif)
    return file.getvalue()


@pytest.mark.parametrize(
    "content", [b"", b"<svg onload='alert(1)'/>", b"not a picture at all", pytest.param(damaged(), id="EXIF")]
)
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


def test_a_strangers_database_names_no_folder_of_pictures(store: Store, tmp_path: Path) -> None:
    """Only pictures below the folder that the user names are copied."""

    def pictures(*options: object) -> dict[str, bytes]:
        bench_ok("report", "--db", store.name, "--out", tmp_path / "report", *options)
        return {path.name: path.read_bytes() for path in (tmp_path / "report" / "gallery").glob("*.png")}

    own = tmp_path / "own"
    recorded = Contents.read(store).datasets[0].root
    file = next(Path(recorded).rglob("*.png"))
    (own / file.relative_to(recorded)).parent.mkdir(parents=True)
    (own / file.relative_to(recorded)).write_bytes(file.read_bytes())
    assert pictures() == {}
    assert list(pictures("--images", own).values()) == [file.read_bytes()]


def test_the_budget_is_kept(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "PICTURE_BUDGET", 5_000)
    (tmp_path / "gallery").mkdir()
    pages = gallery.gallery_pages(store, Contents.read(store), {}, {}, tmp_path, gallery.RECORDED)
    assert 0 < sum(path.stat().st_size for path in (tmp_path / "gallery").iterdir()) <= 5_000
    assert gallery.LEFT_OUT in [reason for page in pages.values() for _, reason in page.pictures.values()]
