"""The gallery in a real browser: search, orders, one image alone by key and by Back, and images loaded in parts."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from reports.html.gallery import IMAGES_A_FILE, WRITTEN_OUT
from reports.html.report import write_report
from results.records import DatasetRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult
from results.store.store import Store

IMAGES = IMAGES_A_FILE + 50
WHERE = "#gallery-filter [name=in]"
WORDS, ORDER = "#gallery-filter [name=words]", "#gallery-filter [name=order]"
CARDS = "#gallery .card"
EDGES = "(element) => (({left, top, width, height}) => [left, top, width, height])(element.getBoundingClientRect())"

Open = Callable[..., Page]


def shown_cards(page: Page) -> list[str]:
    return list(page.locator(CARDS).evaluate_all("(cards) => cards.map((card) => card.dataset.image)"))


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


def test_arrow_keys_go_from_picture_to_picture(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery.html")
    first, second = shown_cards(page)[:2]
    card = page.locator("#viewer .card")
    page.locator(CARDS).first.locator(".where a").click()
    expect(card).to_have_attribute("data-image", first)
    page.keyboard.press("ArrowRight")
    expect(card).to_have_attribute("data-image", second)
    expect(page).to_have_url(re.compile(f"#image-{second}$"))
    page.keyboard.press("ArrowLeft")
    expect(card).to_have_attribute("data-image", first)
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#viewer [data-step='-1']")).to_be_disabled()
    expect(card).to_have_attribute("data-image", first)


def test_back_closes_the_picture_and_forward_opens_it(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery.html")
    viewer, address = page.locator("#viewer"), (report / "gallery.html").as_uri()
    steps = page.evaluate("history.length")
    page.locator(CARDS).first.locator(".where a").click()
    expect(viewer).to_have_js_property("open", True)
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(f"#image-{shown_cards(page)[1]}$"))
    page.go_back()
    expect(viewer).to_have_js_property("open", False)
    expect(page).to_have_url(address)
    page.go_forward()
    expect(viewer).to_have_js_property("open", True)
    page.keyboard.press("Escape")
    expect(page).to_have_url(address)
    assert page.evaluate("history.length") == steps + 1, "one step, however many pictures were looked at"


def test_what_else_the_address_says_outlives_the_picture(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery.html")
    page.locator(CARDS).first.locator(".where a").click()
    expect(page).to_have_url(re.compile("#image-"))
    page.evaluate("history.replaceState(history.state, '', `?images=5${location.hash}`)")
    page.locator("#viewer [data-close]").click()
    expect(page).to_have_url((report / "gallery.html").as_uri() + "?images=5")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('"red ball"', ["1"]),
        ("red ball", ["1", "2"]),
        ('"RED  ball', ["1"]),
        ('"red ball" cone', []),
        ("“ball red”", ["2"]),
    ],
)
def test_a_phrase_in_quotes_is_found_and_marked(open_page: Open, tmp_path: Path, query: str, found: list[str]) -> None:
    images = tuple(ImageRecord(n, f"{n}.jpg", "test", ("houses <b>here</b>",)) for n in (1, 2))
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("d", "d#1", str(tmp_path), {"test": 2}, images))
        store.plan([RunSpec("k", "m", "model", 1, "controlled", "d#1", {}, {"data": "d#1"})])
        captions = {1: "a Red Ball by a house", 2: "a ball red as fire"}
        scores = {"CIDEr-D": {1: 0.1, 2: 0.2}}
        split = SplitResult("test", captions, {"overall": {"CIDEr-D": Quantity(0.5)}}, scores)
        store.finish("k", Outcome((split,), {}, {}))
        page = open_page(write_report(store, tmp_path / "report").parent / "gallery.html")
    page.locator(WORDS).fill(query)
    expect(page.locator("#gallery-filter output")).to_have_text(f"{len(found)} of 2")
    assert shown_cards(page) == found
    if query == '"red ball"':
        expect(page.locator("mark")).to_have_text(["Red Ball"])
        assert page.locator("#gallery .odd").all_inner_texts() == ["Red", "Ball"], "house is a form of houses"
        page.locator(WORDS).fill("<b>here")
        expect(page.locator("#gallery-filter output")).to_have_text("0 of 2")
        page.locator(WHERE).select_option("references")
        expect(page.locator(".references mark")).to_have_text(["<b>here", "<b>here"])


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page: image 1 is the hardest, and the last is the only one with a zebra."""
    folder = tmp_path_factory.mktemp("large")
    images = tuple(ImageRecord(n, f"{n}.jpg", "test", ("a dog", "a cat")) for n in range(1, IMAGES + 1))
    with Store(folder / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("d", "d#1", str(folder), {"test": IMAGES}, images))
        for model in [f"m{number}" for number in range(10)]:
            store.plan([RunSpec(model, model, "model", 1, "controlled", "d#1", {}, {"data": "d#1"})])
            captions = dict.fromkeys(range(1, IMAGES), f"a dog by {model}") | {IMAGES: "a zebra"}
            scores = {n: n / IMAGES for n in captions}
            result = SplitResult("test", captions, {"overall": {"CIDEr-D": Quantity(0.5)}}, {"CIDEr-D": scores})
            store.finish(model, Outcome((result,), {}, {}))
        return write_report(store, folder / "report").parent / "gallery.html"


