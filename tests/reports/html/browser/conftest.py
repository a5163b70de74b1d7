"""A headless Chromium of this machine, driven by Playwright: one page for each kind of screen, and no network."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

# The first starts fastest, and is what Playwright itself would download.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
# Playwright's own flags turn off the sandbox, sync, updates and background requests. The features are processes that a
# full Chromium starts for each context, for the address bar and in reserve: without them a context takes half the time.
FLAGS = (
    "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,SpareRendererForSitePerProcess",
)  # fmt: skip
_LONG_HISTORY = 20  # chromium keeps fifty steps: a test that counts its own needs a page that is far from these
expect.set_options(timeout=30_000)  # milliseconds


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser without a window; skips where there is none, fails where there must be one."""
    if CHROMIUM is None:
        if os.environ.get("BENCH_TEST_BROWSER") == "required":
            pytest.fail("no Chromium on this machine: apt-get install chromium-headless-shell")
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)


@dataclass
class _Tab:
    """A page that tests use one after another, and what it logged and asked for since the last one began."""

    page: Page
    logged: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def tab_of(browser: Browser) -> Iterator[Callable[[int, bool, bool], _Tab]]:
    """The page of a kind of screen: width, dark, with scripts. To make one takes longer than to load a report."""
    made: dict[tuple[int, bool, bool], _Tab] = {}

    def tab_of(*kind: Any) -> _Tab:
        if kind in made and made[kind].page.evaluate("history.length") > _LONG_HISTORY:
            made.pop(kind).page.context.close()
        if kind not in made:
            made[kind] = _new_tab(browser, *kind)
        return made[kind]

    yield tab_of
    for tab in made.values():
        tab.page.context.close()


@pytest.fixture
def open_page(tab_of: Callable[[int, bool, bool], _Tab]) -> Iterator[Callable[..., Page]]:
    """Opens pages; whatever a test does with them, the console stays empty and nothing but files is asked for."""
    used: dict[tuple[int, bool, bool], _Tab] = {}

    def open_page(
        file: Path, fragment: str = "", *, width: int = 1280, dark: bool = False, java_script: bool = True
    ) -> Page:
        kind = (width, dark, java_script)
        assert kind not in used, "a test that opens one of a kind twice would find its first page gone"
        tab = used[kind] = tab_of(*kind)
        tab.page.goto("about:blank")  # or a page with another fragment would not be loaded anew
        tab.page.emulate_media(media="null")
        tab.logged.clear()
        tab.requested.clear()
        tab.page.goto(file.as_uri() + fragment)
        return tab.page

    yield open_page
    for tab in used.values():
        assert [url for url in tab.requested if not url.startswith(("file:", "data:", "about:", "blob:"))] == []
        assert tab.logged == []


def _new_tab(browser: Browser, width: int, dark: bool, java_script: bool) -> _Tab:
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        is_mobile=width < 600,
        color_scheme="dark" if dark else "light",
        java_script_enabled=java_script,
        offline=True,
    )
    tab = _Tab(context.new_page())
    context.on("console", lambda message: tab.logged.append(message.text))
    context.on("weberror", lambda error: tab.logged.append(str(error.error)))
    context.on("request", lambda request: tab.requested.append(request.url))
    return tab
