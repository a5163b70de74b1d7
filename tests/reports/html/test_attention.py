"""Where each word looked: panels that say what is stored, within a budget, on a page that reads without a script."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reports.html import attention
from reports.html.attention import stored_maps
from results.db.store import Store
from results.queries import fetch
from tests.reports.conftest import HOSTILE
from tests.reports.html.parsed import Page

PAGE = "gallery-attention.html"


@pytest.fixture(scope="module")
def page(report: Path) -> Page:
    return Page(report / PAGE)


def pixels(uri: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,")))))


def test_every_word_has_a_panel(page: Page) -> None:
    images = {article.attributes["id"]: article for article in page.root.find("article")}
    assert list(images) == ["image-2", "image-5"], "hardest first"
    for name, models in (("image-2", ["expansionnet_v2"]), ("image-5", ["expansionnet_v2", "transformer_base"])):
        said = list(images[name].find("details"))
        assert [next(each.find("summary")).text.split()[0] for each in said] == models
        for each in said:
            words = [caption.text for caption in each.find("figcaption")]
            assert [words[0], words[2]] == ["a", "ball"]
            assert words[1].startswith("<script>")
    assert all(any(True for _ in panel.find("img")) for panel in page.root.find("figure"))


def test_a_grid_is_a_pixel_a_cell(page: Page) -> None:
    [first, *_] = page.root.find("figure")
    picture, heat = first.find("img")
    assert picture.attributes["src"].startswith("gallery/1-2")
    found = pixels(heat.attributes["src"])
    assert found.shape == (3, 4, 4)
    assert np.argwhere(found[..., 3]).tolist() == [[0, 0]]
    assert next(first.find("span")).attributes["aria-label"] == "most at the top left"


def test_regions_stay_in_the_picture_and_the_first_is_marked(page: Page) -> None:
    article = next(page.root.find("article", id="image-5"))
    regions, alone, nothing = list(article.find("details"))[1].find("figure")
    first, second = regions.find("rect")
    assert first.attributes["class"] == "most"
    assert (first.attributes["x"], first.attributes["width"], first.attributes["height"]) == ("0.0", "50.0", "100.0")
    assert [second.attributes[name] for name in ("x", "y", "width", "height")] == ["50.0", "0.0", "50.0", "50.0"]
    assert float(second.attributes["fill-opacity"]) < float(first.attributes["fill-opacity"])
    assert len(list(alone.find("rect"))) == 1
    assert not list(nothing.find("rect"))
    assert next(nothing.find("span")).attributes["aria-label"] == "nowhere"


def test_the_gallery_leads_there(report: Path) -> None:
    gallery = Page(report / "gallery.html")
    links = [link.attributes["href"] for link in gallery.root.find("a") if link.attributes["href"].startswith(PAGE)]
    assert sorted(links) == [PAGE, f"{PAGE}#image-2", f"{PAGE}#image-5"]
    index = re.fullmatch(r"captionbench\.index\((.*)\);\n", (report / "gallery/1-index.js").read_text())
    assert index
    assert json.loads(index[1])["attention"] == [PAGE, [2, 5]]
    assert PAGE not in (report / "gallery-2.html").read_text(), "no maps of that split"


def test_a_budget_leaves_images_out_and_counts_them(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = fetch.leaderboard(store)
    [whole] = stored_maps(store, groups, {}).values()
    assert (list(whole.captions), whole.left_out) == ([2, 5], 0)
    monkeypatch.setattr(attention, "BUDGET", 3 * 500)
    [cut] = stored_maps(store, groups, {}).values()
    assert (list(cut.captions), cut.left_out) == ([2], 1)
    monkeypatch.setattr(attention, "BUDGET", 100)
    assert stored_maps(store, groups, {}) == {}


def test_hostile_words_stay_words(report: Path) -> None:
    text = (report / PAGE).read_text(encoding="utf-8")
    assert HOSTILE[:8] not in text.partition("<main")[2]
    assert "\x00" not in text
