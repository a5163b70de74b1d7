"""Names that plug-ins choose, of models, data sets and splits: shown as text in a real browser, whatever they hold."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from reports.html.report import write_report
from results.records import CodeRecord, DatasetRecord, EpochRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult
from results.store.store import Store

HACK = "window.hacked=1;document.title='hacked'"
SCRIPT = f"</script><script>{HACK}</script>"
IMAGE = f'"\'><img src=x onerror="{HACK}">'
TEMPLATE = "{{7*7}}${7*7}<!--<script>"
MODELS = (SCRIPT, IMAGE, TEMPLATE, "__proto__")
DATA = f"scenes{SCRIPT}{IMAGE}"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report's folder, of models and a data set whose names are markup, scripts and templates."""
    folder = tmp_path_factory.mktemp("hostile")
    images = tuple(ImageRecord(n, f"{n}{IMAGE}.jpg", "test", (SCRIPT, "a cat"), IMAGE) for n in range(1, 5))
    with Store(folder / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord(DATA, "d#1", str(folder), {"test": 4}, images, {IMAGE: SCRIPT}))
        for number, model in enumerate((*MODELS, "fails")):
            code = CodeRecord(SCRIPT, IMAGE, "1", {SCRIPT: IMAGE})
            config = {SCRIPT: IMAGE, "card": {"summary": SCRIPT, "paper": IMAGE, "url": f"javascript:{HACK}"}}
            store.plan([RunSpec(f"k{number}", model, "model", 1, SCRIPT, "d#1", config, {"data": IMAGE}, code=code)])
            if model == "fails":
                store.fail(f"k{number}", SCRIPT, IMAGE, SCRIPT)
                continue
            store.record_epoch(f"k{number}", EpochRecord(0, SCRIPT, IMAGE, 1, 1, 0.1, 1.0, 0.5, 1.0, 1.0))
            score = {"CIDEr-D": Quantity(0.5), IMAGE: Quantity(None, SCRIPT)}
            captions = dict.fromkeys(range(1, 5), f"{SCRIPT} {IMAGE} {number}")
            split = SplitResult(
                "test", captions, {"overall": score, IMAGE: score}, {"CIDEr-D": dict.fromkeys(captions, 0.5)}
            )
            store.finish(f"k{number}", Outcome((split,), {IMAGE: Quantity(1.0, unit=IMAGE)}, {IMAGE: SCRIPT}))
        return write_report(store, folder / "report").parent


def test_names_are_text_on_every_page(open_page: Callable[..., Page], hostile: Path) -> None:
    files = sorted(hostile.rglob("*.html"))
    assert len(files) >= 15
    page = open_page(files[0])
    for file in files:
        page.goto(file.as_uri())
        page.wait_for_load_state()
        assert page.evaluate("window.hacked ?? document.querySelectorAll('img[onerror]').length") == 0, file
        assert not page.title().startswith("hacked"), file
        links = page.eval_on_selector_all("a", "(all) => all.map((a) => a.protocol)")
        assert "javascript:" not in links, file
    page.goto((hostile / "index.html").as_uri())
    shown = page.locator("tbody th").all_inner_texts()
    assert all(any(model in text for text in shown) for model in MODELS)


def test_names_are_text_in_what_scripts_draw(open_page: Callable[..., Page], hostile: Path) -> None:
    page = open_page(hostile / "gallery.html")
    page.locator("#gallery").evaluate("(list) => list.replaceChildren()")
    page.locator("#gallery-filter [name=order]").select_option("number")
    expect(page.locator("#gallery .card")).to_have_count(4)
    drawn = page.locator("#gallery").inner_text()
    assert all(model in drawn for model in MODELS)
    page.locator("#gallery .card .where a").first.click()
    expect(page.locator("#viewer .card")).to_have_count(1)
    assert page.evaluate("window.hacked ?? document.querySelectorAll('img[onerror]').length") == 0
    scripts = "".join(file.read_text() for file in (hostile / "gallery").glob("*.js"))
    assert "<" not in scripts, "nothing in the data can end a script"
    assert "\\u003c/script>" in scripts
