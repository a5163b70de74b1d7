"""The report in a real browser: keys, filters, search, colour schemes and widths, without an error or a request."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from reports.html.report import write_report
from results.records import DatasetRecord, Outcome, Quantity, RunSpec, SplitResult
from results.store.store import Store
from tests.reports.html.browser.pages import PAGES

PHONE = 390
WORDS, ORDER = "#gallery-filter [name=words]", "#gallery-filter [name=order]"
CARDS = "#gallery .card"
EDGES = "(element) => (({left, top, width, height}) => [left, top, width, height])(element.getBoundingClientRect())"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"

Open = Callable[..., Page]


def heading(page: Page, name: str) -> Locator:
    """The main leaderboard's heading of this name."""
    return page.locator("#group-1-table thead th").filter(has_text=re.compile(f"^{name}$"))


def column(page: Page, name: str) -> list[str]:
    """What the ranked rows of the main leaderboard say under a heading."""
    place = heading(page, name).evaluate("(th) => th.cellIndex")
    return page.locator("#group-1-table").evaluate(
        "(table, place) => [...table.tBodies[0].rows].map((row) => row.cells[place].textContent)", place
    )


def shown_cards(page: Page) -> list[str]:
    return list(page.locator(CARDS).evaluate_all("(cards) => cards.map((card) => card.dataset.image)"))


def test_no_page_scrolls_sideways_on_a_phone_or_cuts_the_boxes_of_models(open_page: Open, report: Path) -> None:
    page = open_page(report / PAGES[0], width=PHONE)
    widths, cut = {}, {}
    for name in PAGES:
        page.goto((report / name).as_uri())
        widths[name] = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        begins = "(box) => box.getBoundingClientRect().x"
        cut[name] = page.locator("th > input.pick").evaluate_all(
            f"(all) => {{ const x = {begins}; return all.filter((box) => x(box) < x(box.parentElement)).length }}"
        )
    assert widths == {name: [PHONE, PHONE] for name in PAGES}
    assert cut == dict.fromkeys(PAGES, 0)


