"""Pages of models in a real browser: on a phone every printed number stands in the window, under its metric's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

PHONE = 390
Open = Callable[..., Page]


def test_printed_numbers_are_readable_on_a_phone(open_page: Open, report: Path) -> None:
    page = open_page(report / "models" / "expansionnet_v2.html", width=PHONE)
    numbers = page.locator(".printed td.number:not(.none)")
    assert numbers.count() > 0
    edges = numbers.evaluate_all("(cells) => cells.map((cell) => cell.getBoundingClientRect().right)")
    assert max(edges) <= PHONE
    assert "CIDEr-D" in numbers.evaluate_all("(cells) => cells.map((cell) => cell.dataset.label)")
    expect(page.locator(".printed td.none").first).to_be_hidden()


def test_settings_are_folded_and_links_lead_out_without_a_referrer(open_page: Open, report: Path) -> None:
    page = open_page(report / "models" / "expansionnet_v2.html")
    folded = page.locator("details").filter(has=page.get_by_text("All settings", exact=True))
    expect(folded.locator("dl")).to_be_hidden()
    folded.locator("summary").press("Enter")
    expect(folded.locator("dl")).to_be_visible()
    leave = "(links) => links.filter(({rel, protocol}) => rel !== 'noreferrer' || !/^https?:$/.test(protocol)).length"
    assert page.locator("a.out").evaluate_all(leave) == 0
