"""No page of the report breaks a rule of axe-core, in light and dark, on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from playwright.sync_api import Page

PAGES = (
    "index.html",
    "nocaps.html",
    "costs.html",
    "trade-offs.html",
    "curves.html",
    "gallery.html",
    "models.html",
    "models/expansionnet_v2.html",
    "method.html",
    "runs/expansionnet_v2-s1-plain.html",
    "runs/aoanet-s1-plain.html",
)
CHOSEN = "?models=blind,expansionnet_v2&metrics=all"
MODES = {
    "desktop-light": (1280, False, ""),
    "phone-dark": (390, True, CHOSEN),
    "desktop-dark": (1280, True, CHOSEN),
    "phone-light": (390, False, ""),
}
# A width and a scheme more add nothing but their combinations, at some 7 seconds each: those wait for the campaign.
PARAMETERS = [
    pytest.param(*mode, id=name, marks=() if number < 2 else pytest.mark.campaign)
    for number, (name, mode) in enumerate(MODES.items())
]


@pytest.mark.parametrize(("width", "dark", "query"), PARAMETERS)
def test_axe_finds_nothing(open_page: Callable[..., Page], report: Path, width: int, dark: bool, query: str) -> None:
    pytest.importorskip(
        "axe_playwright_python", reason="axe-playwright-python, which brings axe-core, is not installed"
    )
    axe = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page = open_page(report / PAGES[0], query, width=width, dark=dark)
    found = {}
    for name in PAGES:
        page.goto((report / name).as_uri() + query)
        page.evaluate(axe)
        found[name] = page.evaluate(
            """axe.run({resultTypes: ['violations']}).then(({violations}) => violations.map((each) =>
              `${each.id}: ${each.nodes[0].html.slice(0, 200)} ${each.nodes[0].failureSummary}`))"""
        )
    assert found == {name: [] for name in PAGES}