def test_a_condition_without_a_space_stays_on_a_phone(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html", width=PHONE)
    link = page.locator(".contents a").first
    link.evaluate("(link) => link.append('mobilenetv2_100_tf_in1k_fp16.pth#1ff019a1'.repeat(3))")
    assert link.evaluate("(link) => link.getBoundingClientRect().right") <= PHONE
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE


@pytest.mark.parametrize(
    ("width", "name", "said", "lines"), [(1280, "learning_rate." * 8, "0.002", 1), (PHONE, "commit", "bee8bad1" * 5, 2)]
)
def test_long_settings_neither_break_numbers_nor_overflow(
    open_page: Open, report: Path, width: int, name: str, said: str, lines: int
) -> None:
    page = open_page(report / "models" / "expansionnet_v2.html", width=width)
    found = page.locator(".facts div").first.evaluate(
        """(pair, [name, said]) => {
          const [setting, value] = pair.children;
          setting.textContent = name;
          value.textContent = said;
          const text = document.createRange();
          text.selectNodeContents(value);
          const right = (element) => element.getBoundingClientRect().right;
          return [text.getClientRects().length, right(text) <= right(pair) + 0.5];
        }""",
        [name, said],
    )
    assert found == [lines, True]


def test_the_page_is_dark_where_the_reader_wants_it(open_page: Open, report: Path) -> None:
    light, dark = (open_page(report / "index.html", dark=dark).evaluate(BACKGROUND) for dark in (False, True))
    brightness = [sum(map(int, colour.removeprefix("rgb(").rstrip(")").split(","))) for colour in (light, dark)]
    assert brightness[0] > 700
    assert brightness[1] < 100


def test_places_are_of_the_metric_that_the_table_is_sorted_by(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html")
    assert [place[:14] for place in column(page, "Place")] == ["1", "2", "still learning", "floor"]
    heading(page, "ROUGE-L").get_by_role("button").click()
    expect(heading(page, "Place, ROUGE-L").get_by_role("button")).to_be_visible()
    first = page.locator("#group-1-table td[data-places] span").first
    expect(first).to_have_attribute("title", "ROUGE-L: the best row")
    heading(page, "Parameters").get_by_role("button").click()
    expect(heading(page, "Place, ROUGE-L")).to_be_visible()
    heading(page, "CIDEr-D").get_by_role("button").click()
    expect(heading(page, "Place, CIDEr-D")).to_be_visible()


def test_headings_sort_by_mouse_and_by_key(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html")
    size = heading(page, "Parameters")
    best = page.locator("#group-1-table tbody td.leading").first
    expect(best).to_have_text(re.compile("^104.9"))
    size.get_by_role("button").click()
    smallest_first = ["830\u202fk", "1.02\u202fM", "1.61\u202fM", "2.30\u202fM"]
    assert column(page, "Parameters") == smallest_first
    expect(size).to_have_attribute("aria-sort", "ascending")
    size.get_by_role("button").press("Enter")
    assert column(page, "Parameters") == smallest_first[::-1]
    expect(size).to_have_attribute("aria-sort", "descending")
    expect(page.locator("#group-1-table [aria-sort]")).to_have_count(1)
    heading(page, "METEOR").get_by_role("button").click()
    assert column(page, "METEOR")[-1].startswith("—"), "not measured comes last"
    names = page.locator("#group-1-table .reference th").all_text_contents()
    assert sorted(name.strip()[:5] for name in names) == ["human", "retri"], "references never mix with ranked rows"


def test_rows_are_never_ordered_by_what_papers_print(open_page: Open, tmp_path: Path) -> None:
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("coco", "f", str(tmp_path), {}, ()))
        store.plan([RunSpec("k", "updown", "model", 1, "controlled", "f", {}, {"data": "coco#f"})])
        store.finish("k", Outcome((SplitResult("test", {}, {"overall": {"CIDEr-D": Quantity(1.0)}}, {}),), {}, {}))
        page = open_page(write_report(store, tmp_path / "report"))
    expect(heading(page, "CIDEr-D").get_by_role("button")).to_have_count(1)
    expect(heading(page, "Published")).to_have_count(1)
    expect(heading(page, "Published").get_by_role("button")).to_have_count(0)


def test_the_gallery_finds_a_word(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery.html")
    page.locator(WORDS).fill("GREEN cone")
    expect(page.locator("#gallery-filter output")).to_have_text("1 of 12")
    assert shown_cards(page) == ["4"]
    expect(page.locator("#gallery")).to_contain_text("a green cone above a table")
    page.locator(WORDS).fill("no such word")
    expect(page.locator("#nothing")).to_be_visible()


def test_the_gallery_orders_by_disagreement(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery.html")
    worst_first = shown_cards(page)
    for name, expected in (
        ("disputed", worst_first[::-1]),
        ("number", sorted(worst_first, key=int)),
        ("worst", worst_first),
    ):
        page.locator("#gallery").evaluate("(list) => list.replaceChildren()")
        page.locator(ORDER).select_option(name)
        expect(page.locator(CARDS)).to_have_count(12)
        assert shown_cards(page) == expected, name


def test_what_scripts_write_says_what_the_page_said(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery.html")
    written = page.locator(CARDS).all_text_contents()
    page.locator("#gallery").evaluate("(list) => list.replaceChildren()")
    page.locator(ORDER).select_option("worst")
    expect(page.locator(CARDS)).to_have_count(12)
    drawn = page.locator(CARDS).all_text_contents()
    assert ["".join(text.split()) for text in drawn] == ["".join(text.split()) for text in written]
    assert page.title() == "Gallery, scenes test · captionbench", "hostile captions did nothing"


def test_an_image_opens_and_closes_by_key(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery.html")
    first, second = shown_cards(page)[:2]
    viewer = page.locator("#viewer")
    page.locator(CARDS).first.locator(".where a").press("Enter")
    expect(viewer).to_have_js_property("open", True)
    expect(page).to_have_url(re.compile(f"#image-{first}$"))
    expect(viewer.locator(".card img")).not_to_have_js_property("naturalWidth", 0)
    viewer.locator("[data-step='1']").click()
    expect(viewer.locator(".card")).to_have_attribute("data-image", second)
    page.keyboard.press("Escape")
    expect(viewer).to_have_js_property("open", False)
    expect(page).to_have_url((report / "gallery.html").as_uri())


def test_where_words_looked_folds_out_by_key_over_the_picture(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery-attention.html", "#image-5")
    second = page.locator("#image-5 details").nth(1)
    expect(second).to_have_js_property("open", False)
    second.locator("summary").press("Enter")
    expect(second).to_have_js_property("open", True)
    look = second.locator(".look").first
    picture, overlay = look.locator(":scope > :first-child"), look.locator(":scope > :last-child")
    expect(picture).not_to_have_js_property("naturalWidth", 0)
    below, above, box = (part.evaluate(EDGES) for part in (picture, overlay, overlay.locator("rect").first))
    assert above == pytest.approx(below, abs=0.5)
    assert box[2] == pytest.approx(below[2] / 2, abs=1)


def test_the_gallery_leads_to_where_words_looked(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery.html", "#image-5")
    page.locator("#viewer .card .files a").click()
    expect(page.locator("h1")).to_have_text(re.compile("^Where each word looked"))
    expect(page).to_have_url(re.compile("#image-5$"))


def test_an_address_opens_its_image(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery.html", "#image-5")
    expect(page.locator("#viewer .card")).to_have_attribute("data-image", "5")


def test_a_point_says_its_numbers_when_it_has_the_focus(open_page: Open, report: Path) -> None:
    page = open_page(report / "trade-offs.html")
    mark = page.locator(".mark").first
    tip = mark.locator(".tip")
    expect(tip).to_have_css("visibility", "hidden")
    mark.evaluate("(mark) => mark.focus({focusVisible: true})")
    expect(tip).to_have_css("visibility", "visible")
    expect(tip).to_contain_text("CIDEr-D")


def test_the_signature_can_be_copied(open_page: Open, report: Path) -> None:
    page = open_page(report / "method.html")
    button = page.get_by_role("button", name="Copy the signature").first
    button.click()
    expect(button).to_have_text(re.compile("^(Copied|Selected)$"))
