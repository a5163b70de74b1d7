"""Models side by side, filters and orders: kept in the address, carried by links, and reached by key."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

Open = Callable[..., Page]
BOARD = "#group-1-table"
PAIR = ("expansionnet_v2", "blind")


def ranked(page: Page) -> list[str]:
    """The models of the rows shown in the main leaderboard, references left out."""
    rows = page.locator(f"{BOARD} tbody:not(.reference) tr[data-model]:visible")
    return list(rows.evaluate_all("(rows) => rows.map((row) => row.dataset.model)"))


def references(page: Page) -> Locator:
    return page.locator(f"{BOARD} .reference tr:visible")


def pick(page: Page, model: str) -> Locator:
    """The box of a model in the main leaderboard."""
    return page.locator(f"{BOARD} tr[data-model='{model}'] .pick")


def query(page: Page) -> str:
    return page.url.partition("?")[2]


def follow(page: Page, name: str) -> None:
    """Follow a link of the navigation by key."""
    page.get_by_role("navigation", name="Report").get_by_role("link", name=name).press("Enter")
    expect(page.locator("nav [aria-current=page]").first).to_have_text(name)


def test_what_matters_fits_a_window_of_1280_pixels(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html")
    assert page.locator(".scroll.wide").first.evaluate("(box) => box.scrollWidth <= box.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") == 1280
    shown = page.locator(f"{BOARD} thead th:visible")
    names = [
        "Rank", "Model", "CIDEr-D", "BLEU-4", "METEOR", "ROUGE-L", "Parameters", "Computation", "Latency",
        "Training time",
    ]  # fmt: skip
    expect(shown).to_have_text(names)
    assert max(shown.evaluate_all("(all) => all.map((each) => each.getBoundingClientRect().right)")) <= 1280
    page.get_by_label("All metrics").press("Space")
    expect(shown).to_have_count(14)
    assert "metrics=all" in query(page)
    page.reload()
    expect(shown).to_have_count(14)


@pytest.mark.parametrize("width", [390, 1280])
def test_headings_stay_above_and_models_left_of_what_scrolls(open_page: Open, report: Path, width: int) -> None:
    page = open_page(report / "index.html", "?metrics=all", width=width)
    region = page.locator(".scroll.wide").first
    region.evaluate("(box) => { box.style.maxHeight = '9rem'; box.scrollIntoView(); box.scrollTo(300, 60); }")
    box, corner, first = (
        each.bounding_box()
        for each in (region, region.locator("thead th").nth(1), region.locator("tbody tr").last.locator("th"))
    )
    assert box is not None
    assert corner is not None
    assert first is not None
    assert (corner["x"], corner["y"]) == pytest.approx((box["x"] + 1, box["y"] + 1), abs=1)
    assert first["x"] == pytest.approx(box["x"] + 1, abs=1)
    over = region.evaluate(
        "(box) => { const {left, top} = box.getBoundingClientRect();"
        " return document.elementFromPoint(left + 30, top + 12).closest('th').cellIndex; }"
    )
    assert over == 1, "no other heading lies above that of the models"


def test_two_models_are_set_side_by_side_by_key_alone(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html")
    for model in PAIR:
        pick(page, model).press("Space")
    expect(page.get_by_role("group", name="Models side by side")).to_be_visible()
    page.get_by_label("Only these rows").press("Space")
    assert ranked(page) == [*PAIR]
    expect(references(page)).to_have_count(2)
    assert query(page) == "models=expansionnet_v2,blind&only=1"

    follow(page, "Domains")
    assert query(page) == "models=expansionnet_v2,blind&only=1"
    rows = page.locator("#domains-1-1 tbody:not(.reference) tr[data-model]:visible")
    assert rows.evaluate_all("(rows) => rows.map((row) => row.dataset.model)") == [*PAIR]

    follow(page, "Curves")
    front = page.locator(".mark.chosen")
    expect(front).to_have_count(4)
    assert set(front.evaluate_all("(all) => all.map((each) => each.dataset.model)")) == {*PAIR}
    button = page.locator(".legend").first.get_by_role("button", name="transformer_base")
    expect(button).to_have_attribute("aria-pressed", "false")
    button.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(front).to_have_count(6)
    button.press("Enter")

    follow(page, "Gallery")
    order = page.locator("#gallery-filter [name=order]")
    expect(page.locator("#gallery .card").first.locator(".captions li")).to_have_count(2)
    order.select_option(label="expansionnet_v2 beats blind most")
    expect(page.locator("#gallery .card")).to_have_count(12)
    assert "order=beats,expansionnet_v2,blind" in query(page)
    margins = page.locator("#gallery .card").evaluate_all(
        """(cards) => cards.map((card) => {
          const scores = Object.fromEntries([...card.querySelectorAll('.captions li')].map((line) => [
            line.querySelector('.who a').textContent, Number(line.querySelector('.score').textContent)]));
          return scores.expansionnet_v2 - scores.blind;
        })"""
    )
    assert margins == sorted(margins, reverse=True)
    assert margins[0] > margins[-1] > 0

    page.get_by_role("button", name="Leave blind out").press("Enter")
    expect(page.locator("#gallery .card").first.locator(".captions li")).to_have_count(1)
    expect(order).to_have_value("worst")
    page.get_by_role("button", name="Clear").press("Enter")
    expect(page.get_by_role("group", name="Models side by side")).to_be_hidden()
    expect(page.locator("#gallery .card").first.locator(".captions li")).not_to_have_count(1)


def test_back_and_reload_keep_rows_and_controls_in_agreement(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html")
    family = page.locator("form.facets [name=family]")
    family.select_option("transformer")
    page.locator(f"{BOARD} thead th").filter(has_text="Parameters").get_by_role("button").click()
    expected = ["transformer_base", "expansionnet_v2"]

    def agrees() -> None:
        expect(family).to_have_value("transformer")
        expect(page.locator(f"{BOARD} [aria-sort=ascending]")).to_have_text("Parameters")
        assert ranked(page) == expected
        expect(page.locator("form.facets output")).to_have_text("2 of 4 rows")

    agrees()
    page.reload()
    agrees()
    follow(page, "Costs")
    page.go_back()
    agrees()
    # What a browser that had put other values back into the form leaves when it shows the page again.
    family.evaluate("(select) => { select.value = ''; dispatchEvent(new PageTransitionEvent('pageshow')); }")
    agrees()
    page.goto((report / "index.html").as_uri() + "?family=none&order=group-1-table:Nothing:ascending&models=%E0%A4%A")
    expect(family).to_have_value("")
    assert len(ranked(page)) == 4, "what the address names and the page lacks changes nothing"

    page.goto((report / "gallery.html").as_uri())
    page.locator("#gallery-filter [name=words]").fill("GREEN cone")
    expect(page.locator("#gallery-filter output")).to_have_text("1 of 12")
    follow(page, "Method")
    page.go_back()
    expect(page.locator("#gallery-filter [name=words]")).to_have_value("GREEN cone")
    expect(page.locator("#gallery-filter output")).to_have_text("1 of 12")


def test_filters_keep_references_and_count_models(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html")
    family = page.locator("form.facets [name=family]")
    assert family.locator("option").all_text_contents() == ["all", "transformer", "one model each"]
    family.select_option("one model each")
    assert ranked(page) == ["show_tell_lstm", "blind"]
    expect(references(page)).to_have_count(2)
    expect(page.locator("form.facets output")).to_have_text("2 of 4 rows")
    expect(page.locator("#nothing")).to_be_hidden()


def test_the_same_model_is_brought_out_in_every_panel(open_page: Open, report: Path) -> None:
    section = open_page(report / "trade-offs.html").locator("section.board").first
    mark = section.locator(".plot").first.locator(".mark[data-model=blind]")
    mark.evaluate("(mark) => mark.focus({focusVisible: true})")
    expect(section.locator(".mark.pointed")).to_have_count(section.locator(".plot").count())
    expect(section.locator(".legend li.pointed")).to_have_text("blind")
    section.locator(".legend li").filter(has_text="transformer_base").hover()
    models = section.locator(".mark.pointed").evaluate_all("(all) => [...new Set(all.map((e) => e.dataset.model))]")
    assert models == ["transformer_base"]
    expect(section.locator(".legend .open")).to_contain_text("show_tell_lstm still learning")
    box = section.get_by_role("columnheader", name="Best trade-off in").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] < 1280


def test_the_gallery_prints_the_chosen_images_only(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery.html")
    cards = page.locator("#gallery .card:visible")
    page.emulate_media(media="print")
    expect(cards).to_have_count(12)
    page.emulate_media(media="screen")
    for number in (5, 2):
        page.get_by_label(f"Choose image {number}", exact=True).check()
    assert query(page) == "images=5,2"
    page.get_by_label("Only chosen images").check()
    expect(cards).to_have_count(2)
    page.get_by_label("Only chosen images").uncheck()
    page.emulate_media(media="print")
    expect(cards).to_have_count(2)
    expect(page.locator("#gallery-filter")).to_be_hidden()
    page.goto((report / "index.html").as_uri())
    expect(page.locator(".scroll").first).to_have_css("overflow-x", "visible")
    expect(page.locator("table").first).to_have_css("break-inside", "auto")
    expect(page.locator("thead").first).to_have_css("display", "table-header-group")
    expect(page.locator("thead button").first).to_have_css("display", "contents")
    assert re.search("none|visible", page.locator(".scroll").first.evaluate("(e) => getComputedStyle(e).maxHeight"))


def test_two_chosen_models_are_compared(open_page: Open, report: Path) -> None:
    page = open_page(report / "index.html")
    button = page.get_by_role("button", name="Compare these two")
    pick(page, PAIR[0]).press("Space")
    expect(button).to_be_hidden()
    pick(page, "transformer_base").press("Space")
    button.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("expansionnet_v2 and transformer_base")
    line = dialog.get_by_role("row").filter(has=page.get_by_role("rowheader", name="CIDEr-D")).first
    one, other, difference = (
        float(text.split()[0].replace("−", "-")) for text in line.get_by_role("cell").all_text_contents()
    )
    assert difference == pytest.approx(one - other, abs=0.11)
    assert "compare=1" in query(page)
    page.reload()
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.wait_for_url(lambda address: "compare" not in address)