def test_more_images_are_loaded_when_they_are_asked_for(open_page: Open, gallery: Path) -> None:
    page = open_page(gallery)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    page.reload()
    expect(page.locator(CARDS)).to_have_count(WRITTEN_OUT)
    assert "1-0.js" not in asked
    page.locator("#further").click()
    expect(page.locator(CARDS)).to_have_count(2 * WRITTEN_OUT)
    ids = page.locator(CARDS).evaluate_all("cards => cards.map((card) => Number(card.dataset.image))")
    assert ids == list(range(1, 2 * WRITTEN_OUT + 1)), "hardest first, without a gap"
    assert [name for name in asked if name.startswith("1-")] == ["1-index.js", "1-0.js"]


def test_a_word_is_found_in_an_image_that_was_never_shown(open_page: Open, gallery: Path) -> None:
    page = open_page(gallery)
    page.locator("#gallery-filter [name=words]").fill("zebra")
    expect(page.locator("#gallery-filter output")).to_have_text(f"1 of {IMAGES}")
    expect(page.locator(CARDS).first).to_have_attribute("data-image", str(IMAGES))


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of three images, ten models and a baseline that gives each image one caption."""
    folder = tmp_path_factory.mktemp("baselines")
    images = tuple(ImageRecord(n, f"{n}.jpg", "test", ("a dog", "a cat")) for n in (1, 2, 3))
    scores = {model: {1: 0.5, 2: 0.5, 3: 0.5} for model in ["majority", *(f"m{number}" for number in range(10))]}
    scores |= {"m0": {1: 0.5, 2: 0.9, 3: 0.25}, "m1": {1: 0.6, 2: 0.5, 3: 0.55}, "m2": {1: 2.0, 2: 0.5, 3: 0.5}}
    with Store(folder / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("d", "d#1", str(folder), {"test": 3}, images))
        for rank, model in enumerate(scores):
            role = "reference" if model == "majority" else "model"
            store.plan([RunSpec(model, model, role, 1, "controlled", "d#1", {}, {"data": "d#1"})])
            captions = dict.fromkeys((1, 2, 3), "a green star" if role == "reference" else "a dog")
            if model == "m0":
                captions[2] = "a green star"
            if model == "m9":
                captions[3] = "a dog, " * 40 + "and a zebra"
            overall = {"overall": {"CIDEr-D": Quantity(0.9 - rank / 100)}}
            result = SplitResult("test", captions, overall, {"CIDEr-D": scores[model]})
            store.finish(model, Outcome((result,), {}, {}))
        return write_report(store, folder / "report").parent / "gallery.html"


@pytest.mark.parametrize(
    ("models", "found"), [("", ["1", "2", "3"]), ("m0", ["2"]), ("m1,m2", []), ("majority,m1", ["1", "2", "3"])]
)
def test_a_search_looks_at_the_captions_that_are_shown(
    open_page: Open, baselines: Path, models: str, found: list[str]
) -> None:
    page = open_page(baselines, f"?models={models}")
    page.locator(WORDS).fill("green star")
    expect(page.locator("#gallery-filter output")).to_have_text(f"{len(found)} of 3")
    assert sorted(shown_cards(page)) == sorted(found)


@pytest.mark.parametrize(
    ("where", "query", "found"),
    [("", "cat", 0), ("references", "cat", 3), ("all", "cat", 3), ("references", "star", 0), ("", "2.jpg", 0),
     ("all", "2.jpg", 1), ("all", "star", 1), ("", "#3", 1), ("references", "#3", 1),
     ("", "dog star", 0), ("", "star green", 1)],
)  # fmt: skip
def test_a_search_looks_where_the_menu_says_and_marks_words_there(
    open_page: Open, baselines: Path, where: str, query: str, found: int
) -> None:
    page = open_page(baselines, f"?models=m0,m1&in={where}&q={query.replace('#', '%23')}")
    expect(page.locator(WHERE)).to_have_value(where)
    expect(page.locator("#gallery-filter output")).to_have_text(f"{found} of 3")
    expect(page.locator(CARDS)).to_have_count(found)
    in_references = page.locator(f"{CARDS} .references mark").count()
    assert in_references == (found if query == "cat" else 0)


def test_one_caption_disagrees_with_none(open_page: Open, baselines: Path) -> None:
    page = open_page(baselines, "?models=m0&order=disputed")
    expect(page.locator(ORDER)).to_have_value("worst")
    expect(page.locator(f"{ORDER} [value=disputed]")).to_have_attribute("disabled", "")
    page.locator(".speakers summary").click()
    page.get_by_label("m1", exact=True).check()
    expect(page.locator(ORDER)).to_have_value("disputed")


def test_without_pictures_cards_are_text_and_one_option_is_named(open_page: Open, baselines: Path) -> None:
    page = open_page(baselines)
    expect(page.locator("#pictures code").first).to_have_text("bench report --images FOLDER")
    expect(page.locator("#pictures code").last).to_have_text("3.jpg")
    assert page.locator(".placeholder, .picture, .unseen").count() == 0

    def gaps() -> list[float]:
        return list(
            page.locator(CARDS).evaluate_all(
                """(cards) => cards.map((card) => card.querySelector('.captions').getBoundingClientRect().top
                  - card.getBoundingClientRect().top)"""
            )
        )

    assert max(gaps()) < 80
    page.locator(ORDER).select_option("best")
    expect(page.locator("#gallery .card.text")).to_have_count(3)
    assert max(gaps()) < 80
    expect(page.locator(".placeholder, .picture, .unseen")).to_have_count(0)


def test_a_caption_that_was_found_is_not_folded(open_page: Open, baselines: Path) -> None:
    page = open_page(baselines)
    expect(page.locator(CARDS).first).to_contain_text("3 more captions")
    page.locator(WORDS).fill("zebra")
    expect(page.locator("#gallery-filter output")).to_have_text("1 of 3")
    expect(page.locator(CARDS)).to_have_count(1)
    expect(page.locator(CARDS)).to_contain_text("2 more captions")
    expect(page.locator(f"{CARDS} mark")).to_be_visible()


@pytest.mark.parametrize(
    ("order", "models", "expected"),
    [
        ("disputed", "", ["1", "2", "3"]),
        ("disputed", "m0,m1", ["2", "3", "1"]),  # their scores are 0.4, 0.3 and 0.1 apart
        ("disputed", "m0,m2", ["1", "2", "3"]),
        ("worst", "m0", ["3", "1", "2"]),
        ("best", "m1", ["1", "3", "2"]),
        ("best", "m0,m1", ["2", "1", "3"]),
    ],
)
def test_orders_are_of_the_chosen_models(
    open_page: Open, baselines: Path, order: str, models: str, expected: list[str]
) -> None:
    page = open_page(baselines, f"?models={models}&order={order}")
    expect(page.locator(ORDER)).to_have_value(order)
    expect(page.locator(CARDS)).to_have_count(3)
    page.wait_for_function(
        "(ids) => [...document.querySelectorAll('#gallery .card')].map((c) => c.dataset.image).join() === ids",
        arg=",".join(expected),
    )


def test_many_captions_are_folded_in_the_list_only(open_page: Open, gallery: Path) -> None:
    page = open_page(gallery)
    expect(page.locator(CARDS).first).to_contain_text("2 more captions")
    page.locator(CARDS).first.locator(".where a").click()
    viewer = page.locator("#viewer")
    expect(viewer.locator(".captions li")).to_have_count(10)
    expect(viewer.locator("details")).to_have_count(0)


def test_without_a_script_all_is_readable_and_no_control_shows(open_page: Open, gallery: Path) -> None:
    page = open_page(gallery, java_script=False)
    expect(page.locator(CARDS)).to_have_count(WRITTEN_OUT)
    expect(page.locator("#gallery-filter")).to_be_hidden()
    expect(page.locator("noscript p")).to_contain_text("need a script")
    page.goto(gallery.with_name("index.html").as_uri())
    expect(page.locator("table").first).to_contain_text("50.0", use_inner_text=True)
    expect(page.locator("button")).to_have_count(0)


def test_panels_are_built_when_a_caption_is_opened(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery-attention.html")
    first, other = page.locator("#image-2 details").first, page.locator("#image-5 details").nth(1)
    expect(first.locator("figure")).to_have_count(3)
    expect(first.locator("figcaption").first).to_have_text("a")
    assert first.locator("figcaption").nth(1).inner_text().startswith("<script>"), "hostile words are text"
    expect(page.locator("figure")).to_have_count(3)
    other.locator("summary").press("Enter")
    expect(other.locator("figure")).to_have_count(3)
    expect(other.locator("rect.most").first).to_be_visible()
    expect(other.locator(".look").nth(2)).to_have_attribute("aria-label", "nowhere")
    other.locator("summary").press("Enter")
    other.locator("summary").press("Enter")
    expect(other.locator("figure")).to_have_count(3)
    assert page.title().startswith("Where each word looked")


def test_an_address_opens_the_first_caption_of_its_image(open_page: Open, report: Path) -> None:
    page = open_page(report / "gallery-attention.html", "#image-5")
    expect(page.locator("#image-5 details").first.locator("figure")).to_have_count(3)
    expect(page.locator("#image-2 details[open]")).to_have_count(0)


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


def test_a_number_of_the_matrix_leads_to_the_pictures_that_are_wrong(open_page: Open, report: Path) -> None:
    page = open_page(report / "facts.html", "?models=blind")
    page.locator("#facts-1 tr[data-model=expansionnet_v2] td a").nth(1).click()
    expect(page).to_have_url(re.compile(r"gallery\.html\?models=expansionnet_v2&wrong=colour$"))
    expect(page.locator("#gallery-filter output")).to_have_text("6 of 12")
    assert {int(image) % 2 for image in shown_cards(page)} == {1}, "of even images both colours are true"
    expect(page.locator("#gallery .said .tag").first).to_have_text(re.compile("wrong: .*colour"))
    page.locator("#gallery-filter [name=wrong]").select_option("")
    expect(page.locator("#gallery-filter output")).to_have_text("12 images")
