"""The report in a real browser: keys, filters, search, colour schemes and widths, without an error or a request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reports.html import write_report
from results.records import Cell, DatasetRecord, Outcome, Quantity, SplitResult
from results.store import Store

PHONE = 390
PAGES = (
    "index.html",
    "nocaps.html",
    "costs.html",
    "trade-offs.html",
    "curves.html",
    "gallery.html",
    "gallery-2.html",
    "gallery-attention.html",
    "models.html",
    "models/expansionnet_v2.html",
    "models/aoanet.html",
    "method.html",
    "runs/expansionnet_v2-s1-plain.html",
    "runs/aoanet-s1-plain.html",
)
WORDS, ORDER = "#gallery-filter [name=words]", "#gallery-filter [name=order]"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
COLUMN = "(n) => [...document.querySelector('#group-1-table').tBodies[0].rows].map((row) => row.cells[n].textContent)"


def heading(name: str) -> str:
    """The main leaderboard's heading of this name, as an expression."""
    return f"[...document.querySelectorAll('#group-1-table thead th')].find((th) => th.textContent === {name!r})"


def fill(tab: Any, field: str, value: str) -> None:
    """Fill in a field of a form, as a reader would."""
    tab.run(
        f"""(() => {{
          const field = document.querySelector({field!r});
          field.value = {json.dumps(value)};
          field.dispatchEvent(new Event("input", {{bubbles: true}}));
        }})()"""
    )


def shown_cards(tab: Any) -> list[str]:
    return list(tab.run("[...document.querySelectorAll('#gallery .card')].map((card) => card.dataset.image)"))


@pytest.fixture(autouse=True)
def _quiet(tab: Any) -> Any:
    """Whatever a test does, the console stays empty and nothing but files is asked for."""
    yield
    assert tab.logged == []
    assert [url for url in tab.requested if not url.startswith(("file:", "data:", "about:"))] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_page_scrolls_sideways_on_a_phone(tab: Any, report: Path, page: str) -> None:
    tab.open((report / page).as_uri(), width=PHONE)
    assert tab.run("document.documentElement.scrollWidth") == PHONE
    assert tab.run("innerWidth") == PHONE


def test_a_condition_without_a_space_stays_on_a_phone(tab: Any, report: Path) -> None:
    tab.open((report / "index.html").as_uri(), width=PHONE)
    tab.run("document.querySelector('.contents a').append('mobilenetv2_100_tf_in1k_fp16.pth#1ff019a1'.repeat(3))")
    assert tab.run("document.querySelector('.contents a').getBoundingClientRect().right") <= PHONE
    assert tab.run("document.documentElement.scrollWidth") == PHONE


@pytest.mark.parametrize(
    ("width", "name", "said", "lines"), [(1280, "learning_rate." * 8, "0.002", 1), (PHONE, "commit", "bee8bad1" * 5, 2)]
)
def test_long_settings_neither_break_numbers_nor_leave_their_place(
    tab: Any, report: Path, width: int, name: str, said: str, lines: int
) -> None:
    tab.open((report / "models" / "expansionnet_v2.html").as_uri(), width=width)
    found = tab.run(
        f"""(() => {{
          const pair = document.querySelector(".facts div"), [setting, value] = pair.children;
          setting.textContent = {name!r};
          value.textContent = {said!r};
          const text = document.createRange();
          text.selectNodeContents(value);
          const right = (element) => element.getBoundingClientRect().right;
          return [text.getClientRects().length, right(text) <= right(pair) + 0.5];
        }})()"""
    )
    assert found == [lines, True]


def test_the_page_is_dark_where_the_reader_wants_it(tab: Any, report: Path) -> None:
    tab.open((report / "index.html").as_uri())
    light = tab.run(BACKGROUND)
    tab.open((report / "index.html").as_uri(), scheme="dark")
    dark = tab.run(BACKGROUND)
    brightness = [sum(map(int, colour.removeprefix("rgb(").rstrip(")").split(","))) for colour in (light, dark)]
    assert brightness[0] > 700
    assert brightness[1] < 100


