"""Where each word looked: panels that say what is stored, within a budget, built when they are asked for."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reports.html import attention
from reports.html.attention import stored_maps
from results.runs.leaderboard import leaderboard
from results.store.store import Store
from tests.reports.conftest import HOSTILE
from tests.reports.html.parsed import Page

PAGE = "gallery-attention.html"


@pytest.fixture(scope="module")
def page(report: Path) -> Page:
    return Page(report / PAGE)


def pixels(uri: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,")))))


def panels(report: Path, image: int) -> list[list[list[Any]]]:
    """By caption the panels of an image, as its script has them: word, place in words, overlay, regions."""
    file = f"gallery/looks-1-{image}.js"
    found = re.fullmatch(r"captionbench\.attention\((.*)\);\n", (report / file).read_text(encoding="utf-8"))
    assert found
    named, captions = json.loads(f"[{found[1]}]")
    assert named == file
    return list(captions)


def test_every_word_has_a_panel(report: Path, page: Page) -> None:
    images = {article.attributes["id"]: article for article in page.root.find("article")}
    assert list(images) == ["image-2", "image-5"], "hardest first"
    for name, models in (("image-2", ["expansionnet_v2"]), ("image-5", ["expansionnet_v2", "transformer_base"])):
        said = list(images[name].find("details"))
        assert [next(each.find("summary")).text.split()[0] for each in said] == models
        assert [each.attributes["data-caption"] for each in said] == [str(number) for number in range(len(models))]
        written = panels(report, int(name.removeprefix("image-")))
        assert len(written) == len(models)
        for caption in written:
            words = [word for word, *_ in caption]
            assert [words[0], words[2]] == ["a", "ball"]
            assert words[1].startswith("<script>")
            assert "\x00" not in words[1]


def test_the_page_waits_with_its_panels(page: Page) -> None:
    assert not list(page.root.find("figure"))
    assert not list(page.root.find("rect"))


def test_a_grid_is_a_pixel_a_cell(report: Path) -> None:
    _, where, heat, regions = panels(report, 2)[0][0]
    found = pixels(heat)
    assert found.shape == (3, 4, 4)
    assert np.argwhere(found[..., 3]).tolist() == [[0, 0]]
    assert (where, regions) == ("most at the top left", [])


def test_regions_stay_in_the_picture_and_the_first_is_marked(report: Path) -> None:
    several, alone, nothing = panels(report, 5)[1]
    first, second = several[3]
    assert (first[0], first[2:4], first[5]) == (0.0, [50.0, 100.0], 1)
    assert (second[:4], second[5]) == ([50.0, 0.0, 50.0, 50.0], 0)
    assert second[4] < first[4]
    assert len(alone[3]) == 1
    assert nothing[1:] == ["nowhere", "", []]


def test_the_gallery_leads_there(report: Path) -> None:
    gallery = Page(report / "gallery.html")
    links = [link.attributes["href"] for link in gallery.root.find("a") if link.attributes["href"].startswith(PAGE)]
    assert sorted(links) == [PAGE, f"{PAGE}#image-2", f"{PAGE}#image-5"]
    index = re.fullmatch(r"captionbench\.index\((.*)\);\n", (report / "gallery/1-index.js").read_text())
    assert index
    assert json.loads(index[1])["attention"] == [PAGE, [2, 5]]
    assert PAGE not in (report / "gallery-2.html").read_text(), "no maps of that split"


def test_a_budget_leaves_images_out_and_counts_them(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = leaderboard(store)
    [whole] = stored_maps(store, groups, {}).values()
    assert (list(whole.captions), whole.left_out) == ([2, 5], 0)
    monkeypatch.setattr(attention, "BUDGET", 3 * 250)
    [cut] = stored_maps(store, groups, {}).values()
    assert (list(cut.captions), cut.left_out) == ([2], 1)
    monkeypatch.setattr(attention, "BUDGET", 100)
    assert stored_maps(store, groups, {}) == {}


def test_hostile_words_stay_words(report: Path) -> None:
    text = (report / PAGE).read_text(encoding="utf-8")
    assert HOSTILE[:8] not in text.partition("<main")[2]
    assert "\x00" not in text
    scripts = [file.read_text(encoding="utf-8") for file in (report / "gallery").glob("looks-*.js")]
    assert len(scripts) == 2
    assert not any("<" in script for script in scripts)
