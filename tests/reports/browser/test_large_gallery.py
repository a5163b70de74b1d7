"""A gallery of more images than its page writes out: loaded in parts, when they are needed, and readable without."""

from __future__ import annotations

from typing import Any

import pytest

from reports.gallery import WRITTEN_OUT
from reports.gallery_data import IMAGES_A_FILE
from reports.html import write_report
from results.records import Cell, DatasetRecord, ImageRecord, Outcome, Quantity, SplitResult
from results.store import Store

IMAGES = IMAGES_A_FILE + 50
CARDS = "document.querySelectorAll('#gallery .card').length"


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page's address: image 1 is the hardest, and the last is the only one with a zebra."""
    folder = tmp_path_factory.mktemp("large")
    images = tuple(ImageRecord(n, f"{n}.jpg", "test", ("a dog", "a cat")) for n in range(1, IMAGES + 1))
    with Store(folder / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("d", "d#1", str(folder), {"test": IMAGES}, images))
        for model in [f"m{number}" for number in range(10)]:
            store.plan([Cell(model, model, "model", 1, "controlled", "d#1", {}, {"data": "d#1"})])
            captions = dict.fromkeys(range(1, IMAGES), f"a dog by {model}") | {IMAGES: "a zebra"}
            scores = {n: n / IMAGES for n in captions}
            result = SplitResult("test", captions, {"overall": {"CIDEr-D": Quantity(0.5)}}, {"CIDEr-D": scores})
            store.finish(model, Outcome((result,), {}, {}))
        return (write_report(store, folder / "report").parent / "gallery.html").as_uri()


def test_more_images_are_loaded_when_they_are_asked_for(tab: Any, gallery: str) -> None:
    tab.requested.clear()
    tab.open(gallery)
    assert tab.run(CARDS) == WRITTEN_OUT
    assert [url for url in tab.requested if url.endswith("1-0.js")] == []
    tab.run("document.querySelector('#further').click()")
    tab.wait(f"{CARDS} === {2 * WRITTEN_OUT}")
    ids = tab.run("[...document.querySelectorAll('#gallery .card')].map((card) => Number(card.dataset.image))")
    assert ids == list(range(1, 2 * WRITTEN_OUT + 1)), "hardest first, without a gap"
    assert [url.rpartition("/")[2] for url in tab.requested if "/gallery/" in url] == ["1-index.js", "1-0.js"]


def test_a_word_is_found_in_an_image_that_was_never_shown(tab: Any, gallery: str) -> None:
    tab.open(gallery)
    tab.run(
        "((field) => { field.value = 'zebra'; field.dispatchEvent(new Event('input', {bubbles: true})); })"
        "(document.querySelector('#gallery-filter [name=words]'))"
    )
    tab.wait(f"document.querySelector('#gallery-filter output').textContent === '1 of {IMAGES}'")
    assert tab.run("document.querySelector('#gallery .card').dataset.image") == str(IMAGES)


def test_many_captions_are_folded_in_the_list_and_open_in_the_viewer(tab: Any, gallery: str) -> None:
    tab.open(gallery)
    assert "2 more captions" in tab.run("document.querySelector('#gallery .card').textContent")
    tab.run("document.querySelector('#gallery .card .where a').click()")
    tab.wait("document.querySelector('#viewer .card')")
    assert tab.run("document.querySelectorAll('#viewer .captions li').length") == 10
    assert tab.run("document.querySelector('#viewer details')") is None


def test_without_a_script_everything_written_is_readable_and_no_control_shows(tab: Any, gallery: str) -> None:
    tab.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(gallery)
        assert tab.run(CARDS) == WRITTEN_OUT
        assert tab.run("document.querySelector('#gallery-filter').offsetParent") is None
        assert "need a script" in tab.run("document.querySelector('noscript').textContent")
        tab.open(gallery.replace("gallery.html", "index.html"))
        assert "50.0" in tab.run("document.querySelector('table').innerText")
        assert tab.run("document.querySelectorAll('button').length") == 0
    finally:
        tab.send("Emulation.setScriptExecutionDisabled", value=False)
    assert tab.logged == []
