"""The gallery's scripts: small, lossless, and nothing but data."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from reports.html.gallery import IMAGES_A_FILE, disagreement, gallery_data
from results.records import Role
from results.runs.views import GalleryCaption, GalleryItem


def said(key: str, caption: str, cider: float | None, role: Role = "model") -> GalleryCaption:
    return GalleryCaption(key.partition("-")[0], role, 1, key, caption, cider)


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
    index, images, _ = written(
        [item(1, said("m-1", text, 0.1), said("n-1", "a ball", None)), item(2, said("m-1", text, 0))]
    )
    assert decoded(images[0][5][images[0][6][0]], index["words"]) == text
    assert images[0][7] == [100, None]
    assert images[1][6] == [0, -1], "the other said nothing of this image"


def test_equal_captions_are_stored_once_and_namesakes_labelled() -> None:
    index, images, _ = written([item(1, said("m-1", "a ball", 1.0), said("m-2", "a ball", 1.0), said("n-1", "x", 0.0))])
    assert len(images[0][5]) == 2
    assert images[0][6] == [0, 0, 1]
    assert [speaker["label"] for speaker in index["speakers"]] == ["beam: 1", "beam: 3", ""]
    assert index["speakers"][0]["page"] == "runs/m-1.html"


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
    assert len(files) == 3, "the index and two files of images"
    assert len(images) == len(items)
    assert sum(map(len, files.values())) / len(items) < 1100
