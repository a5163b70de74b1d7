"""A headless Chromium of this machine, driven by Playwright: a fresh context for each test, and no network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

# The first starts fastest, and is what Playwright itself would download.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
# Playwright's own flags turn off the sandbox, sync, updates and background requests. The features are processes that a
# full Chromium starts for each context, for the address bar and in reserve: without them a context takes half the time.
FLAGS = (
    "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,SpareRendererForSitePerProcess",
)  # fmt: skip
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


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages; whatever a test does with them, the console stays empty and nothing but files is asked for."""
    contexts: list[BrowserContext] = []
    logged: list[str] = []
    requested: list[str] = []

    def open_page(
        file: Path, fragment: str = "", *, width: int = 1280, dark: bool = False, java_script: bool = True
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            is_mobile=width < 600,
            color_scheme="dark" if dark else "light",
            java_script_enabled=java_script,
            offline=True,
        )
        contexts.append(context)
        context.on("console", lambda message: logged.append(message.text))
        context.on("weberror", lambda error: logged.append(str(error.error)))
        context.on("request", lambda request: requested.append(request.url))
        page = context.new_page()
        page.goto(file.as_uri() + fragment)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [url for url in requested if not url.startswith(("file:", "data:", "about:"))] == []
    assert logged == []
