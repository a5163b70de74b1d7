"""Where each word looked, in a real browser: panels are built when their caption is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

Open = Callable[..., Page]


def test_panels_are_built_when_a_caption_is_opened(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery-attention.html")
    first, other = page.locator("#image-2 details").first, page.locator("#image-5 details").nth(1)
    expect(first.locator("figure")).to_have_count(3)
    expect(first.locator("figcaption").first).to_have_text("a")
    assert first.locator("figcaption").nth(1).inner_text().startswith("<script>"), "hostile words are text"
    expect(page.locator("figure")).to_have_count(3)
    other.locator("summary").press("Enter")
    expect(other.locator("figure")).to_have_count(3)
    expect(other.locator("rect.most").first).to_be_visible()
    expect(other.locator(".look").nth(2)).to_have_attribute("aria-label", "nowhere")
    other.locator("summary").press("Enter")
    other.locator("summary").press("Enter")
    expect(other.locator("figure")).to_have_count(3)
    assert page.title().startswith("Where each word looked")


def test_an_address_opens_the_first_caption_of_its_image(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery-attention.html", "#image-5")
    expect(page.locator("#image-5 details").first.locator("figure")).to_have_count(3)
    expect(page.locator("#image-2 details[open]")).to_have_count(0)
