"""A gallery of more images than its page writes out: loaded in parts, when they are needed, and readable without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from reports.html.gallery import IMAGES_A_FILE, WRITTEN_OUT
from reports.html.report import write_report
from results.records import DatasetRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult
from results.store.store import Store

IMAGES = IMAGES_A_FILE + 50
CARDS = "#gallery .card"


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page: image 1 is the hardest, and the last is the only one with a zebra."""
    folder = tmp_path_factory.mktemp("large")
    images = tuple(ImageRecord(n, f"{n}.jpg", "test", ("a dog", "a cat")) for n in range(1, IMAGES + 1))
    with Store(folder / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("d", "d#1", str(folder), {"test": IMAGES}, images))
        for model in [f"m{number}" for number in range(10)]:
            store.plan([RunSpec(model, model, "model", 1, "controlled", "d#1", {}, {"data": "d#1"})])
            captions = dict.fromkeys(range(1, IMAGES), f"a dog by {model}") | {IMAGES: "a zebra"}
            scores = {n: n / IMAGES for n in captions}
            result = SplitResult("test", captions, {"overall": {"CIDEr-D": Quantity(0.5)}}, {"CIDEr-D": scores})
            store.finish(model, Outcome((result,), {}, {}))
        return write_report(store, folder / "report").parent / "gallery.html"


def test_more_images_are_loaded_when_they_are_asked_for(open_page: Callable[..., Page], gallery: Path) -> None:
    page = open_page(gallery)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    page.reload()
    expect(page.locator(CARDS)).to_have_count(WRITTEN_OUT)
    assert "1-0.js" not in asked
    page.locator("#further").click()
    expect(page.locator(CARDS)).to_have_count(2 * WRITTEN_OUT)
    ids = page.locator(CARDS).evaluate_all("cards => cards.map((card) => Number(card.dataset.image))")
    assert ids == list(range(1, 2 * WRITTEN_OUT + 1)), "hardest first, without a gap"
    assert [name for name in asked if name.startswith("1-")] == ["1-index.js", "1-0.js"]


def test_a_word_is_found_in_an_image_that_was_never_shown(open_page: Callable[..., Page], gallery: Path) -> None:
    page = open_page(gallery)
    page.locator("#gallery-filter [name=words]").fill("zebra")
    expect(page.locator("#gallery-filter output")).to_have_text(f"1 of {IMAGES}")
    expect(page.locator(CARDS).first).to_have_attribute("data-image", str(IMAGES))


def test_many_captions_are_folded_in_the_list_only(open_page: Callable[..., Page], gallery: Path) -> None:
    page = open_page(gallery)
    expect(page.locator(CARDS).first).to_contain_text("2 more captions")
    page.locator(CARDS).first.locator(".where a").click()
    viewer = page.locator("#viewer")
    expect(viewer.locator(".captions li")).to_have_count(10)
    expect(viewer.locator("details")).to_have_count(0)


def test_without_a_script_all_is_readable_and_no_control_shows(open_page: Callable[..., Page], gallery: Path) -> None:
    page = open_page(gallery, java_script=False)
    expect(page.locator(CARDS)).to_have_count(WRITTEN_OUT)
    expect(page.locator("#gallery-filter")).to_be_hidden()
    expect(page.locator("noscript p")).to_contain_text("need a script")
    page.goto(gallery.with_name("index.html").as_uri())
    expect(page.locator("table").first).to_contain_text("50.0", use_inner_text=True)
    expect(page.locator("button")).to_have_count(0)