def test_headings_sort_by_mouse_and_by_key(tab: Any, report: Path) -> None:
    tab.open((report / "index.html").as_uri())
    size = heading("Parameters")
    column = f"({COLUMN})({size}.cellIndex)"
    assert tab.run(f"({COLUMN})(1)")[0].startswith("104.9")
    tab.run(f"{size}.querySelector('button').click()")
    smallest_first = ["830\u202fk", "1.02\u202fM", "1.61\u202fM", "2.30\u202fM"]
    assert tab.run(column) == smallest_first
    assert tab.run(f"{size}.getAttribute('aria-sort')") == "ascending"
    tab.run(f"{size}.querySelector('button').focus()")
    tab.press("Enter")
    assert tab.run(column) == smallest_first[::-1]
    assert tab.run(f"{size}.getAttribute('aria-sort')") == "descending"
    assert tab.run("document.querySelectorAll('#group-1-table [aria-sort]').length") == 1
    tab.run(f"{heading('METEOR')}.querySelector('button').click()")
    assert tab.run(f"({COLUMN})({heading('METEOR')}.cellIndex)")[-1].startswith("—"), "not measured comes last"
    names = (
        "[...document.querySelectorAll('#group-1-table .reference th')].map((th) => th.textContent.trim().slice(0, 5))"
    )
    assert sorted(tab.run(names)) == ["human", "retri"], "references never mix with ranked rows"


def test_rows_are_never_ordered_by_what_papers_print(tab: Any, tmp_path: Path) -> None:
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("coco", "f", str(tmp_path), {}, ()))
        store.plan([Cell("k", "updown", "model", 1, "controlled", "f", {}, {"data": "coco#f"})])
        store.finish("k", Outcome((SplitResult("test", {}, {"overall": {"CIDEr-D": Quantity(1.0)}}, {}),), {}, {}))
        tab.open(write_report(store, tmp_path / "report").as_uri())
    assert tab.run(f"{heading('CIDEr-D')}.querySelector('button')") is not None
    assert tab.run(f"{heading('Published')}.querySelector('button')") is None


def test_filters_leave_the_rows_that_fit(tab: Any, report: Path) -> None:
    tab.open((report / "index.html").as_uri())
    rows = (
        "[...document.querySelectorAll('.board > .scroll tr[data-family]')].filter((row) => row.offsetParent !== null)"
    )
    people = rows.replace(".board > .scroll", ".people")
    everything = tab.run(f"{rows}.length")

    fill(tab, "form.facets [name=family]", "expansionnet_v2")
    assert set(tab.run(f"{rows}.map((row) => row.dataset.family)")) == {"expansionnet_v2"}
    assert f"of {everything} rows" in tab.run("document.querySelector('form.facets output').textContent")
    assert tab.run("[...document.querySelectorAll('tbody.apart')].every((body) => body.offsetParent === null)")
    assert tab.run(f"{people}.map((row) => row.dataset.family)") == ["expansionnet_v2"], "shown, but counted once"
    fill(tab, "form.facets [name=objective]", "untrained")
    assert tab.run(f"{rows}.length") == 0
    assert tab.run("document.querySelector('#nothing').offsetParent !== null")
    fill(tab, "form.facets [name=family]", "")
    assert set(tab.run(f"{rows}.map((row) => row.dataset.family)")) == {"human", "retrieval"}
    fill(tab, "form.facets [name=family]", "retrieval")
    assert tab.run(f"{rows}.length") > 0
    assert tab.run("document.querySelector('.people h3').offsetParent") is None, "no title without a row"


def test_the_gallery_finds_a_word(tab: Any, report: Path) -> None:
    tab.open((report / "gallery.html").as_uri())
    fill(tab, WORDS, "GREEN cone")
    tab.wait("document.querySelector('#gallery-filter output').textContent === '1 of 12'")
    assert shown_cards(tab) == ["4"]
    assert "a green cone above a table" in tab.run("document.querySelector('#gallery').textContent")
    fill(tab, WORDS, "no such word")
    tab.wait("document.querySelector('#nothing').offsetParent !== null")


def test_the_gallery_orders_by_disagreement(tab: Any, report: Path) -> None:
    tab.open((report / "gallery.html").as_uri())
    worst_first = shown_cards(tab)
    for name, expected in (
        ("disputed", worst_first[::-1]),
        ("number", sorted(worst_first, key=int)),
        ("worst", worst_first),
    ):
        tab.run("document.querySelector('#gallery').replaceChildren()")
        fill(tab, ORDER, name)
        tab.wait("document.querySelectorAll('#gallery .card').length === 12")
        assert shown_cards(tab) == expected, name


