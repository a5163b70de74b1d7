"""No page of the report breaks a rule of axe-core, in light and dark, on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.reports.html.browser.pages import PAGES

CHOSEN = "?models=blind,expansionnet_v2&metrics=all"
EVERY = "{resultTypes: ['violations']}"
# What depends on colours and on the width; the other rules find on a phone in the dark what they find on a desktop.
LOOKS = """{resultTypes: ['violations'],
  runOnly: ['color-contrast', 'link-in-text-block', 'target-size', 'scrollable-region-focusable']}"""
MODES = [
    pytest.param(1280, False, "", EVERY, id="desktop-light"),
    pytest.param(390, True, CHOSEN, LOOKS, id="phone-dark"),
    pytest.param(1280, True, CHOSEN, EVERY, id="desktop-dark", marks=pytest.mark.campaign),
    pytest.param(390, False, "", EVERY, id="phone-light", marks=pytest.mark.campaign),
    pytest.param(390, True, CHOSEN, EVERY, id="phone-dark-every-rule", marks=pytest.mark.campaign),
]


@pytest.mark.parametrize(("width", "dark", "query", "options"), MODES)
def test_axe_finds_nothing(
    open_page: Callable[..., Page], report: Path, width: int, dark: bool, query: str, options: str
) -> None:
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
            f"""axe.run({options}).then(({{violations}}) => violations.map((each) =>
              `${{each.id}}: ${{each.nodes[0].html.slice(0, 200)}} ${{each.nodes[0].failureSummary}}`))"""
        )
    assert found == {name: [] for name in PAGES}
