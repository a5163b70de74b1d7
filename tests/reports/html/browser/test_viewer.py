"""One image alone in the gallery: by arrow keys, by Back, and the phrases that a search found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from reports.html.report import write_report
from results.records import DatasetRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult
from results.store.store import Store

Open = Callable[..., Page]
CARDS = "#gallery .card"
WORDS = "#gallery-filter [name=words]"


def shown_cards(page: Page) -> list[str]:
    return list(page.locator(CARDS).evaluate_all("(cards) => cards.map((card) => card.dataset.image)"))


def test_arrow_keys_go_from_picture_to_picture(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery.html")
    first, second = shown_cards(page)[:2]
    card = page.locator("#viewer .card")
    page.locator(CARDS).first.locator(".where a").click()
    expect(card).to_have_attribute("data-image", first)
    page.keyboard.press("ArrowRight")
    expect(card).to_have_attribute("data-image", second)
    expect(page).to_have_url(re.compile(f"#image-{second}$"))
    page.keyboard.press("ArrowLeft")
    expect(card).to_have_attribute("data-image", first)
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#viewer [data-step='-1']")).to_be_disabled()
    expect(card).to_have_attribute("data-image", first)


def test_back_closes_the_picture_and_forward_opens_it(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery.html")
    viewer, address = page.locator("#viewer"), (report / "gallery.html").as_uri()
    steps = page.evaluate("history.length")
    page.locator(CARDS).first.locator(".where a").click()
    expect(viewer).to_have_js_property("open", True)
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(f"#image-{shown_cards(page)[1]}$"))
    page.go_back()
    expect(viewer).to_have_js_property("open", False)
    expect(page).to_have_url(address)
    page.go_forward()
    expect(viewer).to_have_js_property("open", True)
    page.keyboard.press("Escape")
    expect(page).to_have_url(address)
    assert page.evaluate("history.length") == steps + 1, "one step, however many pictures were looked at"


def test_what_else_the_address_says_outlives_the_picture(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery.html")
    page.locator(CARDS).first.locator(".where a").click()
    expect(page).to_have_url(re.compile("#image-"))
    page.evaluate("history.replaceState(history.state, '', `?images=5${location.hash}`)")
    page.locator("#viewer [data-close]").click()
    expect(page).to_have_url((report / "gallery.html").as_uri() + "?images=5")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('"red ball"', ["1"]),
        ("red ball", ["1", "2"]),
        ('"RED  ball', ["1"]),
        ('"red ball" cone', []),
        ("“ball red”", ["2"]),
    ],
)
def test_a_phrase_in_quotes_is_found_and_marked(open_page: Open, tmp_path: Path, query: str, found: list[str]) -> None:
    images = tuple(ImageRecord(n, f"{n}.jpg", "test", ("houses <b>here</b>",)) for n in (1, 2))
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("d", "d#1", str(tmp_path), {"test": 2}, images))
        store.plan([RunSpec("k", "m", "model", 1, "controlled", "d#1", {}, {"data": "d#1"})])
        captions = {1: "a Red Ball by a house", 2: "a ball red as fire"}
        scores = {"CIDEr-D": {1: 0.1, 2: 0.2}}
        split = SplitResult("test", captions, {"overall": {"CIDEr-D": Quantity(0.5)}}, scores)
        store.finish("k", Outcome((split,), {}, {}))
        page = open_page(write_report(store, tmp_path / "report").parent / "gallery.html")
    page.locator(WORDS).fill(query)
    expect(page.locator("#gallery-filter output")).to_have_text(f"{len(found)} of 2")
    assert shown_cards(page) == found
    if query == '"red ball"':
        expect(page.locator("mark")).to_have_text(["Red Ball"])
        assert page.locator("#gallery .odd").all_inner_texts() == ["Red", "Ball"], "house is a form of houses"
        page.locator(WORDS).fill("<b>here")
        expect(page.locator(".references mark")).to_have_text(["<b>here", "<b>here"])