def test_what_scripts_write_says_what_the_page_said(tab: Any, report: Path) -> None:
    tab.open((report / "gallery.html").as_uri())
    texts = "[...document.querySelectorAll('#gallery .card')].map((card) => card.textContent.replace(/\\s+/g, ''))"
    written = tab.run(texts)
    tab.run("document.querySelector('#gallery').replaceChildren()")
    fill(tab, ORDER, "worst")
    tab.wait("document.querySelectorAll('#gallery .card').length === 12")
    assert tab.run(texts) == written
    assert tab.run("document.title") == "Gallery, scenes test · captionbench", "hostile captions did nothing"


def test_an_image_opens_and_closes_by_key(tab: Any, report: Path) -> None:
    tab.open((report / "gallery.html").as_uri())
    first, second = shown_cards(tab)[:2]
    tab.run("document.querySelector('#gallery .card .where a').focus()")
    tab.press("Enter")
    tab.wait("document.querySelector('#viewer').open")
    tab.wait("document.querySelector('#viewer .card')")
    assert tab.run("location.hash") == f"#image-{first}"
    assert tab.run("document.querySelector('#viewer img').naturalWidth > 0")
    tab.run("document.querySelector('#viewer [data-step=\"1\"]').click()")
    tab.wait(f"document.querySelector('#viewer .card').dataset.image === {second!r}")
    tab.press("Escape")
    tab.wait("!document.querySelector('#viewer').open")
    tab.wait("location.hash === ''")


def test_where_words_looked_folds_out_by_key_over_the_picture(tab: Any, report: Path) -> None:
    tab.open((report / "gallery-attention.html").as_uri() + "#image-5")
    second = "document.querySelectorAll('#image-5 details')[1]"
    assert tab.run(f"{second}.open") is False
    tab.run(f"{second}.querySelector('summary').focus()")
    tab.press("Enter")
    tab.wait(f"{second}.open && {second}.querySelector('img').naturalWidth > 0")
    edges = "(({left, top, width, height}) => [left, top, width, height].map(Math.round))"
    picture, overlay = (f"{second}.querySelector('.look > :{place}-child')" for place in ("first", "last"))
    assert tab.run(f"{edges}({picture}.getBoundingClientRect())") == tab.run(
        f"{edges}({overlay}.getBoundingClientRect())"
    )
    box = tab.run(f"{second}.querySelector('rect').getBoundingClientRect().width")
    assert box == pytest.approx(tab.run(f"{picture}.getBoundingClientRect().width / 2"), abs=1)


def test_the_gallery_leads_to_where_words_looked(tab: Any, report: Path) -> None:
    tab.open((report / "gallery.html").as_uri() + "#image-5")
    tab.wait("document.querySelector('#viewer .card .files a')")
    tab.run("document.querySelector('#viewer .card .files a').click()")
    tab.wait("document.querySelector('h1')?.textContent.startsWith('Where each word looked')")
    assert tab.run("location.hash") == "#image-5"


def test_an_address_opens_its_image(tab: Any, report: Path) -> None:
    tab.open((report / "gallery.html").as_uri() + "#image-5")
    tab.wait("document.querySelector('#viewer .card')?.dataset.image === '5'")


def test_a_point_says_its_numbers_when_it_has_the_focus(tab: Any, report: Path) -> None:
    tab.open((report / "trade-offs.html").as_uri())
    tab.run("document.querySelector('.plot').scrollIntoView()")
    tab.run("document.querySelector('section.board table').focus()")
    assert tab.run("getComputedStyle(document.querySelector('.mark .tip')).visibility") == "hidden"
    tab.run("document.querySelector('.mark').focus({focusVisible: true})")
    assert tab.run("getComputedStyle(document.querySelector('.mark .tip')).visibility") == "visible"
    assert "CIDEr-D" in tab.run("document.querySelector('.mark .tip').textContent")


def test_the_signature_can_be_copied(tab: Any, report: Path) -> None:
    tab.open((report / "method.html").as_uri())
    tab.run("document.querySelector('.signature button').click()")
    tab.wait("['Copied', 'Selected'].includes(document.querySelector('.signature button').textContent)")
